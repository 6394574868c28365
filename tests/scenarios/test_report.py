"""The first sentence of the report names rank, pod and cause, for each fault of docs/faults.md that ends a job."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import NamedTuple

import pytest

from launcher.report import child, reader
from launcher.report.facts import Place
from launcher.report.lanes import lanes
from launcher.report.verdict import Verdict, judge
from tests.support import floor
from tests.support.cluster_job import api_of, member
from tests.support.fake_api import Authority, FakeApi
from tests.support.jobs import Job, until
from tests.support.passes import PSERVER, SIX, TRAINER, until_generation, until_saved
from tests.support.pods import ended, unschedulable, waiting
from tests.support.supervising import needs_root


class Fault(NamedTuple):
    """What happens to a job, and what the first sentence of its report must have, in this order."""

    happens: Callable[[Job], object]
    words: tuple[str, ...]


def _killed(rank: int, program: str) -> Callable[[Job], object]:
    return lambda job: job.start_in_a_pass().kill(rank, program)


def _launcher_gets(rank: int, number: signal.Signals) -> Callable[[Job], object]:
    return lambda job: job.start_in_a_pass().launchers[rank].send_signal(number)


def _without_shard(job: Job) -> object:
    (job.output.parent / "1").rename(job.output.parent / "one")
    return job.start()


def _with_bad_data(job: Job) -> object:
    (job.output.parent / "1" / "data" / "train.txt").write_text("no label here\n")
    return job.start()


def _with_an_empty_shard(job: Job) -> object:
    (job.output.parent / "1" / "data" / "train.txt").write_text("")
    return job.start()


def _without_configuration(job: Job) -> object:
    (job.output.parent / "quick_start").rename(job.output.parent / "quick")
    return job.start()


def _given_up(job: Job) -> object:
    return job.start(0, 2, LAUNCHER_MAX_RESTARTS="3").start(1, LAUNCHER_MAX_RESTARTS="3", STANDIN_EXIT_AT="0:3")


def _without_interpreter(job: Job) -> object:
    program = job.folder / "train"
    program.write_text("#!/nonexistent/python\n")
    program.chmod(0o755)
    return job.start(flags=("--", str(program)))


def _stopped_twice(job: Job) -> object:
    job.start_in_a_pass(LAUNCHER_STOP_GRACE="60")
    for launcher in job.launchers.values():
        launcher.terminate()
    return job


def _out_of_memory(job: Job) -> object:
    """The kernel kills the trainer of rank 1, whose pod has a limit of 128 MiB."""
    if not floor.supports("container=128"):
        pytest.skip("no control groups with a memory limit can be made here")
    job.start(0, 2)
    job.program = (*floor.command("container=128"), "-m", "launcher")
    return job.start(1, STANDIN_TAKES_MEMORY_AT="1:1:1024")


def _crashing_pserver(job: Job) -> object:
    (job.folder / "crashes").write_text("99")
    return job.start(0, 2).start(1, STANDIN_CRASHES_LEFT=str(job.folder / "crashes"))


def _silent_pod(job: Job) -> object:
    """Nothing comes from rank 1 any more, as if its node had lost its power."""
    job.start_in_a_pass(LAUNCHER_SILENCE="15").launchers[1].send_signal(signal.SIGSTOP)
    codes = [job.code(rank) for rank in (0, 2)]
    job.launchers[1].kill()
    return codes


FAULTS = {
    "a trainer is killed": Fault(_killed(1, TRAINER), ("rank 1 (pod pod-1)", "trainer", "SIGKILL")),
    "the hub's trainer is killed": Fault(_killed(0, TRAINER), ("rank 0 (pod pod-0)", "trainer", "SIGKILL")),
    "a pserver is killed": Fault(_killed(1, PSERVER), ("rank 1 (pod pod-1)", "pserver", "SIGKILL")),
    "a trainer exits with 3": Fault(
        lambda job: job.start(0, 2).start(1, STANDIN_EXIT_AT="1:3"), ("rank 1 (pod pod-1)", "trainer", "exit code 3")
    ),
    "a trainer exits with 69": Fault(
        lambda job: job.start(0, 2).start(1, STANDIN_EXIT_AT="1:69"), ("rank 1 (pod pod-1)", "trainer", "exit code 69")
    ),
    "a SIGTERM from elsewhere kills a trainer": Fault(
        lambda job: job.start_in_a_pass().kill(1, TRAINER, signal.SIGTERM), ("rank 1 (pod pod-1)", "trainer", "SIGTERM")
    ),
    "a program cannot be started": Fault(_without_interpreter, ("rank ", "(pod pod-", "cannot start")),
    "the configuration is missing": Fault(_without_configuration, ("rank ", "(pod pod-", "quick_start")),
    "the same failure comes twice": Fault(_given_up, ("rank 1 (pod pod-1)", "trainer", "given up")),
    "all pods are deleted": Fault(_stopped_twice, ("rank ", "(pod pod-", "SIGTERM")),
    "a new pod does not come": Fault(
        lambda job: job.start_in_a_pass(LAUNCHER_MAX_RESTARTS="1", LAUNCHER_REJOIN_TIMEOUT="3").launchers[1].kill(),
        ("LAUNCHER_REJOIN_TIMEOUT", "missing: rank 1"),
    ),
    "a member never joins": Fault(
        lambda job: job.start(0, 2, LAUNCHER_PEER_TIMEOUT="3"), ("2 of 3 have joined", "missing: rank 1")
    ),
    "a launcher is killed": Fault(_launcher_gets(1, signal.SIGKILL), ("rank 1 (pod pod-1)", "was lost")),
    "the hub is killed": Fault(_launcher_gets(0, signal.SIGKILL), ("rank 0 (pod pod-0)", "was lost")),
    "a pod is deleted": Fault(_launcher_gets(1, signal.SIGTERM), ("rank 1 (pod pod-1)", "SIGTERM")),
    "the hub's pod is deleted": Fault(_launcher_gets(0, signal.SIGTERM), ("rank 0 (pod pod-0)", "SIGTERM")),
    "a shard is missing": Fault(_without_shard, ("rank 1 (pod pod-1)", "/1")),
    "a shard has bad data": Fault(_with_bad_data, ("rank 1 (pod pod-1)", "trainer")),
    "a shard is empty": Fault(_with_an_empty_shard, ("rank 1 (pod pod-1)", "no samples")),
    "no trainer prints anything": Fault(
        lambda job: job.start_in_a_pass(LAUNCHER_STALL_TIMEOUT="5"), ("stalled", "no trainer")
    ),
    "the kernel kills a trainer because memory ran out": Fault(
        _out_of_memory, ("rank 1 (pod pod-1)", "trainer", "out of memory", "memory limit is 128 MiB")
    ),
    "a pserver crashes at each start": Fault(_crashing_pserver, ("rank 1 (pod pod-1)", "pserver", "SIGSEGV")),
    "a node loses its power": Fault(_silent_pod, ("rank 1 (pod pod-1)", "was lost", "nothing was heard for")),
}


def _unschedulable(job: Job, api: FakeApi) -> object:
    api.put(unschedulable(member(job, 1, ""), "0/3 nodes are available: 3 Insufficient memory."))
    return job.start(0, 2, LAUNCHER_PEER_TIMEOUT="15")


def _image_missing(job: Job, api: FakeApi) -> object:
    api.put(waiting(member(job, 1, ""), "ImagePullBackOff", 'Back-off pulling image "paddle:typo"'))
    return job.start(0, 2, LAUNCHER_PEER_TIMEOUT="15")


def _launcher_out_of_memory(job: Job, api: FakeApi) -> object:
    job.start_in_a_pass()
    api.put(ended(member(job, 1), 137, "OOMKilled", "Failed"))
    job.launchers[1].kill()
    return job


class ClusterFault(NamedTuple):
    """The same as Fault, where the API server says more than the launchers see."""

    happens: Callable[[Job, FakeApi], object]
    words: tuple[str, ...]


CLUSTER_FAULTS = {
    "a pod cannot be scheduled": ClusterFault(
        _unschedulable, ("2 of 3 have joined", "pod-1 is Pending: Unschedulable", "3 Insufficient memory")
    ),
    "an image cannot be pulled": ClusterFault(
        _image_missing, ("2 of 3 have joined", "pod-1 is Pending", "ImagePullBackOff", "paddle:typo")
    ),
    "the kernel kills a whole pod because memory ran out": ClusterFault(
        _launcher_out_of_memory, ("rank 1 (pod pod-1)", "was lost", "OOMKilled")
    ),
}


def verdict_of(job: Job) -> Verdict:
    return judge(reader.read(str(job.output)))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_the_first_sentence_names_rank_pod_and_cause(job: Job, fault: Fault) -> None:
    fault.happens(job)
    job.codes()
    check_first_sentence(job, fault.words)


@needs_root
@pytest.mark.parametrize("fault", CLUSTER_FAULTS.values(), ids=CLUSTER_FAULTS.keys())
def test_the_first_sentence_has_what_kubernetes_says_about_the_pod(
    job: Job, authority: Authority, fault: ClusterFault
) -> None:
    with api_of(job, authority) as api:
        fault.happens(job, api)
        job.codes()
    check_first_sentence(job, fault.words)


def check_first_sentence(job: Job, words: tuple[str, ...]) -> None:
    verdict = verdict_of(job)
    assert verdict.state == "failed", job.stderr()
    pattern = "The job failed: .*" + ".*".join(map(re.escape, words))
    assert re.match(pattern, verdict.sentence), verdict.sentence
    assert verdict.advice
    assert b"</html>" in (job.output / child.write(str(job.output))[0]).read_bytes()


def test_a_dead_hub_is_seen_before_the_other_members_have_ended(job: Job) -> None:
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "5"}
    job.start_in_a_pass()
    assert verdict_of(job).sentence == "The job is training."
    job.launchers[0].kill()
    for rank in (1, 2):
        until(lambda: job.status(rank).get("phase") == "gathering", what=job.stderr())  # noqa: B023
    assert verdict_of(job).sentence == "The job waits for a new pod in place of rank 0 (pod pod-0)."
    job.release().start(0)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert verdict_of(job).sentence.startswith("The job is complete: 2 passes in ")


def test_three_kills_and_a_lost_pod_are_four_restarts_in_the_report(job: Job) -> None:
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "5"}
    job.hold("pass-1", "pass-2", "pass-3", "pass-4").start(flags=SIX)
    for number, (rank, program) in enumerate([(1, TRAINER), (0, PSERVER), (2, TRAINER)]):
        until_saved(job, number)
        job.kill(rank, program)
        until_generation(job, number + 1)
        job.release(f"pass-{number + 1}")
    until_saved(job, 3)
    job.launchers[2].kill()
    for rank in (0, 1):
        until(lambda: job.status(rank).get("phase") == "gathering", what=job.stderr())  # noqa: B023
    assert verdict_of(job).sentence == "The job waits for a new pod in place of rank 2 (pod pod-2)."
    job.release().start(2, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()

    facts = reader.read(str(job.output))
    verdict = judge(facts)
    assert re.fullmatch(r"The job is complete: 6 passes in .*, with 4 restarts\.", verdict.sentence)
    marks = {lane.members[0].place: [mark.number for mark in lane.marks] for lane in lanes(facts, verdict)}
    assert marks == {Place(0, 0): [1], Place(0, 1): [0], Place(0, 2): [2, 3]}
    assert [run.exit_code for run in facts.members[Place(0, 2)].runs] == [None, 0]
    lost = [span for lane in lanes(facts, verdict) for span in lane.spans if span.state == "lost"]
    assert len(lost) == 1


def test_a_pod_that_never_joined_is_forgotten_as_soon_as_a_gang_forms(job: Job) -> None:
    job.start(0, 2, LAUNCHER_PEER_TIMEOUT="3")
    job.codes()
    assert "missing: rank 1" in verdict_of(job).sentence
    job.start()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert verdict_of(job).sentence.startswith("The job is complete: 2 passes in ")
    assert not list((job.output / ".launcher" / "unjoined").iterdir())
