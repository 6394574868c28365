"""What a member knows about itself and the job, and what it writes about them."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.config import JobConfig
from launcher.errors import Exit, Failure
from launcher.gang import NotComplete
from launcher.model import FIRST, Cause, CauseKind, Outcome, Start
from launcher.processes.supervisor import Supervisor
from launcher.run import node as node_module
from launcher.run.node import Node
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.record import Record
from tests.support.members import in_loop, until
from tests.support.sessions import IDENTITY, KILLED, SETTINGS, FakeSupervisor, job_config, joined, node_of

OTHER_GANG = LeaseOwner("gang-2", "job-2", "pod-x", "uid-x", 30.0)


def mark(node: Node, start: Start) -> tuple[str | None, str]:
    """Begin a generation. Return the folder of its logs, and the mark that separates them from earlier logs."""
    supervisor = FakeSupervisor(lambda event: None)
    node.begin(start, cast(Supervisor, supervisor))
    (placed,) = supervisor.logs
    return placed


def fail_without_progress(job: JobConfig, attempts: int) -> None:
    record = Record(job.output, IDENTITY)
    record.open()
    write_attempts(record, {"without_progress": attempts, "generations": []})


def write_attempts(record: Record, history: Mapping[str, Any]) -> None:
    Path(record.attempts_file).write_text(json.dumps(history))


def save_pass(folder: Path, *names: str) -> Path:
    """Make a pass with empty files of these names."""
    made = Path(job_config(folder).output, "pass-00000")
    made.mkdir()
    for name in names:
        (made / name).touch()
    return made


def content(folder: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, name).read_bytes())
    return found


# ---- joining ---------------------------------------------------------------------------------------------------------


@in_loop
async def test_before_the_join_a_member_knows_only_its_configuration(tmp_path: Path) -> None:
    node = Node(job_config(tmp_path), (), ())
    assert (node.rank, node.name, node.roster, node.journal, node.generations) == (1, "pod-1", None, None, None)
    node.passed(0)
    node.enter("training")
    cause = node.cause(CauseKind.STOPPED, "got SIGTERM", Exit.STOPPED)
    assert cause == Cause(CauseKind.STOPPED, 1, "pod-1", "got SIGTERM", Exit.STOPPED)


@in_loop
async def test_rank_and_name_are_those_of_the_roster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = job_config(tmp_path, rank=None, POD_NAME="a-host-name")
    node = Node(job, (), ())
    assert (node.rank, node.name) == (None, "a-host-name")
    node.join(joined(job, 1), SETTINGS, lambda cause: None)
    assert (node.rank, node.name) == (1, "pod-1")
    assert "the gang is complete: this is rank 1 of 2, the hub is pod-0" in caplog.text


@in_loop
async def test_the_lines_of_the_log_begin_with_the_rank(tmp_path: Path) -> None:
    handler = logging.NullHandler()
    logging.getLogger("launcher").addHandler(handler)
    try:
        node_of(tmp_path, 1)
    finally:
        logging.getLogger("launcher").removeHandler(handler)
    assert handler.name == "rank 1"


@in_loop
async def test_only_the_hub_has_generations_and_keeps_them_over_all_its_gangs(tmp_path: Path) -> None:
    assert node_of(tmp_path, 1).generations is None
    hub = node_of(tmp_path, 0)
    before = hub.generations
    assert before is not None
    hub.join(joined(job_config(tmp_path, rank=0), 0), SETTINGS, lambda cause: None)
    assert hub.generations is before


@in_loop
async def test_the_callback_for_a_lost_lease_is_that_of_the_latest_gang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.store.lease._RENEW_EVERY_AT_MOST", 0.01)
    lost: list[str] = []
    job = job_config(tmp_path, rank=0)
    node = Node(job, (), ())
    node.join(joined(job, 0), SETTINGS, lambda cause: lost.append("first"))
    assert node.generations is not None
    assert node.roster is not None
    await node.generations.prepare(None, node.roster)
    node.join(joined(job, 0), SETTINGS, lambda cause: lost.append("second"))
    LeaseFiles(job.output).take(1, OTHER_GANG)
    await until(lambda: lost)
    assert lost == ["second"]


# ---- a generation ----------------------------------------------------------------------------------------------------


@in_loop
async def test_the_mark_of_the_log_names_generation_pod_pass_and_the_last_cause(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    assert mark(node, FIRST) == (str(tmp_path / "job" / "output" / "node_1"), "generation 0, pod pod-1")
    node.last_cause = replace(KILLED, what="trainer was killed:\n  memory ran out")
    because = "because rank 0 (pod-0): trainer was killed: memory ran out"
    assert mark(node, Start(3, 7))[1] == f"generation 3, pod pod-1, after pass 7, {because}"


@in_loop
async def test_the_status_has_the_generation_the_phase_and_the_latest_pass(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    mark(node, Start(3, 7))
    node.enter("training")
    node.passed(8)
    assert node.journal is not None
    assert node.journal.flush(8)
    status = content(node.journal.folder, "status.json")
    assert (status["generation"], status["phase"], status["last_pass"]) == (3, "training", 8)


@in_loop
async def test_passes_of_v0_that_are_read_together_are_all_in_the_timeline(tmp_path: Path) -> None:
    node = node_of(tmp_path, 0)
    mark(node, Start(1, 3))
    node.passed(6)
    node.passed(7)
    assert node.journal is not None
    assert node.journal.flush(8)
    lines = (Path(node.journal.folder) / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["pass"] for event in events if event["event"] == "pass"] == [4, 5, 6, 7]


@in_loop
async def test_a_snapshot_shows_phase_generation_size_restarts_pass_output_peers_and_outcome(tmp_path: Path) -> None:
    node = node_of(tmp_path, 1)
    before = node.snapshot()
    assert (before.phase, before.generation, before.size, before.restarts) == ("starting", None, 2, 0)
    assert (before.last_pass, before.output_age, before.peers, before.outcome) == (None, None, 0, None)
    mark(node, FIRST)
    mark(node, Start(4, 7))
    node.enter("training")
    node.passed(8)
    node.output_at = time.monotonic() - 5
    node.connected_peers = lambda: 1
    now = node.snapshot()
    assert (now.phase, now.generation, now.restarts, now.last_pass, now.peers) == ("training", 4, 1, 8, 1)
    assert now.output_age is not None
    assert now.output_age >= 5
    assert now.lease_age is None
    result = Outcome(Exit.COMPLETE, None, "the job is complete")
    node.end(result)
    assert (node.snapshot().phase, node.snapshot().outcome) == ("complete", result)


@in_loop
async def test_a_hub_that_has_acquired_the_lease_shows_it_in_its_snapshot(tmp_path: Path) -> None:
    hub = node_of(tmp_path, 0)
    assert hub.snapshot().lease_age is None
    assert hub.generations is not None
    assert hub.roster is not None
    await hub.generations.prepare(None, hub.roster)
    assert hub.snapshot().lease_age is not None


@in_loop
async def test_a_pass_is_counted_only_on_the_hub(tmp_path: Path) -> None:
    fail_without_progress(job_config(tmp_path), 3)
    node = node_of(tmp_path, 0)
    assert node.generations is not None
    assert node.roster is not None
    await node.generations.prepare(None, node.roster)
    history = node.generations.history
    save_pass(tmp_path, "done")
    node.join(joined(job_config(tmp_path), 1), SETTINGS, lambda cause: None)  # another member is the hub now
    node.passed(0)
    await asyncio.sleep(0.05)
    assert history.without_progress == 4
    node.join(joined(job_config(tmp_path), 0), SETTINGS, lambda cause: None)
    node.passed(0)
    await until(lambda: history.without_progress == 0)
    await node.release_folder(None)


class OneMark:
    """Let the mark of completion fail so often, and count the tries."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
        assert node.generations is not None
        record = node.generations._record
        write = record.mark_complete
        self.tries = 0

        def mark_complete() -> None:
            self.tries += 1
            if self.tries <= failures:
                raise Failure(Exit.IO_FAILED, "writing failed")
            write()

        monkeypatch.setattr(record, "mark_complete", mark_complete)
        monkeypatch.setattr(node_module, "_MARK_AGAIN", 0.01)


@pytest.mark.parametrize("failures", [0, 2])
@in_loop
async def test_the_mark_of_completion_is_tried_again_if_the_volume_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    node = node_of(tmp_path, 0)
    mark = OneMark(node, monkeypatch, failures)
    await node.mark_complete()
    assert mark.tries == failures + 1
    assert await node.is_complete()


@in_loop
async def test_after_three_tries_the_failure_of_the_mark_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(tmp_path, 0)
    mark = OneMark(node, monkeypatch, 9)
    with pytest.raises(Failure, match="writing failed"):
        await node.mark_complete()
    assert mark.tries == 3


@in_loop
async def test_a_job_whose_last_pass_is_not_whole_is_not_marked_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "_MARK_SEEN_WITHIN", 0.05)
    node = node_of(tmp_path, 0)
    folder = save_pass(tmp_path, "w", "done")
    with pytest.raises(NotComplete) as refused:
        await node.mark_complete()
    cause = refused.value.cause
    assert (cause.kind, cause.rank, cause.code) == (CauseKind.VOLUME, 0, Exit.CANNOT_WRITE)
    assert cause.what.startswith(f"{folder} is not whole: its file w is empty")
    assert not await node.is_complete()


# ---- the files at the end --------------------------------------------------------------------------------------------


async def hub_with_a_lease(folder: Path) -> tuple[Node, LeaseFiles]:
    node = node_of(folder, 0)
    assert node.generations is not None
    assert node.roster is not None
    await node.generations.prepare(None, node.roster)
    return node, LeaseFiles(str(folder / "job" / "output"))


@in_loop
async def test_the_lease_is_released_with_the_time_in_which_the_last_process_ends(tmp_path: Path) -> None:
    node, leases = await hub_with_a_lease(tmp_path)
    await node.release_folder(7.0)
    lease = leases.latest()
    assert lease is not None
    assert (lease.is_released, lease.ends_within) == (True, 7.0)


@in_loop
async def test_a_lease_is_not_released_if_that_time_is_not_known(tmp_path: Path) -> None:
    node, leases = await hub_with_a_lease(tmp_path)
    await node.release_folder(None)
    lease = leases.latest()
    assert lease is not None
    assert not lease.is_released


@in_loop
async def test_another_gang_trains_only_if_its_lease_is_the_latest_and_still_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, leases = await hub_with_a_lease(tmp_path)
    assert not await node.another_trains()
    leases.take(1, OTHER_GANG)
    assert await node.another_trains()
    monkeypatch.setattr(node_module, "_HOLDS_FOR", -1.0)
    assert not await node.another_trains()
    monkeypatch.setattr(node_module, "_HOLDS_FOR", 30.0)
    leases.release("gang-2", 1.0)
    assert not await node.another_trains()


@in_loop
async def test_the_mark_of_completion_that_comes_late_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = node_of(tmp_path, 1)
    looks: list[bool] = []

    def look(record: Record) -> bool:
        looks.append(len(looks) == 1)
        return looks[-1]

    monkeypatch.setattr(Record, "is_complete", look)
    assert await asyncio.wait_for(node.is_complete(), 8)
    assert looks == [False, True]


@in_loop
async def test_a_job_without_the_mark_of_completion_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "_MARK_SEEN_WITHIN", 0.05)
    assert not await node_of(tmp_path, 1).is_complete()


@pytest.mark.parametrize(("rank", "writes"), [(1, True), (0, False)])
@in_loop
async def test_only_rank_1_explains_the_end_of_a_generation_whose_hub_is_lost(
    tmp_path: Path, rank: int, writes: bool
) -> None:
    node = node_of(tmp_path, rank)
    record = Record(str(tmp_path / "job" / "output"), IDENTITY)
    history = record.history(job_config(tmp_path).shape)
    history.begin(0, None, 2)
    write_attempts(record, history.content())
    lost = Cause(CauseKind.LOST, 0, "pod-0", "its connection ended", Exit.PEER_LOST)
    await node.explain_end(0, lost)
    (generation,) = record.attempts()["generations"]
    assert (generation["first_cause"] is not None) == writes
