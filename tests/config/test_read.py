"""Variables: their defaults, which values are refused, and the messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launcher import config
from launcher.config import VARIABLES
from launcher.errors import ConfigProblems, Exit
from tests.support.environments import SEED_001
from tests.support.paths import REPOSITORY


def read(environment: dict[str, str], **own: str) -> config.JobConfig:
    return config.read(environment, own, check_here=False)


def problems(environment: dict[str, str], **own: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        config.read(environment, own, check_here=False)
    assert caught.value.code == Exit.CONFIG
    return caught.value.problems


def test_the_environment_of_the_2016_manifests_is_enough() -> None:
    job = read(SEED_001)
    assert (job.members, job.nic, job.port, job.ports_num, job.ports_num_sparse) == (3, "eth0", 7164, 2, 2)
    assert (job.discovery.method, job.discovery.selector, job.gang.port) == (
        "kubernetes",
        "job-name=paddle-cluster-job",
        7168,
    )
    assert job.output == "/home/jobpath/paddle-cluster-job/output"


def test_missing_variables_have_the_defaults_of_the_2016_manifests() -> None:
    job = read({"JOB_NAME": "j", "JOB_PATH": "/vol", "CONF_PADDLE_GRADIENT_NUM": "2"})
    assert (job.nic, job.port, job.ports_num, job.ports_num_sparse, job.trainer_count) == ("eth0", 7164, 2, 2, None)
    assert (job.discovery.timeout, job.stop_grace, job.discovery.namespace) == (900, 20, "default")


def test_without_a_name_and_discovery_there_is_one_member() -> None:
    job = read({"LAUNCHER_WORKDIR": "/root"})
    assert (job.members, job.job_folder, job.output) == (1, None, "/root/output")


@pytest.mark.parametrize(
    "given", [{"JOB_NAME": "j"}, {"LAUNCHER_PEERS": "10.0.0.1,10.0.0.2"}, {"LAUNCHER_SERVICE": "s"}]
)
def test_the_number_of_nodes_has_no_default_if_a_job_or_peers_are_named(given: dict[str, str]) -> None:
    assert any(line.startswith("CONF_PADDLE_GRADIENT_NUM: unset: expected") for line in problems(given))


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        (
            {"LWS_GROUP_SIZE": "2"},
            "LWS_GROUP_SIZE: '2': LeaderWorkerSet runs 2 pods, but each of them would train",
        ),
        ({"PET_NNODES": "3"}, "PET_NNODES: '3': Kubeflow Trainer runs 3 pods, but each of them would train alone"),
        ({"PET_NNODES": "1:4"}, "PET_NNODES: '1:4': Kubeflow Trainer runs 4 pods, but"),
    ],
)
def test_pods_of_another_controller_do_not_train_alone_without_a_word(given: dict[str, str], begins: str) -> None:
    (problem,) = problems(given)
    assert problem.startswith(begins)
    count = begins.split(" runs ")[1][0]
    assert f"set CONF_PADDLE_GRADIENT_NUM={count}, LAUNCHER_" in problem
    assert problem.endswith("or CONF_PADDLE_GRADIENT_NUM=1 if each is to train alone")


@pytest.mark.parametrize(
    "given",
    [
        {"LWS_GROUP_SIZE": "1"},
        {"PET_NNODES": "auto"},
        {"LWS_GROUP_SIZE": "2", "CONF_PADDLE_GRADIENT_NUM": "1"},
        {"PET_NNODES": "2", "CONF_PADDLE_GRADIENT_NUM": "2", "LAUNCHER_SERVICE": "job"},
    ],
)
def test_other_controllers_are_no_problem_if_there_is_one_pod_or_the_number_is_set(given: dict[str, str]) -> None:
    assert read(given).members == int(given.get("CONF_PADDLE_GRADIENT_NUM", 1))


def test_all_problems_are_reported_at_once_with_variable_value_and_expectation() -> None:
    wrong = {
        **SEED_001,
        "CONF_PADDLE_PORT": "http",
        "CONF_PADDLE_PORTS_NUM": "-1",
        "CONF_PADDLE_GRADIENT_NUM": "three",
        "JOB_PATH": "relative/path",
        "LAUNCHER_PEER_TIMEOUT": "15m",
        "LAUNCHER_DISCOVERY": "etcd",
    }
    lines = problems(wrong)
    assert len(lines) == 6
    for line in lines:
        assert re.fullmatch(r"[A-Z_]+: '.*': expected .+", line)
    assert {line.split(":")[0] for line in lines} == set(wrong) - (set(SEED_001) - {
        "CONF_PADDLE_PORT", "CONF_PADDLE_PORTS_NUM", "CONF_PADDLE_GRADIENT_NUM", "JOB_PATH"
    })  # fmt: skip


@pytest.mark.parametrize(
    ("given", "discovery"),
    [
        ({"LAUNCHER_PEERS": "a,b,c"}, "static"),
        ({"LAUNCHER_SERVICE": "workers"}, "dns"),
        ({"LAUNCHER_SELECTOR": "app=x"}, "kubernetes"),
        ({"LAUNCHER_SERVICE": "workers", "LAUNCHER_DISCOVERY": "kubernetes"}, "kubernetes"),
        ({}, "kubernetes"),
    ],
)
def test_discovery_follows_from_the_other_variables(given: dict[str, str], discovery: str) -> None:
    assert read({**SEED_001, **given}).discovery.method == discovery


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ({"LAUNCHER_PEERS": "10.0.0.1,10.0.0.2"}, "LAUNCHER_PEERS: '10.0.0.1,10.0.0.2': expected 3 addresses"),
        (
            {"LAUNCHER_PEERS": "10.0.0.1,10.0.0.2,10.0.0.1"},
            "LAUNCHER_PEERS: '10.0.0.1,10.0.0.2,10.0.0.1': expected each",
        ),
        ({"LAUNCHER_DISCOVERY": "dns"}, "LAUNCHER_SERVICE: unset"),
        ({"LAUNCHER_DISCOVERY": "static"}, "LAUNCHER_PEERS: unset"),
        ({"LAUNCHER_RANK": "3"}, "LAUNCHER_RANK: '3': expected 0 to 2"),
        ({"JOB_COMPLETION_INDEX": "7"}, "JOB_COMPLETION_INDEX: '7': expected 0 to 2"),
        ({"LAUNCHER_GANG_PORT": "7166"}, "LAUNCHER_GANG_PORT: 7166: expected a port that is not one of"),
        ({"CONF_PADDLE_PORT": "65534"}, "CONF_PADDLE_PORT: 65534: expected all ports"),
        ({"TRAIN_CONFIG_DIR": "."}, "TRAIN_CONFIG_DIR: '.': expected a folder in"),
        ({"TRAIN_CONFIG_DIR": "../other"}, "TRAIN_CONFIG_DIR: '../other': expected a folder in"),
        ({"JOB_NAME": "a/b"}, "JOB_NAME: 'a/b': expected a name without /"),
        ({"JOB_NAME": ""}, "JOB_NAME: unset"),
    ],
)
def test_contradictions_name_the_variable_to_change(given: dict[str, str], begins: str) -> None:
    assert [line for line in problems({**SEED_001, **given}) if line.startswith(begins)]


ROLES = {**SEED_001, "LAUNCHER_ROLE": "pserver", "LAUNCHER_PSERVERS": "2", "LAUNCHER_SELECTOR": "app=j"}


def test_with_roles_the_servers_follow_the_trainers_and_numbers_are_within_a_role() -> None:
    peers = {"LAUNCHER_PEERS": "pserver=10.0.0.4, 10.0.0.5; trainer=10.0.0.1,10.0.0.2,10.0.0.3"}
    job = read({**ROLES, **peers, "JOB_COMPLETION_INDEX": "1"})
    assert (job.members, job.discovery.rank, job.role) == (5, 4, "pserver")
    assert job.discovery.peers == ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5")
    assert read({**ROLES, **peers, "LAUNCHER_ROLE": "trainer", "LAUNCHER_RANK": "1"}).discovery.rank == 1


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ({"LAUNCHER_PSERVERS": ""}, "LAUNCHER_PSERVERS: unset: expected the number of pservers"),
        ({"LAUNCHER_PSERVERS": "0"}, "LAUNCHER_PSERVERS: 0: expected the number of pservers"),
        ({"LAUNCHER_MODE": "collective"}, "LAUNCHER_MODE: 'collective': expected ps"),
        ({"JOB_COMPLETION_INDEX": "2"}, "JOB_COMPLETION_INDEX: '2': expected 0 to 1, since LAUNCHER_PSERVERS is 2"),
        ({"LAUNCHER_PEERS": "a,b,c"}, "LAUNCHER_PEERS: 'a,b,c': expected trainer=ADDRESSES;pserver=ADDRESSES"),
        ({"LAUNCHER_PEERS": "trainer=a,b,c"}, "LAUNCHER_PEERS: 'trainer=a,b,c': expected addresses"),
        (
            {"LAUNCHER_PEERS": "trainer=a,b,c;pserver=d"},
            "LAUNCHER_PEERS: 'trainer=a,b,c;pserver=d': expected 2 addresses of the role pserver (LAUNCHER_PSERVERS)",
        ),
        ({"LAUNCHER_SERVICE": "paddle"}, "LAUNCHER_SERVICE: 'paddle': expected trainer=NAME.SERVICE"),
        (
            {"LAUNCHER_ROLE": "", "LAUNCHER_SERVICE": "trainer=worker.paddle"},
            "LAUNCHER_SERVICE: 'trainer=worker.paddle': expected",
        ),
        ({"LAUNCHER_SELECTOR": ""}, "LAUNCHER_SELECTOR: unset: expected labels that the pods of all roles have"),
        ({"LAUNCHER_ROLE": "worker"}, "LAUNCHER_ROLE: 'worker': expected trainer, pserver or heter"),
    ],
)
def test_contradictions_of_roles_name_the_variable_to_change(given: dict[str, str], begins: str) -> None:
    assert [line for line in problems({**ROLES, **given}) if line.startswith(begins)]


HETERS = {**ROLES, "LAUNCHER_ROLE": "heter", "LAUNCHER_HETERS": "3"}


def test_heter_workers_follow_the_servers() -> None:
    peers = {"LAUNCHER_PEERS": "heter=h,i,j;trainer=a,b,c;pserver=d,e"}
    job = read({**HETERS, **peers, "JOB_COMPLETION_INDEX": "2", "LAUNCHER_STAGE": "2,3,3"})
    assert (job.members, job.discovery.rank, job.role) == (8, 7, "heter")
    assert job.discovery.peers == ("a", "b", "c", "d", "e", "h", "i", "j")
    assert [job.stage(number) for number in range(3)] == [2, 3, 3]
    assert [read(HETERS).stage(number) for number in range(3)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("given", "begins"),
    [
        ({"LAUNCHER_HETERS": ""}, "LAUNCHER_HETERS: 0: expected the number of heter workers"),
        ({"LAUNCHER_ROLE": ""}, "LAUNCHER_HETERS: 3: expected LAUNCHER_ROLE in all pods, trainer, pserver or heter"),
        ({"LAUNCHER_STAGE": "1"}, "LAUNCHER_STAGE: '1': expected a number, 2 or more"),
        ({"LAUNCHER_STAGE": "2,3"}, "LAUNCHER_STAGE: '2,3': expected one stage, or 3 stages"),
        ({"JOB_COMPLETION_INDEX": "3"}, "JOB_COMPLETION_INDEX: '3': expected 0 to 2, since LAUNCHER_HETERS is 3"),
        (
            {"LAUNCHER_PEERS": "trainer=a,b,c;pserver=d,e"},
            "LAUNCHER_PEERS: 'trainer=a,b,c;pserver=d,e': expected heter=",
        ),
        (
            {"LAUNCHER_PEERS": "trainer=a,b,c;pserver=d,e;heter=f"},
            "LAUNCHER_PEERS: 'trainer=a,b,c;pserver=d,e;heter=f': expected 3 addresses of the role heter "
            "(LAUNCHER_HETERS)",
        ),
    ],
)
def test_contradictions_of_heter_workers_name_the_variable_to_change(given: dict[str, str], begins: str) -> None:
    assert [line for line in problems({**HETERS, **given}) if line.startswith(begins)]


def test_with_roles_there_may_be_more_servers_than_trainers() -> None:
    assert read({**ROLES, "LAUNCHER_PSERVERS": "7"}).members == 10


def test_a_job_with_roles_always_has_peers() -> None:
    one = {"LAUNCHER_ROLE": "trainer", "LAUNCHER_PSERVERS": "1", "CONF_PADDLE_GRADIENT_NUM": "1"}
    assert any(line.startswith("LAUNCHER_SELECTOR: unset") for line in problems(one))
    assert read({**one, "JOB_NAME": "j", "LAUNCHER_SELECTOR": "app=j"}).members == 2


def test_an_empty_value_counts_as_unset() -> None:
    assert read({**SEED_001, "CONF_PADDLE_NIC": "", "LAUNCHER_SERVICE": ""}).nic == "eth0"


def test_a_flag_of_the_launcher_overrides_the_variable() -> None:
    assert read({**SEED_001, "LAUNCHER_PEER_TIMEOUT": "900"}, LAUNCHER_PEER_TIMEOUT="5").discovery.timeout == 5


def test_the_index_of_an_indexed_job_is_the_rank() -> None:
    assert read({**SEED_001, "JOB_COMPLETION_INDEX": "2"}).discovery.rank == 2


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("LAUNCHER_PEER_TIMOUT", "LAUNCHER_PEER_TIMEOUT"),
        ("TRAINER_COUNTS", "TRAINER_COUNT"),
        ("POD_NAEM", "POD_NAME"),
        ("CONF_PADDLE_PORT_NUM", "CONF_PADDLE_PORTS_NUM"),
    ],
)
def test_a_misspelt_variable_is_warned_about(wrong: str, right: str) -> None:
    given = {name: value for name, value in SEED_001.items() if name != right}
    (warning,) = read({**given, wrong: "2"}).warnings
    assert wrong in warning
    assert right in warning


def test_a_misspelt_variable_is_warned_about_beside_the_problems() -> None:
    given = {name: value for name, value in SEED_001.items() if name != "CONF_PADDLE_GRADIENT_NUM"}
    with pytest.raises(ConfigProblems) as caught:
        read({**given, "CONF_PADDLE_GRADIENT_NUN": "3", "LAUNCHER_SILENCE": "long"})
    assert len(caught.value.problems) == 2
    *problems, warning = caught.value.message.splitlines()
    assert problems == caught.value.problems
    assert warning.startswith("warning: CONF_PADDLE_GRADIENT_NUN is ignored")
    assert warning.endswith("did you mean CONF_PADDLE_GRADIENT_NUM?")


def test_variables_that_kubernetes_sets_for_a_service_called_launcher_are_no_problem() -> None:
    injected = {
        "LAUNCHER_SERVICE_HOST": "10.96.0.7",
        "LAUNCHER_SERVICE_PORT": "7168",
        "LAUNCHER_PORT": "tcp://10.96.0.7:7168",
        "LAUNCHER_PORT_7168_TCP_ADDR": "10.96.0.7",
    }
    assert read({**SEED_001, **injected}).warnings == ()


def test_this_pod_is_checked_together_with_the_variables(tmp_path: Path) -> None:
    here = {**SEED_001, "CONF_PADDLE_NIC": "nosuch0", "LAUNCHER_WORKDIR": str(tmp_path / "none"), "PATH": str(tmp_path)}
    with pytest.raises(ConfigProblems) as caught:
        config.read(here, {}, programs=("paddle",))
    named = {line.split(":")[0] for line in caught.value.problems}
    assert caught.value.code == Exit.CONFIG
    assert named == {"CONF_PADDLE_NIC", "LAUNCHER_WORKDIR", "paddle"}
    assert any("lo" in line for line in caught.value.problems if line.startswith("CONF_PADDLE_NIC"))


TIMES = (
    "LAUNCHER_PEER_TIMEOUT",
    "LAUNCHER_REJOIN_TIMEOUT",
    "LAUNCHER_SILENCE",
    "LAUNCHER_STALL_TIMEOUT",
    "LAUNCHER_STOP_GRACE",
    "LAUNCHER_VOLUME_TIMEOUT",
)


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", ["1000000000", "9" * 400])
def test_a_time_that_is_too_long_for_messages_is_refused(name: str, value: str) -> None:
    (problem,) = problems({**SEED_001, name: value})
    assert re.match(rf"{name}: '{value}': expected (auto, or )?seconds", problem)
    assert "at most 100000000" in problem
    read({**SEED_001, name: "100000000"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAUNCHER_JOB_ID", "j" * 300),
        ("JOB_NAME", "j" * 300),
        ("JOB_NAME", "\u00e9" * 200),
        ("POD_NAME", "p" * 2000),
        ("POD_NAME", "two\nlines"),
        ("POD_UID", "\x1b[2J"),
    ],
)
def test_a_name_that_no_file_or_message_can_have_is_refused(name: str, value: str) -> None:
    (problem,) = problems({**SEED_001, name: value})
    assert problem.startswith(f"{name}: ")


def test_missing_certificates_are_named_with_their_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigProblems) as caught:
        config.read({**SEED_001, "CONF_PADDLE_NIC": "lo", "LAUNCHER_TLS_DIR": str(tmp_path)}, {})
    (problem,) = (line for line in caught.value.problems if line.startswith("LAUNCHER_TLS_DIR"))
    assert problem == f"LAUNCHER_TLS_DIR: cannot read {tmp_path}/tls.crt: No such file or directory"


ELASTIC = {**SEED_001, "CONF_PADDLE_GRADIENT_NUM": "2:5", "LAUNCHER_MAX_RESTARTS": "3"}


def test_a_range_of_nodes_is_an_elastic_job() -> None:
    job = config.read(ELASTIC, {}, check_here=False)
    assert (job.is_elastic, job.least, job.members) == (True, 2, 5)
    assert not config.read({**ELASTIC, "CONF_PADDLE_GRADIENT_NUM": "3:3"}, {}, check_here=False).is_elastic


@pytest.mark.parametrize("value", ["5:2", "0:3", "2:", ":3", "2:3:4", "2-3", "two"])
def test_a_range_that_is_none_is_refused(value: str) -> None:
    (problem,) = problems({**ELASTIC, "CONF_PADDLE_GRADIENT_NUM": value})
    assert problem.startswith(f"CONF_PADDLE_GRADIENT_NUM: {value!r}: expected the number of nodes")


@pytest.mark.parametrize(
    ("name", "value"), [("LAUNCHER_MAX_RESTARTS", "0"), ("LAUNCHER_REJOIN_TIMEOUT", "0"), ("LAUNCHER_PSERVERS", "3")]
)
def test_an_elastic_job_names_the_variable_that_forbids_a_change_of_size(name: str, value: str) -> None:
    (problem,) = problems({**ELASTIC, name: value})
    assert problem.startswith(f"{name}: ")
    assert "CONF_PADDLE_GRADIENT_NUM" in problem


def test_a_job_with_heter_workers_has_a_fixed_size() -> None:
    roles = {"LAUNCHER_ROLE": "trainer", "LAUNCHER_PSERVERS": "1", "LAUNCHER_HETERS": "1", "LAUNCHER_JOB_ID": "job"}
    found = problems({**ELASTIC, **roles})
    expected = "LAUNCHER_HETERS: 1: expected no heter workers, or one number in CONF_PADDLE_GRADIENT_NUM"
    assert any(problem.startswith(expected) for problem in found)


def test_the_table_in_the_docs_lists_every_variable_with_its_default() -> None:
    table = (REPOSITORY / "docs" / "configuration.md").read_text()
    lines = [line for line in table.splitlines() if line.startswith("| `") and line.count("|") == 5]
    rows = {line.split("|")[1].strip().strip("`"): line for line in lines}
    assert set(rows) == {variable.name for variable in VARIABLES}
    for variable in VARIABLES:
        assert rows[variable.name].split("|")[3].strip() == (variable.shown_default or ""), variable.name
