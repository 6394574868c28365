"""The commands and their arguments, nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from launcher import __version__, config
from launcher.arguments import namespace, no_flags, take, take_value
from launcher.errors import FOR_GOOD, Exit, Failure

_HELP = """\
paddle-launcher {version}: N plain Kubernetes pods become one PaddlePaddle training job

  paddle-launcher run [--launcher-NAME=VALUE ...] [flags of paddle train] [-- command ...]
      the entrypoint of each pod: finds the others, starts and supervises Paddle, ends with the job's exit code
  paddle-launcher plan [--json] [--discover] [what run takes]
      what `run` would do here, starting nothing; peers are looked for only with --discover
  paddle-launcher local --nodes N [what run takes]
      a whole job on this machine
  paddle-launcher shard --data FOLDER [--config FOLDER] [--out OUT_DIR] [--count SPLIT_COUNT]
      a data set, cut into OUT_DIR/<i>/data for each trainer
  paddle-launcher status [--json] [JOB_FOLDER | [--namespace NAME] JOB]
      a line a member: what the volume says about a job or, where there is no such folder, what the cluster says
  paddle-launcher render [--strict] [--no-inject | --launcher-image IMAGE] [--entrypoint "COMMAND"] FILE
      a PaddleJob of paddle-operator as plain manifests, for `kubectl apply -f -`; FILE may be - (docs/paddlejob.md)
  paddle-launcher submit [--watch] [--namespace NAME] [what render takes] FILE
      the same, created in the cluster at once; --watch shows a line a member until the end: the job's exit code
  paddle-launcher logs [--follow] [--role pserver] [--namespace NAME] JOB [RANK]
      what a trainer, or a server, of a job in the cluster has printed
  paddle-launcher delete [--namespace NAME] JOB
      a job with all that belongs to it, out of the cluster; data on volumes stays
  paddle-launcher alive
      whether the launcher of this pod answers: for probes
  paddle-launcher version

The environment says the rest (docs/configuration.md); --launcher-peer-timeout=60 stands for LAUNCHER_PEER_TIMEOUT=60.
The exit codes are explained in docs/exit-codes.md.\
"""


@dataclass(frozen=True)
class Request:
    """What `run` was asked for on its command line."""

    own: Mapping[str, str]  # variable to value
    flags: tuple[str, ...]  # for `paddle train`, as they are
    command: tuple[str, ...]  # after --


def parse_run(arguments: Sequence[str]) -> Request:
    """Only --launcher- flags are the launcher's; everything else goes on untouched and in order."""
    words = list(arguments)
    command: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
        if not command:
            raise Failure(Exit.USAGE, "--: expected a command after it")
    own: dict[str, str] = {}
    flags: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("--launcher-"):
            flags.append(word)
            continue
        flag, equals, value = word.partition("=")
        variable = config.variable_of_flag(flag)
        if variable is None:
            raise Failure(Exit.USAGE, f"{flag}: no such flag; the launcher's flags are {', '.join(config.flags())}")
        if not equals:
            found = next(rest, None)
            if found is None:
                raise Failure(Exit.USAGE, f"{flag}: expected a value")
            value = found
        own[variable] = value
    if command and flags:
        raise Failure(
            Exit.USAGE, f"{' '.join(flags)}: flags for `paddle train` do not go with a command of your own after --"
        )
    return Request(own, tuple(flags), tuple(command))


def _run(arguments: list[str], received: list[int]) -> int:
    from launcher import paddle
    from launcher.run.launcher import launch

    request = parse_run(arguments)
    settings = config.read(config.environment(), request.own, programs=paddle.programs(request.command))
    return launch(settings, request.flags, request.command, received)


def _plan(arguments: list[str], received: list[int]) -> int:
    from launcher.run import dry_run

    as_json, discover = take(arguments, "--json"), take(arguments, "--discover")
    request = parse_run(arguments)
    settings = config.read(config.environment(), request.own, check_here=False)
    return _print(dry_run.describe(settings, request.flags, request.command, discover=discover, as_json=as_json))


def _local(arguments: list[str], received: list[int]) -> int:
    from launcher.run import local

    nodes = take_value(arguments, "--nodes")
    if nodes is None:
        raise Failure(Exit.USAGE, f"--nodes: missing: expected a number of nodes, 1 to {local.MOST_NODES}")
    if not nodes.isdecimal() or not 1 <= int(nodes) <= local.MOST_NODES:
        raise Failure(Exit.USAGE, f"--nodes: {nodes!r}: expected a number of nodes, 1 to {local.MOST_NODES}")
    request = parse_run(arguments)
    if given := sorted(local.NOT_THE_USERS & set(request.own)):
        raise Failure(Exit.USAGE, f"{', '.join(given)}: `local` gives these to each node itself: leave them out")
    return local.run(int(nodes), request.own, request.flags, request.command, config.environment(), received)


def _shard(arguments: list[str], received: list[int]) -> int:
    from launcher.data import shard

    return shard.main(arguments, config.environment())


def _status(arguments: list[str], received: list[int]) -> int:
    from launcher.store import status

    as_json = take(arguments, "--json")
    given = namespace(arguments)
    no_flags("status", arguments)
    folder = config.job_folder(arguments, config.environment())
    if given is None and ("/" in folder or os.path.isdir(os.path.join(folder, "output"))):
        return _print(status.describe(folder, as_json=as_json))
    from launcher.job import commands

    return _print(commands.status(folder, given, as_json=as_json))


def _render(arguments: list[str], received: list[int]) -> int:
    from launcher.job import commands

    return _print(commands.render(arguments))


def _submit(arguments: list[str], received: list[int]) -> int:
    from launcher.job import commands

    return commands.submit(arguments)


def _logs(arguments: list[str], received: list[int]) -> int:
    from launcher.job import commands

    for line in commands.logs(arguments):
        _print(line)
    return Exit.COMPLETE


def _delete(arguments: list[str], received: list[int]) -> int:
    from launcher.job import commands

    return _print(commands.delete(arguments))


def _alive(arguments: list[str], received: list[int]) -> int:
    from launcher.run import endpoint

    endpoint.ask(config.workdir(config.environment()))
    return Exit.COMPLETE


def _version(arguments: list[str], received: list[int]) -> int:
    return _print(__version__)


def _help(arguments: list[str], received: list[int]) -> int:
    return _print(_HELP.format(version=__version__))


def _nothing(arguments: list[str], received: list[int]) -> int:
    _help(arguments, received)
    return Exit.USAGE


def _print(text: str) -> int:
    """What a command was asked for, on standard output, all of it or a failure."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(Exit.CANNOT_WRITE, f"cannot write standard output: {error.strerror}") from None
    return Exit.COMPLETE


_COMMANDS: Mapping[str, Callable[[list[str], list[int]], int]] = {
    "run": _run,
    "plan": _plan,
    "local": _local,
    "shard": _shard,
    "status": _status,
    "render": _render,
    "submit": _submit,
    "logs": _logs,
    "delete": _delete,
    "alive": _alive,
    "version": _version,
    "--version": _version,
    "help": _help,
    "--help": _help,
    "-h": _help,
    "": _nothing,
}
# Of `run`, --help is a flag of Paddle's; `shard` has its own.
_HELP_TELLS_ALL = ("plan", "local", "status", "render", "submit", "logs", "delete", "version")
_HEAR_SIGNALS_THEMSELVES = ("run", "local")


def run_command(received: list[int]) -> None:
    """Run what the command line asks for, and end this process. `received`: the signals that came so far."""
    _open_missing_streams()
    words = sys.argv[1:] or [""]
    if words[1:] in (["--help"], ["-h"]) and words[0] in _HELP_TELLS_ALL:
        words = ["help"]
    if words[0] not in _HEAR_SIGNALS_THEMSELVES:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
    try:
        command = _COMMANDS.get(words[0])
        if command is None and os.getpid() == 1 and shutil.which(words[0]):
            # `docker run IMAGE python train.py`: the image runs what it could run before it had this entrypoint.
            os.execvp(words[0], words)
        if command is None:
            raise Failure(Exit.USAGE, f"{words[0]}: no such command; see paddle-launcher --help")
        code = command(words[1:], received)
    except Failure as failure:
        code = _complain(failure, received)
        if words[0] == "run" and code in FOR_GOOD:
            _tell_other_role(words[1:], code, failure)
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
    _end(code)


def _open_missing_streams() -> None:
    """A number that our parent closed would else become a file or a socket of ours, and output would go into that."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # takes the lowest free number: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _complain(failure: Failure, received: Sequence[int]) -> int:
    from launcher.run import outcome

    message = "".join(f"paddle-launcher: {line}\n" for line in failure.message.splitlines())
    sys.stderr.write(message)
    outcome.write_termination_message(config.termination_log(config.environment()), message.encode()[:4096])
    return Exit.STOPPED if received else failure.code


def _tell_other_role(arguments: Sequence[str], code: int, failure: Failure) -> None:
    """With one role a pod the members of the other role would wait for this one, which never comes."""
    from launcher.store import failure_marks

    try:
        own = parse_run(arguments).own
    except Failure:
        own = {}
    if member := config.role_member(config.environment(), own):
        what = "; ".join(failure.message.splitlines())
        failure_marks.tell_before_launch(member, f"exit code {int(code)}: {what}")


def _end(code: int) -> None:
    """End without waiting for threads that a stalled volume holds."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        pass
    os._exit(code)
