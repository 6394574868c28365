"""`-- python -m paddle.distributed.launch train.py`: Paddle's own launcher, started by this one."""

from __future__ import annotations

import pytest

from launcher import config, paddle
from launcher.config import JobConfig
from launcher.errors import Exit, Failure

NESTED = ("python", "-m", "paddle.distributed.launch")
FAILED = "Container rank 1 status failed cmd ['python', '-u', 'train.py', '1'] code {} log log/workerlog.1"


def job(**variables: str) -> JobConfig:
    given = {"JOB_NAME": "job", "CONF_PADDLE_GRADIENT_NUM": "2", "LAUNCHER_WORKDIR": "/work", **variables}
    return config.read(given, {}, check_here=False)


def refused(command: tuple[str, ...], **variables: str) -> str:
    with pytest.raises(Failure) as failure:
        paddle.plan(job(**variables), (), command, None, 0)
    assert failure.value.code == Exit.USAGE
    return failure.value.message


@pytest.mark.parametrize("own", [(), ("--nproc_per_node", "2"), ("--run_mode", "collective"), ("--log_dir=/tmp/log",)])
def test_a_collective_job_may_be_launched_by_paddle(own: tuple[str, ...]) -> None:
    command = (*NESTED, *own, "train.py", "--servers=mine")
    assert [process.argv for process in paddle.plan(job(), (), command, None, 0).trainers] == [command]


def test_only_one_of_the_two_launchers_may_start_several_trainers() -> None:
    assert "--nproc_per_node=2" in refused((*NESTED, "train.py"), LAUNCHER_TRAINERS_PER_NODE="2")


@pytest.mark.parametrize(
    "command",
    [
        (*NESTED, "--server_num=1", "--trainer_num=1", "train.py"),
        ("/usr/bin/fleetrun", "--servers", "10.0.0.1:7164", "train.py"),
        (*NESTED, "--run_mode", "ps", "train.py"),
    ],
)
def test_paddles_launcher_may_not_start_servers(command: tuple[str, ...]) -> None:
    assert "LAUNCHER_MODE=ps" in refused(command)


@pytest.mark.parametrize("name", ["PADDLE_SERVER_NUM", "PADDLE_TRAINER_NUM", "PADDLE_SERVERS_ENDPOINTS"])
def test_paddles_launcher_may_not_start_servers_because_of_variables(name: str) -> None:
    assert refused((*NESTED, "train.py"), **{name: "1"}).startswith(f"{name}: ")
    assert refused((*NESTED, "train.py"), PADDLE_RUN_MODE="ps").startswith("PADDLE_RUN_MODE: ")
    assert paddle.plan(job(PADDLE_RUN_MODE="collective", **{name: ""}), (), (*NESTED, "train.py"), None, 0).trainers


def test_a_parameter_server_job_runs_the_program_itself() -> None:
    assert "expected only the training program" in refused((*NESTED, "train.py"), LAUNCHER_MODE="ps")


@pytest.mark.parametrize(("logged", "code"), [("3", 3), ("-9", 137), ("-6", 134)])
def test_the_code_is_that_of_the_worker_that_failed(logged: str, code: int) -> None:
    assert paddle.program_exit_code(241, ("before", FAILED.format(logged), "LAUNCH INFO Exit code -15")) == code


def test_the_last_failure_counts_where_workers_were_started_again() -> None:
    assert paddle.program_exit_code(241, (FAILED.format("7"), FAILED.format("3"))) == 3


def test_any_other_program_keeps_its_code() -> None:
    assert paddle.program_exit_code(5, ("message: Container rank 0 status failed code 3",)) == 5


def test_the_environment_of_a_failed_worker_is_not_shown() -> None:
    shown = paddle.hide_environment((FAILED.format("3"), "env {'PATH': '/bin', 'TOKEN': 'hush'}", "last line"))
    assert shown == (FAILED.format("3"), "last line")
