"""A job whose number of members changes while it trains: CONF_PADDLE_GRADIENT_NUM=LEAST:MOST."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from launcher.base import referral
from launcher.live import words
from launcher.report import page, reader
from launcher.run.endpoint import ask_why
from tests.support.jobs import Job, until
from tests.support.passes import PASSES, SIX, history, until_generation, until_saved


@pytest.fixture
def elastic(job: Job) -> Job:
    """Return a job of one to three members.

    It begins with fewer than three once none has joined for 5 s: a busy machine may
    take seconds to start a launcher.
    """
    job.environment |= {
        "CONF_PADDLE_GRADIENT_NUM": "1:3",
        "LAUNCHER_MAX_RESTARTS": "3",
        "LAUNCHER_SETTLE": "5",
    }
    return job


def shards(job: Job, rank: int) -> list[str]:
    """Return the names of the shards in the work directory of a member."""
    return sorted(path.name for path in (job.folder / f"work-{rank}" / "data").iterdir() if path.is_dir())


def events(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.output / "events.jsonl").read_text().splitlines()]


def told(job: Job) -> list[str]:
    """Return the events of the job in words."""
    return [line.text for event in events(job) if (line := words.job_event(event))]


def report(job: Job) -> str:
    """Return the page about the job, from its first sentence on."""
    return page.render(reader.read(str(job.output))).decode().partition("<h1>")[2]


def sizes(job: Job) -> list[int]:
    return [generation["trainers"] for generation in history(job)]


def test_a_job_begins_with_the_members_that_are_there_and_trains_all_shards(elastic: Job) -> None:
    job = elastic.start(0, 1)
    assert job.codes() == [0, 0], job.stderr()
    assert sizes(job) == [2]
    assert shards(job, 0) + shards(job, 1) == ["0", "1", "2"]
    assert job.nothing_left()


def test_a_job_with_all_members_begins_at_once(elastic: Job) -> None:
    job = elastic.start(LAUNCHER_SETTLE="1000")
    assert job.codes() == [0, 0, 0], job.stderr()
    assert sizes(job) == [3]
    assert [shards(job, rank) for rank in range(3)] == [["0"], ["1"], ["2"]]


def test_a_member_that_comes_later_joins_when_the_running_pass_is_saved(elastic: Job) -> None:
    job = elastic.hold("pass-2", "pass-3").start(0, 1, flags=SIX)
    until_saved(job, 1)
    job.start(2, flags=SIX)
    until(lambda: "a new member waits" in job.stderr(0), what=job.stderr())
    job.release("pass-2")
    until_generation(job, 1)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    first, second = history(job)
    assert (first["trainers"], second["trainers"]) == (2, 3)
    assert first["first_cause"]["kind"] == "resized"
    assert second["after_pass"] == 2, "no pass is lost"
    assert "the job grows from 2 to 3 trainers" in job.stderr(0)
    assert {event["event"] for event in events(job)} >= {"newcomers"}, "the event says that a member has waited"
    assert "pass_repeated" not in {event["event"] for event in events(job)}
    text = report(job)
    assert "with 1 change of size" in text
    assert "restart" not in text.split("</h1>")[0]
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert [shards(job, rank) for rank in range(3)] == [["0"], ["1"], ["2"]]
    assert "shard 2 belongs to another trainer now: removing it here" in job.stderr()
    later = job.stderr(0).partition("the job grows from 2 to 3 trainers\n")[2]
    assert "shard 0: 4 files" in later
    assert later.count("nothing to copy") == 2, "the configuration and the shard that it keeps"
    assert "copied in" not in later


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_the_others_go_on_at_once_without_a_member_that_is_told_to_stop(elastic: Job, gone: int) -> None:
    job = elastic.hold("pass-2").start(flags=SIX)
    until_saved(job, 1)
    job.launchers[gone].send_signal(signal.SIGTERM)
    assert job.code(gone) == 143
    job.release()
    others = [rank for rank in range(3) if rank != gone]
    assert [job.code(rank) for rank in others] == [0, 0], job.stderr()
    assert sizes(job) == [3, 2]
    assert history(job)[1]["after_pass"] == 1
    (repeated,) = (event for event in events(job) if event["event"] == "pass_repeated")
    assert repeated["pass"] == 2
    assert "pass 2 was interrupted, and is repeated" in job.stderr(others[0])
    assert "with 1 change of size" in report(job)
    assert sorted(shard for rank in others for shard in shards(job, rank)) == ["0", "1", "2"]


def test_a_member_that_waits_for_a_job_to_grow_ends_with_0_when_the_job_is_complete(elastic: Job) -> None:
    job = elastic.hold("pass-5").start(0, 1, flags=SIX)
    until_saved(job, 4)
    job.start(2, flags=SIX)
    until(lambda: "a new member waits" in job.stderr(0), what=job.stderr())
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert sizes(job) == [2], "the last pass is not interrupted"


@pytest.mark.parametrize("shrink", ["now", "wait"])
def test_a_lost_member_is_waited_for_unless_the_job_may_shrink_at_once(elastic: Job, shrink: str) -> None:
    job = elastic.hold("pass-2").start(flags=SIX, LAUNCHER_SHRINK=shrink)
    until_saved(job, 1)
    job.launchers[2].kill()
    assert job.code(2) == 137
    if shrink == "wait":
        until(lambda: job.status(1).get("phase") == "gathering", what=job.stderr())
        job.release().start(2, flags=SIX, LAUNCHER_SHRINK=shrink)
    else:
        until_generation(job, 1)
        job.release()
    assert [job.code(rank) for rank in (0, 1)] == [0, 0], job.stderr()
    assert sizes(job) == [3, 3 if shrink == "wait" else 2]


def test_the_others_go_on_without_a_lost_member_that_is_not_replaced_in_time(elastic: Job) -> None:
    job = elastic.hold("pass-2").start(flags=SIX, LAUNCHER_REJOIN_TIMEOUT="2")
    until_saved(job, 1)
    job.launchers[2].kill()
    assert job.code(2) == 137
    until_generation(job, 1)
    job.release()
    assert [job.code(rank) for rank in (0, 1)] == [0, 0], job.stderr()
    assert sizes(job) == [3, 2]


def test_below_the_least_the_others_wait_as_in_a_job_of_fixed_size(elastic: Job) -> None:
    job = elastic.hold("pass-2").start(
        flags=SIX, CONF_PADDLE_GRADIENT_NUM="3:3", LAUNCHER_REJOIN_TIMEOUT="1", LAUNCHER_SHRINK="now"
    )
    until_saved(job, 1)
    job.launchers[2].kill()
    assert job.codes() == [75, 75, 137], job.stderr()


def test_fewer_shards_than_the_job_may_have_trainers_are_an_error(elastic: Job) -> None:
    (elastic.output.parent / "2").rename(elastic.output.parent / "two")
    job = elastic.start(0, 1)
    assert 66 in job.codes(), job.stderr()
    assert "has 2 shards, but the job may have 3 trainers" in job.stderr(0)


def test_a_shard_that_is_missing_between_others_is_an_error(elastic: Job) -> None:
    (elastic.output.parent / "1").rename(elastic.output.parent / "one")
    job = elastic.start(0, 1)
    assert 66 in job.codes(), job.stderr()
    assert "1/data does not exist, but shard 2 does" in job.stderr(0)


@pytest.mark.parametrize("shrink", ["now", "wait"])
def test_the_others_continue_without_a_hub_that_is_lost(elastic: Job, shrink: str) -> None:
    job = elastic.hold("pass-2").start(flags=SIX, LAUNCHER_SHRINK=shrink, LAUNCHER_REJOIN_TIMEOUT="3")
    until_saved(job, 1)
    job.launchers[0].kill()
    assert job.code(0) == 137
    until_generation(job, 1)
    job.release()
    assert [job.code(rank) for rank in (1, 2)] == [0, 0], job.stderr()
    assert sizes(job) == [3, 2]
    assert [member["pod"] for member in json.loads((job.output / "job.json").read_text())["members"]] == (
        ["pod-1", "pod-2"]
    )


def test_a_pod_that_replaces_the_lost_hub_joins_the_others_when_they_wait_for_it(elastic: Job) -> None:
    patient = {"LAUNCHER_SHRINK": "wait", "LAUNCHER_SETTLE": "20"}
    job = elastic.hold("pass-2").start(flags=SIX, **patient)
    until_saved(job, 1)
    job.launchers[0].kill()
    assert job.code(0) == 137
    until(lambda: all(job.status(rank).get("phase") == "gathering" for rank in (1, 2)), what=job.stderr())
    job.release().start(0, flags=SIX, **patient)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert sizes(job) == [3, 3]


def test_a_new_pod_0_joins_the_gang_that_another_pod_leads(elastic: Job) -> None:
    """While pod 0 waits, `why` in its pod says so. Pod 1 says where all processes are."""
    job = elastic.hold("pass-2", "pass-3")
    for rank in (1, 2):
        job.start(rank, flags=SIX, POD_UID=f"uid-{rank}")
    until_saved(job, 1)
    job.start(0, flags=SIX, POD_UID="uid-0")
    until(lambda: "a new member waits" in job.stderr(1), what=job.stderr())
    until(lambda: referral.is_referral(ask_why(str(job.folder / "work-0"))), what=job.stderr())
    assert "2 members\n1 more waits" in ask_why(str(job.folder / "work-1"))
    job.release("pass-2")
    until_generation(job, 1)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert sizes(job) == [2, 3]
    assert history(job)[1]["after_pass"] == 2
    members = json.loads((job.output / "job.json").read_text())["members"]
    assert [member["pod"] for member in members] == ["pod-1", "pod-2", "pod-0"], "members keep their ranks"


def test_members_that_cannot_find_the_hub_join_the_gang_that_has_the_lease(elastic: Job) -> None:
    """Pod 0 believes that it is alone, and the other pods do not know its address."""
    job = elastic.hold("pass-2", "pass-3")
    job.start(0, flags=SIX, LAUNCHER_PEERS=",".join([job.nodes.addresses[0], "192.0.2.2", "192.0.2.3"]))
    until_saved(job, 1)
    job.start(1, 2, flags=SIX, LAUNCHER_PEERS=",".join(["192.0.2.1", *job.nodes.addresses[1:3]]))
    until(lambda: any("2 members wait" in text for text in told(job)), what=job.stderr())
    job.release("pass-2")
    until_generation(job, 1)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert sizes(job) == [1, 3]
