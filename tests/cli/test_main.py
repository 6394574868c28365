"""The command line as a user sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.cli.commands import COMMANDS
from launcher.errors import Exit
from tests.support.paths import REPOSITORY, STANDIN


def launcher(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "launcher", *words]
    return subprocess.run(command, env={**base, **environment}, capture_output=True, text=True, timeout=30, check=False)


def test_a_help_flag_belongs_to_the_launcher_before_two_dashes_and_to_the_user_after_them(tmp_path: Path) -> None:
    made = tmp_path / "made"
    ended = launcher("run", "--config=a", "--help", "--", "touch", str(made), LAUNCHER_WORKDIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: paddle-launcher run ")
    assert not made.exists()
    users = ("sh", "-c", "echo $1", "sh", "--help")
    assert launcher("run", "--", *users, LAUNCHER_WORKDIR=str(tmp_path)).stdout == "--help\n"


def test_run_loads_neither_argparse_nor_the_tab_completion(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "launcher", "run", "--", "true"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in ended.stderr.splitlines()}
    assert "launcher.cli.main" in loaded
    assert not loaded & {"argparse", "shtab"}


def test_an_environment_with_six_errors_causes_six_lines_and_exit_code_78(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    ended = launcher(
        "run",
        JOB_NAME="a/b",
        JOB_PATH="vol",
        CONF_PADDLE_PORT="x",
        CONF_PADDLE_GRADIENT_NUM="0",
        LAUNCHER_STOP_GRACE="-1",
        CONF_PADDLE_NIC="nosuch0",
        PATH=f"{STANDIN}:{os.environ['PATH']}",
        LAUNCHER_TERMINATION_LOG=str(message),
    )
    assert ended.returncode == Exit.CONFIG
    assert len(ended.stderr.splitlines()) == 6
    assert "Traceback" not in ended.stderr
    assert message.read_text() == ended.stderr


def test_a_program_that_is_missing_ends_with_127_as_in_a_shell(tmp_path: Path) -> None:
    message = tmp_path / "termination-log"
    message.touch()
    here = {"LAUNCHER_WORKDIR": str(tmp_path), "LAUNCHER_TERMINATION_LOG": str(message)}
    for program in ("no-such-program", "/no/such/program", "./no-such-program"):
        ended = launcher("run", "--", program, **here)
        assert ended.returncode == 127, ended.stderr
        assert re.search(rf"{program}.*(command not found|was not found|no such file)", message.read_text())
        assert program in ended.stderr.splitlines()[-1]


def test_a_program_that_cannot_be_executed_ends_with_126_as_in_a_shell(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    (tmp_path / "folder").mkdir()
    for program, why in (
        (f"{tmp_path}/script", "may not execute this file"),
        (f"{tmp_path}/folder", "is a folder"),
        ("./script", "Permission denied"),
    ):
        ended = launcher("run", "--", program, LAUNCHER_WORKDIR=str(tmp_path))
        assert ended.returncode == 126, ended.stderr
        assert why in ended.stderr


def test_other_mistakes_beside_a_missing_program_end_with_78(tmp_path: Path) -> None:
    ended = launcher("run", "--", "no-such-program", LAUNCHER_WORKDIR=str(tmp_path), LAUNCHER_SILENCE="1")
    assert ended.returncode == Exit.CONFIG
    assert [line.split(":")[1] for line in ended.stderr.splitlines()] == [" LAUNCHER_SILENCE", " no-such-program"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fly", "fly: no such command; see paddle-launcher --help"),
        ("sttaus", "sttaus: no such command: did you mean status? See paddle-launcher --help"),
        ("help sttaus", "sttaus: no such command: did you mean status? See paddle-launcher --help"),
        ("-n x status", "-n: expected a command before any flag; see paddle-launcher --help"),
        ("run --launcher-x=1", "--launcher-x: no such flag; see paddle-launcher run --help"),
        (
            "plan --launcher-per-timeout=1",
            "--launcher-per-timeout: no such flag: did you mean --launcher-peer-timeout? "
            "See paddle-launcher run --help",
        ),
        ("local", "--nodes: missing: expected a number of nodes, 1 to 200"),
        ("local --nodes none", "--nodes: 'none': expected a number of nodes, 1 to 200"),
        ("local --nodes", "--nodes: expected a value"),
        (
            "local --nodes 2 --launcher-rank=1",
            "--launcher-rank: `local` sets this itself for each node: remove the flag",
        ),
        ("status --jsn x", "status: --jsn: no such flag: did you mean --json? See paddle-launcher status --help"),
        ("status --js", "status: --js: no such flag: did you mean --json? See paddle-launcher status --help"),
        ("status a b", "status: b: unexpected argument; see paddle-launcher status --help"),
        ("status -n", "status: -n/--namespace: expected a value; see paddle-launcher status --help"),
        ("status --watch --json x", "--json: cannot be used with --watch"),
        ("list -o yaml", "list: -o/--output: 'yaml': expected json or wide; see paddle-launcher list --help"),
        ("list -A -n x", "--namespace: cannot be used with --all-namespaces"),
        ("list x", "list: x: unexpected argument; see paddle-launcher list --help"),
        ("submit --watsh", "submit: --watsh: no such flag: did you mean --watch? See paddle-launcher submit --help"),
        ("submit -n x", "submit: expected FILE; see paddle-launcher submit --help"),
        ("delete", "delete: expected JOB; see paddle-launcher delete --help"),
        ("logs", "logs: expected JOB; see paddle-launcher logs --help"),
        (
            "logs job first",
            "logs: RANK: 'first': expected the number of a member, 0 or more; see paddle-launcher logs --help",
        ),
        ("logs --role x y", "logs: --role: 'x': expected trainer, pserver or heter; see paddle-launcher logs --help"),
        (
            "completion tcsh",
            "completion: SHELL: 'tcsh': expected bash, zsh or fish; see paddle-launcher completion --help",
        ),
        ("version --long", "version: --long: no such flag; see paddle-launcher version --help"),
    ],
    ids=lambda text: text.partition(":")[0],
)
def test_a_wrong_command_line_ends_with_64_and_a_message_that_says_what_is_right(line: str, told: str) -> None:
    ended = launcher(*line.split())
    assert (ended.returncode, ended.stdout, ended.stderr) == (Exit.USAGE, "", f"paddle-launcher: {told}\n")


@pytest.mark.parametrize("words", [["--help"], ["help"], ["-h"], []])
def test_help_shows_every_command_on_one_screen(words: list[str]) -> None:
    ended = launcher(*words)
    assert ended.returncode == (0 if words else Exit.USAGE)
    lines = ended.stdout.splitlines()
    assert len(lines) <= 23  # of 24, with a prompt after it
    assert max(map(len, lines)) < 80
    for command in COMMANDS:
        assert any(line.split()[:1] == [command.name] for line in lines)


@pytest.mark.parametrize("words", ["status --help", "help status", "status job -h"])
def test_help_of_one_command_explains_it(words: str) -> None:
    ended = launcher(*words.split())
    assert ended.returncode == 0
    for part in ("usage: paddle-launcher status", "--namespace NAME", "exit codes:\n  0 ", "examples:\n"):
        assert part in ended.stdout


def test_plan_shows_what_run_would_do_with_placeholders_for_the_peers() -> None:
    given = {"JOB_NAME": "j", "JOB_PATH": "/vol", "TRAIN_CONFIG_DIR": "conf", "CONF_PADDLE_GRADIENT_NUM": "3"}
    ended = launcher("plan", "--json", "--config=a b.py", **given, MY_PASSWORD="hunter2")
    assert ended.returncode == 0, ended.stderr
    plan = json.loads(ended.stdout)
    assert plan["rank"] is None
    assert [copy["source"] for copy in plan["copies"]] == ["/vol/j/conf", "/vol/j/<rank>/data"]
    assert plan["processes"][1]["argv"][-1] == "--config=a b.py"
    assert "hunter2" not in ended.stdout
    text = launcher("plan", "--config=a b.py", **given).stdout
    assert "'--config=a b.py'" in text


def test_plan_of_static_peers_has_no_placeholders() -> None:
    given = {"CONF_PADDLE_GRADIENT_NUM": "2", "LAUNCHER_PEERS": "10.0.0.1,10.0.0.2", "LAUNCHER_RANK": "1"}
    plan = json.loads(launcher("plan", "--json", **given).stdout)
    assert "--pservers=10.0.0.1,10.0.0.2" in plan["processes"][1]["argv"]
    assert "--trainer_id=1" in plan["processes"][1]["argv"]


def test_a_command_that_cannot_write_its_output_fails() -> None:
    command = [sys.executable, "-m", "launcher", "plan"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert ended.returncode == Exit.CANNOT_WRITE
    assert ended.stderr == "paddle-launcher: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_changes_neither_the_exit_code_nor_the_log(closed: str, tmp_path: Path) -> None:
    run = f'"{sys.executable}" -m launcher run -- sh -c "echo said; exit 3" {closed}'
    ended = subprocess.run(
        ["sh", "-c", run],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    assert "said\n" in (tmp_path / "output" / "node_0" / "train.log").read_text()


def test_local_explains_that_the_machine_does_not_allow_network_namespaces(tmp_path: Path) -> None:
    """The test runs in a user namespace that allows no other namespaces."""
    limits = "".join(f"echo 0 > /proc/sys/user/max_{kind}_namespaces && " for kind in ("user", "net"))
    inside = f'{limits} exec "{sys.executable}" -m launcher local --nodes 2 -- true'
    command = ["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", inside]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == Exit.CONFIG
    assert ended.stderr.startswith("paddle-launcher: cannot create a network for the nodes: ")
    assert "Traceback" not in ended.stderr


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_status_without_arguments_shows_the_job_of_this_pod(tmp_path: Path) -> None:
    _write(tmp_path / "a-job" / "output" / "job.json", {"members": [{"rank": 0, "pod": "pod-a"}], "generations": []})
    in_pod = launcher("status", JOB_PATH=str(tmp_path), JOB_NAME="a-job")
    without_volume = launcher("status", LAUNCHER_WORKDIR=str(tmp_path / "a-job"))
    for ended in (in_pod, without_volume):
        assert (ended.returncode, ended.stderr) == (0, "")
        assert "pod-a" in ended.stdout


def test_status_without_arguments_and_without_a_cluster_shows_how_to_name_a_job(tmp_path: Path) -> None:
    ended = launcher("status", HOME=str(tmp_path), LAUNCHER_WORKDIR=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (Exit.USAGE, "")
    for part in ("no job is named", "paddle-launcher status /volume/quick-start", "paddle-launcher list"):
        assert part in ended.stderr


def test_status_shows_only_members_of_this_run_even_without_a_status_file(tmp_path: Path) -> None:
    job = {"started": "2026-01-02T00:00:00Z", "members": [{"pod": "pod-0"}, {"pod": "pod-1"}]}
    _write(tmp_path / "output" / "job.json", job)
    for rank, since in enumerate(["2026-01-02T00:00:01Z", None, "2026-01-01T00:00:00Z"]):
        if since:
            _write(tmp_path / "output" / f"node_{rank}" / "status.json", {"rank": rank, "phase": "x", "since": since})
    members = json.loads(launcher("status", "--json", str(tmp_path)).stdout)["members"]
    assert [(member["rank"], member["phase"]) for member in members] == [(0, "x"), (1, "no status")]


@pytest.mark.parametrize("member", [{"rank": 0, "first_cause": "x"}, [1], {"pod": "\x1b[2J\n"}])
@pytest.mark.parametrize("job", [{"members": "abc"}, {"members": [5]}, [1]])
def test_status_names_malformed_files_and_shows_a_row(member: object, job: object, tmp_path: Path) -> None:
    for path, content in ((tmp_path / "output/job.json", job), (tmp_path / "output/node_0/status.json", member)):
        _write(path, content)
    ended = launcher("status", str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[1].startswith(("0 ", "- "))
    assert f"{tmp_path}/output/job.json cannot be used: " in ended.stdout
    assert "\x1b" not in ended.stdout


def test_the_signal_handlers_are_installed_before_other_modules_are_imported() -> None:
    """The kernel drops a SIGTERM to process 1 without a handler, so a handler must exist during the imports."""
    script = (
        "import os, signal, sys; before = set(sys.modules); import launcher.__main__ as m; "
        "os.kill(os.getpid(), signal.SIGTERM); print(m.received, sorted(set(sys.modules) - before))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == f"[{int(signal.SIGTERM)}] ['launcher', 'launcher.__main__']\n"


def test_a_program_that_comes_with_the_configuration_is_found_where_it_is_copied_to(tmp_path: Path) -> None:
    job, work = tmp_path / "volume" / "job", tmp_path / "work"
    for folder in (job / "source", job / "0" / "data", work):
        folder.mkdir(parents=True)
    (job / "0" / "data" / "train.txt").write_text("1")
    program = job / "source" / "train.sh"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    ended = launcher(
        *("run", "--", "./train.sh"),
        JOB_NAME="job",
        JOB_PATH=str(tmp_path / "volume"),
        TRAIN_CONFIG_DIR="source",
        CONF_PADDLE_GRADIENT_NUM="1",
        LAUNCHER_WORKDIR=str(work),
    )
    assert (ended.returncode, ended.stdout) == (0, "here\n"), ended.stderr


def test_as_process_1_the_launcher_runs_any_program_that_the_image_can_run() -> None:
    """This is how users submit a job: `docker run IMAGE python /example/train.py`."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork", sys.executable, "-m", "launcher"]
    done = subprocess.run([*alone, "sh", "-c", "echo it is $$; exit 3"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (3, "it is 1\n")
    assert launcher("sh", "-c", "exit 3").returncode == Exit.USAGE
