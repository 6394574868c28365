"""The program `paddle-launcher`: which command runs, and how the process ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from launcher import __version__, config
from launcher.cli import run_arguments
from launcher.errors import FOR_GOOD, Exit, Failure

if TYPE_CHECKING:  # `run` does not load argparse
    from argparse import Namespace

    from launcher.job.from_yaml import RenderOptions
    from launcher.live.show import Source


def _run(arguments: Sequence[str], received: list[int]) -> int:
    from launcher import paddle
    from launcher.run.launcher import launch

    request = run_arguments.parse(arguments)
    settings = config.read(config.environment(), request.own, programs=paddle.programs(request.command))
    return launch(settings, request.flags, request.command, received)


def _plan(arguments: Sequence[str], received: list[int]) -> int:
    from launcher.run import dry_run

    request = run_arguments.parse(arguments, switches=("--json", "--discover"))
    settings = config.read(config.environment(), request.own, check_here=False)
    discover, as_json = "--discover" in request.options, "--json" in request.options
    return _print(dry_run.describe(settings, request.flags, request.command, discover=discover, as_json=as_json))


def _local(arguments: Sequence[str], received: list[int]) -> int:
    from launcher.run import local

    request = run_arguments.parse(arguments, valued=("--nodes",))
    nodes = request.options.get("--nodes")
    if nodes is None:
        raise Failure(Exit.USAGE, f"--nodes: missing: expected a number of nodes, 1 to {local.MOST_NODES}")
    if not nodes.isdecimal() or not 1 <= int(nodes) <= local.MOST_NODES:
        raise Failure(Exit.USAGE, f"--nodes: {nodes!r}: expected a number of nodes, 1 to {local.MOST_NODES}")
    if given := sorted(local.NOT_THE_USERS & set(request.own)):
        flags = ", ".join(map(config.flag_of_variable, given))
        this, the_flag = ("this", "the flag") if len(given) == 1 else ("these", "the flags")
        raise Failure(Exit.USAGE, f"{flags}: `local` sets {this} itself for each node: remove {the_flag}")
    return local.run(int(nodes), request.own, request.flags, request.command, config.environment(), received)


def _shard(given: Namespace) -> int:
    from launcher.data import shard

    environment = config.environment()
    out = environment.get("OUT_DIR") if given.out is None else given.out
    count = environment.get("SPLIT_COUNT") if given.count is None else given.count
    in_kubernetes = None if given.anywhere else "KUBERNETES_SERVICE_HOST" in environment
    shard.command(
        given.data,
        given.config,
        out,
        count,
        line_files=given.lines,
        in_kubernetes=in_kubernetes,
        follow_links=given.follow_links,
    )
    return Exit.COMPLETE


def _status(given: Namespace) -> int:
    if given.watch and given.json:
        raise Failure(Exit.USAGE, "--json: cannot be used with --watch")
    folder = given.job or _own_job_folder(given.namespace)
    if folder is None:
        return _status_of_all(given)
    if not given.namespace and ("/" in folder or os.path.isdir(os.path.join(folder, "output"))):
        if given.watch:
            from launcher.live.volume import VolumeSource

            return _watch(VolumeSource(folder))
        from launcher.store import status

        return _print(status.describe(folder, as_json=given.json))
    from launcher.job import commands

    if given.watch:
        return _watch(commands.watch(folder, given.namespace))
    return _print(commands.status(folder, given.namespace, as_json=given.json))


def _own_job_folder(namespace: str | None) -> str | None:
    """Return the folder of the job that runs here: in a pod of the job, or in the current directory. Else None."""
    environment = config.environment()
    if namespace:
        return None
    if environment.get("JOB_PATH") and environment.get("JOB_NAME"):
        return config.job_folder(None, environment)
    here = config.workdir(environment)
    return here if os.path.isfile(os.path.join(here, "output", "job.json")) else None


def _status_of_all(given: Namespace) -> int:
    """List the jobs of the namespace, since no job is named. Raises Failure if no cluster is configured."""
    from launcher.job import access, commands

    if not access.is_configured() or given.watch or given.json:
        raise Failure(Exit.USAGE, _NAME_A_JOB)
    table = commands.list_jobs(given.namespace, everywhere=False, output="")
    return _print(table) if table else Exit.COMPLETE


def _report(given: Namespace) -> int:
    from launcher.report import command

    folder = config.job_folder(given.job, config.environment())
    return _print(command.write(folder, given.output or None, given.visualdl or None))


def _watch(source: Source) -> int:
    from launcher.live.show import show
    from launcher.live.signals import Interrupted, ending_signals

    try:
        with ending_signals():
            return show(source, sys.stdout)
    except Interrupted as interrupted:
        return interrupted.exit_code


def _render(given: Namespace) -> int:
    from launcher.job import commands

    return _print(commands.render(given.file, _render_options(given, watch=False), strict=given.strict))


def _submit(given: Namespace) -> int:
    from launcher.job import commands

    options = _render_options(given, watch=given.watch)
    return commands.submit(given.file, options, given.namespace, strict=given.strict, watch=given.watch)


def _render_options(given: Namespace, *, watch: bool) -> RenderOptions:
    from launcher.job import commands

    return commands.render_options(
        given.launcher_image,
        given.entrypoint,
        given.registry,
        given.plain_http,
        inject=not given.no_inject,
        watch=watch,
    )


def _doctor(given: Namespace) -> int:
    from launcher.doctor import command

    return command.run(
        given.job,
        _render_options(given, watch=False),
        given.namespace,
        pod=not given.no_pod,
        within=given.within,
        as_json=given.output == "json",
    )


def _list(given: Namespace) -> int:
    from launcher.job import commands

    if given.all_namespaces and given.namespace:
        raise Failure(Exit.USAGE, "--namespace: cannot be used with --all-namespaces")
    table = commands.list_jobs(given.namespace, everywhere=given.all_namespaces, output=given.output)
    return _print(table) if table else Exit.COMPLETE


def _logs(given: Namespace) -> int:
    from launcher.job import commands

    for line in commands.logs(given.job, given.rank, given.namespace, role=given.role, follow=given.follow):
        _print(line)
    return Exit.COMPLETE


def _delete(given: Namespace) -> int:
    from launcher.job import commands

    return _print(commands.delete(given.job, given.namespace))


def _alive() -> int:
    from launcher.run import endpoint

    endpoint.ask(config.workdir(config.environment()))
    return Exit.COMPLETE


def _why(given: Namespace) -> int:
    if given.job is None:
        from launcher.run import endpoint

        return _print(endpoint.ask_why(config.workdir(config.environment())))
    from launcher.job import commands

    return _print(commands.why(given.job, given.namespace))


def _completion(given: Namespace) -> int:
    from launcher.cli import completion, parser

    return _print(completion.script(parser.tree(), given.shell))


def _schema() -> int:
    from launcher.config import schema

    return _print(schema.text().rstrip("\n"))


def _version() -> int:
    return _print(__version__)


_WITH_FLAGS_OF_PADDLE: Mapping[str, Callable[[Sequence[str], list[int]], int]] = {
    "run": _run,
    "plan": _plan,
    "local": _local,
}
_COMMANDS: Mapping[str, Callable[[Namespace], int]] = {
    "shard": _shard,
    "list": _list,
    "status": _status,
    "report": _report,
    "render": _render,
    "submit": _submit,
    "doctor": _doctor,
    "why": _why,
    "logs": _logs,
    "delete": _delete,
    "completion": _completion,
}
_NAME_A_JOB = """status: no job is named, and none runs here: expected the job's folder, or its name in the cluster:
  paddle-launcher status /volume/quick-start   a job on a volume: its folder, $JOB_PATH/$JOB_NAME
  paddle-launcher status wide-and-deep         a job in the cluster that kubectl uses
  paddle-launcher list                         all jobs of the namespace"""
# Probes call `alive` all the time, and loading argparse would be a tenth of the cost of a call.
_WITHOUT_ARGUMENTS: Mapping[str, Callable[[], int]] = {"alive": _alive, "schema": _schema, "version": _version}
_HELP = ("help", "--help", "-h")
_NAMES = frozenset({*_WITH_FLAGS_OF_PADDLE, *_COMMANDS, *_WITHOUT_ARGUMENTS, *_HELP})
_OTHER_NAMES = {"--version": "version"}
_HEAR_SIGNALS_THEMSELVES = ("run", "local")
_HANDLED = (  # by launcher.__main__
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGQUIT,
    signal.SIGWINCH,
)


def run_command(received: list[int]) -> None:
    """Run the command on the command line, and end this process. `received`: the signals that have already arrived."""
    _open_missing_streams()
    name, *arguments = sys.argv[1:] or [""]
    if name not in _HEAR_SIGNALS_THEMSELVES:
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
    try:
        code = perform(_OTHER_NAMES.get(name, name), arguments, received)
    except Failure as failure:
        code = _complain(failure, received)
        if name == "run" and code in FOR_GOOD:
            _tell_other_role(arguments, code, failure)
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    except Exception as error:
        code = _complain(_fault(error), received)
    _end(code)


def perform(name: str, arguments: Sequence[str], received: list[int]) -> int:
    """Run a command in this process. Return its exit code, or raise Failure."""
    if name in _WITHOUT_ARGUMENTS and not arguments:
        return _WITHOUT_ARGUMENTS[name]()
    help_wanted = run_arguments.asks_for_help(arguments)
    if name in _WITH_FLAGS_OF_PADDLE and not help_wanted:
        return _WITH_FLAGS_OF_PADDLE[name](arguments, received)
    if os.getpid() == 1 and name not in _NAMES and shutil.which(name):
        # `docker run IMAGE python train.py` must work as it did before the image had this entrypoint.
        os.execvp(name, [name, *arguments])
    from launcher.cli import parser

    if not name:
        _print(parser.overview())
        return Exit.USAGE
    if name in _HELP:
        return _print(parser.help_of(parser.named(arguments[0])) if arguments else parser.overview())
    command = parser.named(name)
    if help_wanted:
        return _print(parser.help_of(command))
    given = parser.parse(command, arguments)
    return _WITHOUT_ARGUMENTS[name]() if name in _WITHOUT_ARGUMENTS else _COMMANDS[name](given)


def _print(text: str) -> int:
    """Print the result of a command. Raises Failure if standard output cannot take all of it."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(Exit.CANNOT_WRITE, f"cannot write standard output: {error.strerror}") from None
    return Exit.COMPLETE


def _open_missing_streams() -> None:
    """Open each standard stream that the parent process has closed.

    Otherwise a file or a socket of this process could get the number of the stream, and output would be written there.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number, which is `number`
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _complain(failure: Failure, received: Sequence[int]) -> int:
    """Write the message of a failure. Escape control characters: the message may quote a file."""
    from launcher.base.file_errors import printable
    from launcher.run import outcome

    message = "".join(f"paddle-launcher: {printable(line)}\n" for line in failure.message.splitlines())
    sys.stderr.write(message)
    outcome.write_termination_message(config.termination_log(config.environment()), message.encode()[:4096])
    return Exit.STOPPED if received else failure.code


def _fault(error: Exception) -> Failure:
    from launcher.model import CauseKind
    from launcher.run.steps import fault

    return fault(CauseKind.LAUNCHER, error)


def _tell_other_role(arguments: Sequence[str], code: int, failure: Failure) -> None:
    """If each pod has one role, mark this member as failed for good. The members of the other role then do not wait."""
    from launcher.store import failure_marks

    try:
        own = run_arguments.parse(arguments).own
    except Failure:
        own = {}
    if member := config.role_member(config.environment(), own):
        what = "; ".join(failure.message.splitlines())
        failure_marks.mark_before_launch(member, f"exit code {int(code)}: {what}")


def _end(code: int) -> None:
    """End the process without waiting for threads, which a stalled volume may block."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(code)
