"""The exact flags of Paddle v0, and how they are combined with the user's flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from launcher import config
from launcher.errors import Exit, Failure
from launcher.model import Member, Plan, Roster, Saves, Start
from launcher.paddle import v0
from tests.support.environments import SEED_001

ROSTER = Roster(
    tuple(Member(f"pod-{i}", f"uid-{i}", f"10.0.0.{9 + i}", f"10.0.0.{9 + i}", rank=i) for i in range(3)),
)
NETWORK = (
    "--nics=eth0",
    "--port=7164",
    "--ports_num=2",
    "--ports_num_for_sparse=2",
    "--num_gradient_servers=3",
    "--comment=paddle_process_by_paddle",
    "--small_messages=1",
)


def plan(*flags: str, environment: dict[str, str] | None = None, roster: Roster | None = ROSTER, rank: int = 1) -> Plan:
    job = config.read(SEED_001 if environment is None else environment, {}, check_here=False)
    return v0.plan(job, flags, roster, rank if roster else None)


def trainer(*flags: str, environment: dict[str, str] | None = None) -> Sequence[str]:
    return plan(*flags, environment=environment).trainers[0].argv


def refusal(*flags: str) -> str:
    with pytest.raises(Failure) as caught:
        plan(*flags)
    assert caught.value.code == Exit.USAGE
    return caught.value.message


def test_the_pserver_gets_exactly_the_flags_of_the_2016_manifests() -> None:
    (server,) = plan().servers
    assert server.argv == ("paddle", "pserver", *NETWORK)
    assert server.ports == (7164, 7165, 7166, 7167)
    assert server.log == "server.log"


def test_the_trainer_gets_exactly_the_flags_of_the_2016_manifests() -> None:
    assert trainer("--config=trainer_config.lr.py") == (
        "paddle",
        "train",
        *NETWORK,
        "--pservers=10.0.0.9,10.0.0.10,10.0.0.11",
        "--trainer_id=1",
        "--local=0",
        "--save_dir=/home/jobpath/paddle-cluster-job/output",
        "--config=trainer_config.lr.py",
    )


def test_the_users_flags_are_passed_unchanged_and_in_order() -> None:
    unusual = ("--use_gpu", "--config_args", "a=1 b;$(id)", "--log_period", "50", "--num_passes=3", "--last")
    assert trainer(*unusual)[-len(unusual) :] == unusual


def test_the_pserver_is_final_before_the_roster_is_known() -> None:
    before = plan(roster=None)
    assert before.servers == plan().servers
    assert "--trainer_id=<rank>" in before.trainers[0].argv


@pytest.mark.parametrize("same", [("--port=7164",), ("--port", "7164"), ("-port=7164",), ("--trainer_id=1",)])
def test_a_flag_that_the_launcher_owns_may_repeat_the_value(same: tuple[str, ...]) -> None:
    assert trainer(*same)[-len(same) :] == same


@pytest.mark.parametrize(
    ("other", "variable"),
    [
        (("--nics=eth1",), "CONF_PADDLE_NIC"),
        (("--port=7000",), "CONF_PADDLE_PORT"),
        (("--port", "7000"), "CONF_PADDLE_PORT"),
        (("--ports_num=4",), "CONF_PADDLE_PORTS_NUM"),
        (("--ports_num_for_sparse", "0"), "CONF_PADDLE_PORTS_NUM_SPARSE"),
        (("--pservers=10.0.0.1",), "LAUNCHER_PEERS"),
        (("--trainer_id=0",), "LAUNCHER_RANK"),
        (("--trainer-id=0",), "LAUNCHER_RANK"),
        (("--num_gradient_servers=4",), "CONF_PADDLE_GRADIENT_NUM"),
        (("--local=1",), "CONF_PADDLE_GRADIENT_NUM"),
        (("--local",), "CONF_PADDLE_GRADIENT_NUM"),
    ],
)
def test_another_value_for_a_flag_of_the_launcher_is_refused_and_the_variable_is_named(
    other: tuple[str, ...], variable: str
) -> None:
    assert variable in refusal(*other)


def test_all_flags_with_another_value_are_named_at_once() -> None:
    assert len(refusal("--port=1", "--nics=x", "--trainer_id=9").splitlines()) == 3


@pytest.mark.parametrize(
    ("given", "value"),
    [((), "1"), (("--small_messages=0",), "0"), (("--nosmall_messages",), "0"), (("--small_messages",), "1")],
)
def test_small_messages_goes_to_both_sides(given: tuple[str, ...], value: str) -> None:
    made = plan(*given)
    assert f"--small_messages={value}" in made.servers[0].argv
    assert f"--small_messages={value}" in made.trainers[0].argv


def test_trainer_count_comes_from_its_variable_unless_the_user_gives_the_flag() -> None:
    counted = {**SEED_001, "TRAINER_COUNT": "3"}
    assert "--trainer_count=3" in trainer(environment=counted)
    assert "--trainer_count=3" not in trainer("--trainer_count=4", environment=counted)
    assert not [word for word in trainer() if word.startswith("--trainer_count")]


def test_a_job_of_one_trains_locally_without_a_pserver_and_saves_to_output() -> None:
    made = plan("--config=c.py", "--local=0", environment={"LAUNCHER_WORKDIR": "/root"}, roster=None)
    assert made.servers == ()
    assert made.trainers[0].argv == (
        "paddle",
        "train",
        "--save_dir=./output",
        "--config=c.py",
        "--local=0",
        "--local=1",
    )


@pytest.mark.parametrize(
    ("existing", "chosen"),
    [
        (("trainer_config.lr.py", "trainer_config.py"), "trainer_config.lr.py"),
        (("trainer_config.py",), "trainer_config.py"),
        ((), "trainer_config.lr.py"),
    ],
)
def test_without_the_flag_the_existing_configuration_is_used(
    existing: tuple[str, ...], chosen: str, tmp_path: Path
) -> None:
    for name in existing:
        (tmp_path / name).touch()
    assert f"--config={chosen}" in trainer(environment={**SEED_001, "LAUNCHER_WORKDIR": str(tmp_path)})


def test_the_users_save_dir_wins() -> None:
    words = trainer("--save_dir", "/elsewhere")
    assert [word for word in words if word.startswith("--save_dir")] == ["--save_dir"]


def test_an_ipv6_training_address_is_refused() -> None:
    roster = Roster(tuple(Member(f"p{i}", "", f"fd00::{i}", f"fd00::{i}", rank=i) for i in range(3)))
    with pytest.raises(Failure) as caught:
        plan(roster=roster)
    assert caught.value.code == Exit.CONFIG
    assert "IPv6" in caught.value.message


# ---- resume after a pass ---------------------------------------------------------------------------------------------

SAVED = "/home/jobpath/paddle-cluster-job/output"
V0Saves = partial(Saves, of_v0=True)
ON_THE_VOLUME = {**SEED_001, "LAUNCHER_WORKDIR": "/home/jobpath/work"}


def resumed(*flags: str, after: int, environment: dict[str, str] | None = None) -> Plan:
    job = config.read(environment or SEED_001, {}, check_here=False)
    return v0.plan(job, flags, ROSTER if job.members > 1 else None, 1 if job.members > 1 else None, Start(1, after))


def resume_flags(*flags: str, after: int, environment: dict[str, str] | None = None) -> dict[str, str]:
    """Return the flags of the trainer after those of the user."""
    (process,) = resumed(*flags, after=after, environment=environment).trainers
    last = process.argv[process.argv.index(flags[-1]) + 1 :] if flags else process.argv[-3:]
    return dict(word.removeprefix("--").split("=", 1) for word in last)


def saved(*flags: str, environment: dict[str, str] | None = None) -> Saves | None:
    """Return where passes are saved, without the paths that the flags name."""
    made = v0.saves(config.read(environment or SEED_001, {}, check_here=False), flags)
    return made and replace(made, named=())


def test_the_trainer_resumes_after_a_pass() -> None:
    """All other flags are unchanged, and of equal flags the last one counts."""
    given = ("--config=c.py", "--num_passes=10", "--init_model_path=/other", "--start_pass=0")
    (trainer,) = resumed(*given, after=3).trainers
    assert trainer.argv == (
        *plan(*given).trainers[0].argv,
        f"--init_model_path={SAVED}/pass-00003",
        "--start_pass=4",
        "--num_passes=6",
    )
    assert resumed(*given, after=3).servers == plan(*given).servers


@pytest.mark.parametrize(
    ("flags", "after", "left"),
    [
        ((), 0, 99),
        ((), 98, 1),
        (("--num_passes=10",), 3, 6),
        (("--num_passes", "10"), 3, 6),
        (("-num_passes=10",), 3, 6),
        (("-num_passes", "10"), 3, 6),
        (("--num-passes=10",), 3, 6),
        (("--num_passes=0xa",), 3, 6),
        (("--num_passes=50", "--num_passes=10"), 3, 6),
        (("--num_passes=10", "--config=c.py"), 8, 1),
        (("--num_passes=010",), 3, 6),
        (("--num_passes=0x0A",), 3, 6),
        (("--num_passes=many",), 3, 96),
        (("--num_passes=1_0",), 3, 96),
        (("--start_pass=20",), 20, 99),
        (("--start_pass=20", "--num_passes=5"), 22, 2),
        (("--num_passes", "5", "--start-pass", "20"), 23, 1),
    ],
)
def test_only_the_passes_that_are_left_are_trained(flags: tuple[str, ...], after: int, left: int) -> None:
    assert resume_flags(*flags, after=after) == {
        "init_model_path": f"{SAVED}/pass-{after:05d}",
        "start_pass": str(after + 1),
        "num_passes": str(left),
    }


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        ((), 99),
        (("--num_passes=10",), 9),
        (("--num_passes=10",), 12),
        (("--start_pass=20", "--num_passes=5"), 24),
    ],
)
def test_if_no_pass_is_left_nothing_is_started(flags: tuple[str, ...], after: int) -> None:
    made = resumed(*flags, after=after)
    assert (made.servers, made.trainers) == ((), ())


def test_a_job_of_one_resumes() -> None:
    alone = {**SEED_001, "CONF_PADDLE_GRADIENT_NUM": "1"}
    (trainer,) = resumed("--num_passes=3", after=1, environment=alone).trainers
    last = ("--local=1", f"--init_model_path={SAVED}/pass-00001", "--start_pass=2", "--num_passes=1")
    assert trainer.argv[-4:] == last


@pytest.mark.parametrize(
    ("flags", "folder"),
    [
        (("--save_dir=/home/jobpath/models",), "/home/jobpath/models"),
        (("--save_dir", "/home/jobpath/models/"), "/home/jobpath/models"),
        (("-save-dir=/home/jobpath//a/../models",), "/home/jobpath/models"),
        (("--save_dir=models",), "/home/jobpath/work/models"),
        (("--save_dir=../models",), "/home/jobpath/models"),
        (("--save_dir=/elsewhere", "--save_dir=/home/jobpath/models"), "/home/jobpath/models"),
    ],
)
def test_passes_are_looked_for_where_the_user_saves_them(flags: tuple[str, ...], folder: str) -> None:
    assert saved(*flags, environment=ON_THE_VOLUME) == V0Saves(folder, 0, 100)
    flags_after = resume_flags(*flags, after=4, environment=ON_THE_VOLUME)
    assert flags_after["init_model_path"] == f"{folder}/pass-00004"


@pytest.mark.parametrize(
    "flags",
    [
        ("--save_dir=/elsewhere",),
        ("--save_dir", "/elsewhere"),
        ("--save_dir=/home/jobpath-of-another",),
        ("--save_dir=/home/jobpath/../elsewhere",),
        ("--save_dir=../../../elsewhere",),
        ("--save_dir=/home/jobpath/models", "--save_dir=/elsewhere"),
        ("--job=test",),
        ("--job", "test"),
        ("-job=checkgrad",),
        ("--job=train", "--job=time"),
        ("--flagfile=more.flags",),
        ("--num_passes=10", "-flagfile", "more.flags"),
    ],
)
def test_a_job_does_not_resume_if_not_all_trainers_see_its_passes_or_it_does_not_train(flags: tuple[str, ...]) -> None:
    assert saved(*flags, environment=ON_THE_VOLUME) is None
    made = resumed(*flags, after=4, environment=ON_THE_VOLUME)
    assert made == plan(*flags, environment=ON_THE_VOLUME)


def test_without_a_volume_a_job_does_not_resume() -> None:
    here = {name: value for name, value in SEED_001.items() if name not in ("JOB_PATH", "TRAIN_CONFIG_DIR")}
    assert saved(environment=here) is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), V0Saves(SAVED, 0, 100)),
        (("--job=train",), V0Saves(SAVED, 0, 100)),
        (("--start_pass=7", "--num_passes=3"), V0Saves(SAVED, 7, 3)),
        (("--init_model_path=/models/pass-00005/",), V0Saves(SAVED, 0, 100)),
        (("--init-model-path", "../models/a"), V0Saves(SAVED, 0, 100)),
        ((f"--init_model_path={SAVED}/pass-00005", "--start_pass=6"), V0Saves(SAVED, 6, 100)),
        ((f"--init_model_path={SAVED}/best",), V0Saves(SAVED, 0, 100)),
        ((f"--init_model_path={SAVED}/pretrained",), V0Saves(SAVED, 0, 100)),
        ((f"--init_model_path={SAVED}/pass-00002", "--num_passes=2"), V0Saves(SAVED, 0, 2)),
        (("--saving_period=1",), V0Saves(SAVED, 0, 100)),
        (("--saving_period=5",), V0Saves(SAVED, 0, 100, every_pass=False)),
    ],
)
def test_folder_and_numbers_of_the_passes_follow_from_the_flags(flags: tuple[str, ...], expected: Saves) -> None:
    assert saved(*flags, environment=ON_THE_VOLUME) == expected


@pytest.mark.parametrize(
    "flags",
    [
        (f"--init_model_path={SAVED}/pass-00005",),
        (f"--init_model_path={SAVED}//./pass-00005/", "--start_pass=5"),
        ("--init-model-path", "../paddle-cluster-job/output/pass-00000"),
        ("--save_dir=../models", "-init_model_path=/home/jobpath/models/pass-00007", "--start_pass=2"),
    ],
)
def test_a_job_does_not_resume_if_the_users_first_model_looks_like_one_of_its_passes(
    flags: tuple[str, ...],
) -> None:
    """The job overwrites this model: a pass with its number may be of this job or not."""
    assert saved(*flags, environment=ON_THE_VOLUME) is None


def test_a_work_directory_next_to_the_passes_is_no_pass() -> None:
    """Without a first model of the user, no folder is treated as this model."""
    inside = {**SEED_001, "LAUNCHER_WORKDIR": "/home/jobpath/models/work"}
    assert saved("--save_dir=/home/jobpath/models", environment=inside) == V0Saves("/home/jobpath/models", 0, 100)


def test_a_pass_that_a_flag_names_is_known_as_named() -> None:
    made = v0.saves(config.read(ON_THE_VOLUME, {}, check_here=False), ("--init_model_path=../output/pass-00200",))
    assert made is not None
    assert made.named == (f"{Path(ON_THE_VOLUME['LAUNCHER_WORKDIR']).parent}/output/pass-00200",)


def test_the_script_of_paddle_sends_no_statistics_unless_the_user_wants_it_to() -> None:
    """Where the network drops these packets, each start waits 5 s for an answer."""
    for given, expected in (({}, "1"), ({"PADDLE_NO_STAT": ""}, ""), ({"PADDLE_NO_STAT": "0"}, "0")):
        made = plan(environment={**SEED_001, **given})
        assert [process.env["PADDLE_NO_STAT"] for process in (*made.servers, *made.trainers)] == [expected, expected]


@pytest.mark.parametrize(("job", "trains"), [((), True), (("--job=train",), True), (("--job=test",), False)])
@pytest.mark.parametrize("members", [ROSTER, None])
def test_only_a_job_that_trains_finishes_passes(job: tuple[str, ...], trains: bool, members: Roster | None) -> None:
    """`--job=test` logs lines `Pass=`, too."""
    alone = {**SEED_001, "CONF_PADDLE_GRADIENT_NUM": "1"}
    made = plan(*job, roster=members, environment=None if members else alone)
    assert made.shows_passes is trains
    assert made.trainers[0].pass_mark == (b"Pass=" if trains else b"")
