"""A network that is cut in two while a job trains: no half trains on alone; once it is healed both resume together."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from launcher.gang.connection import MISSED_BEATS
from tests.support.jobs import Job, make_volume, until
from tests.support.passes import MARK, PASSES, PSERVER, SIX, TRAINER, history, log, saved, until_saved
from tests.support.supervising import needs_root
from tests.support.switches import TwoSwitches
from tests.support.timeline import check_replay
from tests.support.verdicts import first_sentence

pytestmark = [needs_root, pytest.mark.slow]

NEAR, FAR = (0, 1, 2), (3, 4)  # the hub is in the first half
SILENCE = 15  # the smallest valid value
OUT_OF_STEP = 3.5  # seconds between the starts of the halves, since heartbeats are sent and checked every 5 s


@pytest.fixture
def network() -> Iterator[TwoSwitches]:
    for tool in ("ip", "iptables-restore"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed here")
    with TwoSwitches(len(NEAR + FAR)) as network:
        yield network


@pytest.fixture
def split_job(network: TwoSwitches, tmp_path: Path) -> Job:
    """Five members, that wait for each other."""
    size = len(NEAR + FAR)
    return Job(
        network,
        make_volume(tmp_path, size),
        tmp_path,
        size,
        LAUNCHER_MAX_RESTARTS="3",
        LAUNCHER_SILENCE=str(SILENCE),
        LAUNCHER_STOP_GRACE="2",
    )


def children(job: Job, ranks: Sequence[int]) -> list[str]:
    """What of Paddle runs on these members."""
    return [f"{program} of rank {rank}" for rank in ranks for program in (TRAINER, PSERVER) if job.find(rank, program)]


def may_begin(job: Job, rank: int) -> bool:
    """Whether it would start the next generation now, if all others did."""
    return "waiting up to" in job.stderr(rank)


def claims(job: Job) -> list[str]:
    return sorted(claim.name for claim in (job.output / ".launcher" / "job-1").glob("generation-*"))


def test_both_halves_of_a_cut_network_stop_and_the_job_completes_after_the_cut(
    split_job: Job, network: TwoSwitches
) -> None:
    job = split_job.hold("pass-1").start(*NEAR, flags=SIX)
    time.sleep(OUT_OF_STEP)
    job.start(*FAR, flags=SIX)
    until_saved(job, 0)
    assert all(children(job, [rank]) for rank in NEAR + FAR)
    network.cut(*FAR)
    until(lambda: any(may_begin(job, rank) for rank in NEAR), 3 * SILENCE, f"the near half waits\n{job.stderr()}")
    assert not children(job, FAR), "one half could begin while the other one still runs"
    until(lambda: all(may_begin(job, rank) for rank in NEAR + FAR), SILENCE, f"all wait\n{job.stderr()}")
    assert not children(job, NEAR + FAR)
    assert claims(job) == ["generation-0"]
    assert not saved(job, PASSES - 1)
    network.heal(*FAR)
    job.release()
    assert job.codes(60) == [0] * job.size, job.stderr()
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert [one["number"] for one in history(job)] == [0, 1]
    assert history(job)[0]["first_cause"]["kind"] == "lost"
    assert claims(job) == ["generation-0", "generation-1"]
    for rank in NEAR + FAR:
        assert [number for number, _ in MARK.findall(log(job, rank))] == ["0", "1"]
    check_replay(job.output)
    assert job.nothing_left()


def test_members_that_cannot_reach_each_other_are_named_in_the_log_and_in_a_later_failure(
    split_job: Job, network: TwoSwitches
) -> None:
    split_job.environment["LAUNCHER_MAX_RESTARTS"] = "0"
    job = split_job.start_in_a_pass()
    network.lose((1, 2), (2, 1))
    named = f"rank 1 cannot reach rank 2 at {network.addresses[2]}:7168"
    until(lambda: named in job.stderr(0), 4 * SILENCE, job.stderr())
    assert job.stderr().count("cannot reach") == 1
    assert all(children(job, [rank]) for rank in NEAR + FAR)
    job.kill(3, TRAINER)
    assert job.codes() == [69, 69, 69, 137, 69], job.stderr()
    for rank in NEAR + FAR:
        assert "rank 3 (pod-3): trainer" in job.termination(rank).splitlines()[0]
        assert f"{named} (no answer in time): check network policies" in job.termination(rank)
    assert first_sentence(job.output).startswith("The job failed: rank 3 (pod pod-3): trainer")
    assert named in first_sentence(job.output)
    assert job.nothing_left()


ALIVE_EVERY, SLACK = 5, 6  # seconds
CUT = 31  # seconds; with doubled pauses alone, the kernel would not retry before 51 s
LONGER = 45  # the LAUNCHER_SILENCE of this job
ON_AN_OLDER_KERNEL = """
from launcher import __main__
from launcher.gang import connection
connection._TCP_OPTIONS = [option for option in connection._TCP_OPTIONS if option[0] != connection.TCP_RTO_MAX_MS]
__main__.main()
"""


@pytest.mark.parametrize(("meanwhile", "tries_often"), [("nothing", False), ("a trainer of the other half dies", True)])
def test_a_cut_that_is_shorter_than_the_silence_ends_nothing(
    split_job: Job, network: TwoSwitches, meanwhile: str, tries_often: bool
) -> None:
    split_job.environment["LAUNCHER_SILENCE"] = str(LONGER)
    if not tries_often:
        split_job.program = ("-c", ON_AN_OLDER_KERNEL)
    job = split_job.start_in_a_pass()
    ways = [(one, other) for near in NEAR for far in FAR for one, other in ((near, far), (far, near))]
    network.lose(*ways)
    lost = time.monotonic()
    if meanwhile != "nothing":
        job.kill(1, TRAINER)
    until(lambda: time.monotonic() - lost > CUT, 2 * CUT)
    network.deliver(*ways)
    if meanwhile == "nothing":
        until(lambda: time.monotonic() - lost > LONGER + ALIVE_EVERY + 1, 2 * LONGER)
        assert "was lost" not in job.stderr()
        assert all(children(job, [rank]) for rank in NEAR + FAR)
        assert claims(job) == ["generation-0"]
    else:
        until(lambda: all(children(job, [rank]) for rank in NEAR + FAR) and len(claims(job)) == 2, 30, job.stderr())
        assert history(job)[0]["first_cause"]["kind"] == "trainer"
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes(30) == [143] * job.size
    assert job.nothing_left()


@pytest.mark.parametrize("gone", [4, 0], ids=["a member", "the hub"])
def test_a_survivor_that_aborts_is_not_named_as_the_cause_while_a_peer_is_silent(
    split_job: Job, network: TwoSwitches, gone: int
) -> None:
    """Collective training on CPUs waits 30 s for a peer whose node has lost its power, and then aborts."""
    split_job.environment |= {"LAUNCHER_SILENCE": "120", "LAUNCHER_MAX_RESTARTS": "0"}
    job = split_job.start_in_a_pass()
    others = [rank for rank in NEAR + FAR if rank != gone]
    network.lose(*((one, other) for rank in others for one, other in ((rank, gone), (gone, rank))))
    lost = time.monotonic()
    until(lambda: time.monotonic() - lost > MISSED_BEATS * ALIVE_EVERY + SLACK, 60)
    for trainer in [job.process(rank, TRAINER) for rank in others]:
        with suppress(psutil.NoSuchProcess):  # the launchers may end it as soon as one trainer has died
            trainer.send_signal(signal.SIGABRT)
    stands_for_it = 1 if gone == 0 else 0
    for rank in others:
        assert job.code(rank) == (76 if rank == stands_for_it else 69), job.stderr()
        assert f"rank {gone} (pod-{gone}): " in job.termination(rank)
        assert "nothing was heard for" in job.termination(rank)
    named = rf"The job failed: .*rank {gone} \(pod pod-{gone}\).*nothing was heard for"
    assert re.match(named, first_sentence(job.output)), first_sentence(job.output)
    job.launchers[gone].kill()
    until(job.nothing_left)
