"""Heter workers: the variables of each role, and the stages that the members have sent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from launcher import config, paddle
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import Member, Plan, Roster
from launcher.run.join import copies

COMMAND = ("python", "train.py")
GIVEN = {
    "JOB_NAME": "job",
    "CONF_PADDLE_GRADIENT_NUM": "2",
    "LAUNCHER_WORKDIR": "/workdir",
    "PATH": "/bin",
    "LAUNCHER_PSERVERS": "1",
    "LAUNCHER_HETERS": "3",
    "LAUNCHER_SELECTOR": "app=j",
}
STAGES = (2, 2, 3)
TRAINERS = "10.1.0.0:7169,10.1.0.1:7169"
SECOND, THIRD = "10.1.0.3:7164,10.1.0.4:7164", "10.1.0.5:7164"


def job(role: str, **variables: str) -> JobConfig:
    return config.read({**GIVEN, "LAUNCHER_ROLE": role, **variables}, {}, check_here=False)


def roster(*stages: int) -> Roster:
    """Return two trainers, one server, and heter workers for these stages."""
    roles = [("trainer", 0), ("trainer", 0), ("pserver", 0), *(("heter", stage) for stage in stages)]
    return Roster(
        tuple(
            Member(f"pod-{rank}", "", f"10.0.0.{rank}", f"10.1.0.{rank}", rank, role, int(role == "trainer"), "", stage)
            for rank, (role, stage) in enumerate(roles)
        )
    )


def plan(rank: int, role: str, stages: tuple[int, ...] = STAGES, **variables: str) -> Plan:
    return paddle.plan(job(role, **variables), (), COMMAND, roster(*stages), rank)


def chosen(environment: Mapping[str, str], expected: Mapping[str, str]) -> dict[str, str | None]:
    return {name: environment.get(name) for name in expected}


def test_all_roles_get_the_endpoints_of_all_roles_and_the_number_of_workers_of_each_stage() -> None:
    server = plan(2, "pserver").servers[0]
    trainer = plan(1, "trainer").trainers[0]
    worker = plan(5, "heter").servers[0]
    everywhere = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.2:7164",
        "PADDLE_TRAINER_ENDPOINTS": TRAINERS,
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": f"{SECOND},{THIRD}",
        "PADDLE_STAGE_TRAINERS_NUM": "[2, 2, 1]",
        "STAGE_NUM": "3",
        "PADDLE_WITH_GLOO": "0",
    }
    for process in (server, trainer, worker):
        assert chosen(process.env, everywhere) == everywhere


def test_a_trainer_is_the_first_stage_and_knows_the_second() -> None:
    own = {
        "TRAINING_ROLE": "TRAINER",
        "STAGE_ID": "1",
        "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": "",
        "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": SECOND,
        "PADDLE_TRAINER_ID": "1",
    }
    assert chosen(plan(1, "trainer").trainers[0].env, own) == own


@pytest.mark.parametrize(
    ("rank", "stage", "before", "after"), [(3, "2", TRAINERS, THIRD), (4, "2", TRAINERS, THIRD), (5, "3", SECOND, "")]
)
def test_a_heter_worker_knows_the_stages_before_and_after_it(rank: int, stage: str, before: str, after: str) -> None:
    made = plan(rank, "heter")
    (worker,) = made.servers
    own = {
        "TRAINING_ROLE": "HETER_TRAINER",
        "PADDLE_TRAINING_ROLE": "HETER_TRAINER",
        "HETER_DEVICE_TYPE": "cpu",
        "STAGE_ID": stage,
        "PADDLE_PREVIOUS_HETER_TRAINER_IP_PORT_LIST": before,
        "PADDLE_NEXT_HETER_TRAINER_IP_PORT_LIST": after,
        "POD_IP": f"10.1.0.{rank}",
        "PADDLE_PORT": "7164",
    }
    assert chosen(worker.env, own) == own
    assert "PADDLE_TRAINER_ID" not in worker.env  # Paddle computes it from the endpoint
    assert (worker.role, worker.log, worker.ports) == ("heter", "heter.log", (7164,))
    assert not made.trainers


def test_the_device_of_a_heter_worker_is_the_users_choice() -> None:
    assert plan(3, "heter", HETER_DEVICE_TYPE="gpu").servers[0].env["HETER_DEVICE_TYPE"] == "gpu"


@pytest.mark.parametrize("role", ["trainer", "pserver", "heter"])
def test_a_stage_without_a_worker_is_named(role: str) -> None:
    rank = {"trainer": 0, "pserver": 2, "heter": 3}[role]
    with pytest.raises(Failure, match="stage 4 has a heter worker, but stage 3 has none") as caught:
        plan(rank, role, (2, 4, 4))
    assert caught.value.code == Exit.CONFIG


def test_without_peers_the_plan_has_placeholders() -> None:
    made = paddle.plan(job("heter"), (), COMMAND, None, None)
    assert made.servers[0].env["PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"] == "<known once the gang is complete>:7164"


def test_a_job_without_heter_workers_gets_none_of_these_variables() -> None:
    members = roster().members
    made = paddle.plan(job("trainer", LAUNCHER_HETERS="0"), (), COMMAND, Roster(members), 0)
    assert {"STAGE_ID", "STAGE_NUM", "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST"}.isdisjoint(made.trainers[0].env)


def test_heter_workers_get_the_configuration_and_no_shard() -> None:
    given = {"JOB_PATH": "/mnt", "TRAIN_CONFIG_DIR": "source"}
    assert [copy.what for copy in copies(job("heter", **given), 3)] == ["configuration"]
