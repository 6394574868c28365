"""Paddle 2.x and 3.x: the variables of servers and trainers in each mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from launcher import config, paddle
from launcher.base.host import visible_gpus
from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.model import FIRST, Member, Plan, Roster, Saves, Start
from launcher.run.join import copies

COMMAND = ("python", "train.py", "--passes=3")
GIVEN = {"JOB_NAME": "job", "CONF_PADDLE_GRADIENT_NUM": "3", "LAUNCHER_WORKDIR": "/workdir", "PATH": "/bin"}


def job(**variables: str) -> JobConfig:
    return config.read(GIVEN | variables, {}, check_here=False)


def roster(*trainers: int) -> Roster:
    return Roster(
        tuple(
            Member(f"pod-{rank}", f"uid-{rank}", f"10.0.0.{rank}", f"10.1.0.{rank}", rank, trainers=count)
            for rank, count in enumerate(trainers or (1, 1, 1))
        )
    )


def plan(rank: int = 1, members: Roster | None = None, **variables: str) -> Plan:
    return paddle.plan(job(**variables), (), COMMAND, members or roster(), rank)


def chosen(environment: Mapping[str, str], *names: str) -> dict[str, str | None]:
    return {name: environment.get(name) for name in names}


@pytest.mark.parametrize(
    ("variables", "command", "expected"),
    [
        ({}, (), "v0"),
        ({}, COMMAND, "collective"),
        ({"LAUNCHER_PSERVERS": "2"}, COMMAND, "ps"),
        ({"LAUNCHER_PSERVERS": "0"}, COMMAND, "collective"),
        ({"CONF_PADDLE_GRADIENT_NUM": "1"}, COMMAND, "single"),
        ({"CONF_PADDLE_GRADIENT_NUM": "1", "LAUNCHER_TRAINERS_PER_NODE": "2"}, COMMAND, "collective"),
        ({"LAUNCHER_MODE": "ps"}, COMMAND, "ps"),
        ({"LAUNCHER_MODE": "collective", "LAUNCHER_PSERVERS": "2"}, COMMAND, "collective"),
    ],
)
def test_the_mode_follows_from_the_command_and_the_servers(
    variables: dict[str, str], command: tuple[str, ...], expected: str
) -> None:
    assert paddle.mode(job(**variables), command) == expected


@pytest.mark.parametrize(
    ("mode", "command", "named"),
    [("ps", (), "expected a command"), ("v0", COMMAND, "`paddle train`"), ("single", COMMAND, "train by itself")],
)
def test_a_mode_that_does_not_fit_is_a_usage_error(mode: str, command: tuple[str, ...], named: str) -> None:
    with pytest.raises(Failure, match=named) as caught:
        paddle.mode(job(LAUNCHER_MODE=mode), command)
    assert caught.value.code == Exit.USAGE


def test_mode_single_is_refused_for_several_trainers_in_a_pod() -> None:
    several = job(CONF_PADDLE_GRADIENT_NUM="1", LAUNCHER_TRAINERS_PER_NODE="2", LAUNCHER_MODE="single")
    with pytest.raises(Failure, match="each of the 2 trainers of the pod would train by itself"):
        paddle.mode(several, COMMAND)


def test_trainers_of_one_pod_connect_by_loopback() -> None:
    alone = job(CONF_PADDLE_GRADIENT_NUM="1", LAUNCHER_TRAINERS_PER_NODE="2")
    for trainer in paddle.plan(alone, (), COMMAND, None, 0).trainers:
        assert chosen(trainer.env, "GLOO_SOCKET_IFNAME", "PADDLE_DISTRI_BACKEND", "PADDLE_TRAINERS_NUM") == {
            "GLOO_SOCKET_IFNAME": "lo",
            "PADDLE_DISTRI_BACKEND": "gloo",
            "PADDLE_TRAINERS_NUM": "2",
        }


def test_each_trainer_of_a_pod_with_gpus_uses_one_of_them() -> None:
    with_gpus = replace(job(LAUNCHER_TRAINERS_PER_NODE="4"), gpus=2)
    made = paddle.plan(with_gpus, (), COMMAND, roster(4, 4, 4), 1)
    assert [trainer.env["FLAGS_selected_gpus"] for trainer in made.trainers] == ["0", "1", "0", "1"]
    assert "PADDLE_DISTRI_BACKEND" not in made.trainers[0].env


def test_an_empty_variable_counts_as_unset() -> None:
    (server,) = plan(LAUNCHER_MODE="ps", PADDLE_WITH_GLOO="", FLAGS_enable_pir_api="").servers
    expected = {"PADDLE_WITH_GLOO": "0", "FLAGS_enable_pir_api": "0"}
    assert chosen(server.env, *expected) == expected
    assert server.ports == (7164,)
    assert "PADDLE_GLOO_RENDEZVOUS" not in server.env
    assert plan(PADDLE_DISTRI_BACKEND="").trainers[0].env["PADDLE_DISTRI_BACKEND"] == "gloo"


def test_parameter_server_mode_without_servers_is_refused() -> None:
    with pytest.raises(Failure, match="LAUNCHER_PSERVERS: 0"):
        plan(LAUNCHER_MODE="ps", LAUNCHER_PSERVERS="0")


def test_servers_and_trainers_of_parameter_server_mode_have_their_role_and_all_endpoints() -> None:
    made = plan(LAUNCHER_MODE="ps")
    (server,), (trainer,) = made.servers, made.trainers
    assert server.argv == trainer.argv == COMMAND
    everywhere = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.0:7164,10.1.0.1:7164,10.1.0.2:7164",
        "PADDLE_TRAINER_ENDPOINTS": "10.1.0.0:7169,10.1.0.1:7169,10.1.0.2:7169",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_TRAINERS": "10.1.0.0,10.1.0.1,10.1.0.2",
        "PADDLE_WITH_GLOO": "0",
        "POD_IP": "10.1.0.1",
        "TRAINERS": "3",
    }
    assert chosen(server.env, *everywhere) == chosen(trainer.env, *everywhere) == everywhere
    roles = {"TRAINING_ROLE": "PSERVER", "PADDLE_TRAINING_ROLE": "PSERVER", "PADDLE_PORT": "7164"}
    assert chosen(server.env, *roles) == roles
    roles = {"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": "1", "TRAINER_ID": "1"}
    assert chosen(trainer.env, *roles) == roles
    assert server.ports == (7164,)
    assert not made.early


def test_fewer_servers_than_nodes_run_on_the_first_nodes() -> None:
    assert [len(plan(rank, LAUNCHER_PSERVERS="2").servers) for rank in range(3)] == [1, 1, 0]
    assert (
        plan(2, LAUNCHER_PSERVERS="2").trainers[0].env["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.1.0.0:7164,10.1.0.1:7164"
    )


ROLES = {"LAUNCHER_PSERVERS": "2", "LAUNCHER_SELECTOR": "app=j"}


def with_roles(trainers: int = 1) -> Roster:
    members = [
        Member(f"pod-{rank}", "", f"10.0.0.{rank}", f"10.1.0.{rank}", rank, "trainer", trainers) for rank in range(3)
    ]
    servers = [Member(f"ps-{rank}", "", f"10.0.0.{rank}", f"10.1.0.{rank}", rank, "pserver", 0) for rank in (3, 4)]
    return Roster((*members, *servers))


def test_a_pod_with_a_role_runs_only_that_and_has_its_number_within_the_role() -> None:
    served = plan(4, with_roles(), **ROLES, LAUNCHER_ROLE="pserver")
    trained = plan(2, with_roles(), **ROLES, LAUNCHER_ROLE="trainer")
    assert (len(served.servers), len(served.trainers)) == (1, 0)
    assert (len(trained.servers), len(trained.trainers)) == (0, 1)
    everywhere = {
        "PADDLE_PSERVERS_IP_PORT_LIST": "10.1.0.3:7164,10.1.0.4:7164",
        "PADDLE_TRAINER_ENDPOINTS": "10.1.0.0:7169,10.1.0.1:7169,10.1.0.2:7169",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_TRAINERS": "10.1.0.0,10.1.0.1,10.1.0.2",
        "no_proxy": "10.1.0.0,10.1.0.1,10.1.0.2,10.1.0.3,10.1.0.4,localhost,127.0.0.1",
    }
    server, trainer = served.servers[0].env, trained.trainers[0].env
    assert chosen(server, *everywhere) == chosen(trainer, *everywhere) == everywhere
    own = {"PADDLE_TRAINER_ID": "1", "POD_IP": "10.1.0.4", "PADDLE_CURRENT_ENDPOINT": "10.1.0.4:7164"}
    assert chosen(server, *own) == own
    own = {"PADDLE_TRAINER_ID": "2", "POD_IP": "10.1.0.2", "PADDLE_CURRENT_ENDPOINT": "10.1.0.2:7169"}
    assert chosen(trainer, *own) == own


def test_servers_take_the_number_of_trainers_from_the_trainers_nodes() -> None:
    (server,) = plan(3, with_roles(2), **ROLES, LAUNCHER_ROLE="pserver").servers
    assert chosen(server.env, "PADDLE_TRAINERS_NUM", "TRAINERS") == {"PADDLE_TRAINERS_NUM": "6", "TRAINERS": "6"}


def test_servers_get_the_configuration_and_no_shard() -> None:
    given = {**ROLES, "JOB_PATH": "/mnt", "TRAIN_CONFIG_DIR": "source"}
    assert [copy.what for copy in copies(job(**given, LAUNCHER_ROLE="pserver"), 3)] == ["configuration"]
    assert [copy.what for copy in copies(job(**given, LAUNCHER_ROLE="trainer"), 1)] == [
        "configuration",
        "shard of trainer 1",
    ]


def test_v0_has_no_roles() -> None:
    with pytest.raises(Failure, match="the launcher runs Paddle v0, which has no roles") as caught:
        paddle.mode(job(**ROLES, LAUNCHER_ROLE="trainer"), ())
    assert caught.value.code == Exit.USAGE


def test_before_the_peers_are_known_the_plan_has_the_processes_and_placeholders() -> None:
    for rank, servers in ((0, 1), (1, 1), (2, 0)):
        made = paddle.plan(job(LAUNCHER_PSERVERS="2"), (), COMMAND, None, rank)
        assert (len(made.servers), len(made.trainers)) == (servers, 1)
        listed = made.trainers[0].env["PADDLE_PSERVERS_IP_PORT_LIST"]
        assert listed == "<known once the gang is complete>:7164"


def test_with_gloo_on_servers_their_ports_are_not_awaited() -> None:
    (server,) = plan(LAUNCHER_MODE="ps", PADDLE_WITH_GLOO="2").servers
    assert server.ports == ()  # it listens only once all trainers have registered
    assert server.env["PADDLE_GLOO_RENDEZVOUS"] == "3"
    assert server.env["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.1.0.0:7165"


def test_trainers_of_collective_mode_have_the_address_of_the_first_trainer() -> None:
    made = plan(1)
    expected = {
        "PADDLE_TRAINER_ID": "1",
        "PADDLE_TRAINERS_NUM": "3",
        "PADDLE_CURRENT_ENDPOINT": "10.1.0.1:7169",
        "PADDLE_TRAINER_ENDPOINTS": "10.1.0.0:7169,10.1.0.1:7169,10.1.0.2:7169",
        "PADDLE_MASTER": "10.1.0.0:7169",
        "PADDLE_DISTRI_BACKEND": "gloo",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
    }
    assert chosen(made.trainers[0].env, *expected) == expected
    assert not made.servers
    assert not made.leads
    assert plan(0).leads
    assert plan(0).trainers[0].ports == (7169,)


def test_several_trainers_per_node_are_numbered_over_all_nodes() -> None:
    made = plan(1, roster(2, 2, 2), LAUNCHER_TRAINERS_PER_NODE="2")
    assert [trainer.env["PADDLE_TRAINER_ID"] for trainer in made.trainers] == ["2", "3"]
    assert [trainer.env["PADDLE_CURRENT_ENDPOINT"] for trainer in made.trainers] == ["10.1.0.1:7169", "10.1.0.1:7170"]
    assert [trainer.log for trainer in made.trainers] == ["train.log", "train_1.log"]
    assert [trainer.env["LAUNCHER_DATA_DIR"] for trainer in made.trainers] == ["/workdir/data_0", "/workdir/data_1"]
    assert made.trainers[0].env["TRAINERS"] == "6"
    config = job(LAUNCHER_TRAINERS_PER_NODE="2", JOB_PATH="/mnt")
    assert [copy.source for copy in copies(config, 1)] == ["/mnt/job/2/data", "/mnt/job/3/data"]


def test_another_number_of_trainers_on_another_node_is_refused() -> None:
    with pytest.raises(Failure, match=r"pod pod-2 \(rank 2\) runs 1 trainers, but this member runs 2"):
        plan(1, roster(2, 2, 1), LAUNCHER_TRAINERS_PER_NODE="2")


def test_a_job_of_one_has_no_variables_to_find_others() -> None:
    made = paddle.plan(job(CONF_PADDLE_GRADIENT_NUM="1"), (), COMMAND, None, 0)
    (trainer,) = made.trainers
    assert chosen(trainer.env, "TRAINER_ID", "TRAINERS", "PADDLE_TRAINERS_NUM", "PADDLE_MASTER") == {
        "TRAINER_ID": "0",
        "TRAINERS": "1",
        "PADDLE_TRAINERS_NUM": "1",
        "PADDLE_MASTER": None,
    }


def test_peers_are_reached_without_a_proxy() -> None:
    env = plan(HTTP_PROXY="http://proxy:3128", no_proxy="example.org").trainers[0].env
    assert env["no_proxy"].split(",") == ["example.org", "10.1.0.0", "10.1.0.1", "10.1.0.2", "localhost", "127.0.0.1"]
    assert env["NO_PROXY"].split(",")[:3] == ["10.1.0.0", "10.1.0.1", "10.1.0.2"]


def test_a_variable_of_the_user_is_kept_or_named_as_replaced() -> None:
    given = {"GLOO_SOCKET_IFNAME": "eth7", "PADDLE_TRAINERS_NUM": "9", "PADDLE_TRAINER_ID": "1"}
    made = plan(1, None, **given)
    assert made.trainers[0].env["GLOO_SOCKET_IFNAME"] == "eth7"
    assert paddle.overridden_variables(job(**given), made) == [
        "PADDLE_TRAINERS_NUM: '9' is replaced by '3' for the trainer"
    ]


def test_other_variables_of_the_user_reach_servers_and_trainers_unchanged() -> None:
    given = {
        "PADDLE_ALL_HETER_TRAINER_IP_PORT_LIST": "10.2.0.1:6200",
        "STAGE_ID": "1",
        "STAGE_NUM": "2",
        "PADDLE_STAGE_TRAINERS_NUM": "[3,1]",
        "HETER_DEVICE_TYPE": "gpu",
    }
    made = plan(1, None, LAUNCHER_MODE="ps", **given)
    for process in (*made.servers, *made.trainers):
        assert chosen(process.env, *given) == given
    assert paddle.overridden_variables(job(**given), made) == []


def test_programs_get_the_folders_of_their_data_and_their_output() -> None:
    env = plan(JOB_PATH="/mnt").trainers[0].env
    assert chosen(env, "LAUNCHER_WORKDIR", "LAUNCHER_DATA_DIR", "LAUNCHER_SAVE_DIR") == {
        "LAUNCHER_WORKDIR": "/workdir",
        "LAUNCHER_DATA_DIR": "/workdir/data",
        "LAUNCHER_SAVE_DIR": "/mnt/job/output",
    }


def test_the_exit_code_behind_paddles_own_launcher_is_found() -> None:
    tail = (
        "LAUNCH ERROR Container failed !!!",
        "Container rank 0 status failed cmd ['python'] code 3 log log/workerlog.0",
    )
    assert paddle.program_exit_code(241, tail) == 3
    assert paddle.program_exit_code(247, ("Container rank 1 status failed cmd ['python'] code -9 log x",)) == 137
    assert paddle.program_exit_code(5, ("something else",)) == 5


@pytest.mark.parametrize(("listed", "count"), [("0,1,3", 3), ("", 0), ("-1", 0), (None, 2)])
def test_visible_gpus_are_those_listed_or_those_of_the_container(
    listed: str | None, count: int, tmp_path: Path
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "null"):
        (tmp_path / name).touch()
    assert visible_gpus({} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}, str(tmp_path)) == count


@pytest.mark.parametrize(
    ("start", "generation", "folder"),
    [
        (FIRST, "0", ""),
        (Start(2, None), "2", ""),
        (Start(3, 0), "3", "/mnt/job/output/pass-00000"),
        (Start(12, 41), "12", "/mnt/job/output/pass-00041"),
    ],
)
@pytest.mark.parametrize(
    "variables", [{"LAUNCHER_MODE": "ps"}, {"LAUNCHER_MODE": "collective"}, {"CONF_PADDLE_GRADIENT_NUM": "1"}]
)
def test_servers_and_trainers_get_their_generation_and_the_pass_to_resume_from(
    variables: dict[str, str], start: Start, generation: str, folder: str
) -> None:
    """Even if another launcher has started this one, with its own variables."""
    given = job(JOB_PATH="/mnt", LAUNCHER_GENERATION="99", LAUNCHER_RESUME_DIR="/of/another", **variables)
    alone = given.members == 1
    made = paddle.plan(given, (), COMMAND, None if alone else roster(), 0 if alone else 1, start)
    assert len(made.servers) == (variables.get("LAUNCHER_MODE") == "ps")
    for process in (*made.servers, *made.trainers):
        expected = {"LAUNCHER_GENERATION": generation, "LAUNCHER_RESUME_DIR": folder}
        assert chosen(process.env, *expected) == expected
        assert process.argv == COMMAND


@pytest.mark.parametrize(("role", "rank"), [("pserver", 4), ("trainer", 2)])
def test_a_pod_with_a_role_gets_the_pass_to_resume_from(role: str, rank: int) -> None:
    given = job(JOB_PATH="/mnt", **ROLES, LAUNCHER_ROLE=role)
    made = paddle.plan(given, (), COMMAND, with_roles(), rank, Start(1, 5))
    (process,) = (*made.servers, *made.trainers)
    assert process.env["LAUNCHER_RESUME_DIR"] == "/mnt/job/output/pass-00005"


def test_passes_are_saved_in_the_output_folder_of_a_volume() -> None:
    given = job(JOB_PATH="/mnt")
    made = paddle.saves(given, (), COMMAND)
    assert made is not None
    assert replace(made, named=()) == Saves("/mnt/job/output")
    assert made.folder == plan(JOB_PATH="/mnt").trainers[0].env["LAUNCHER_SAVE_DIR"]
    assert paddle.saves(job(), (), COMMAND) is None
