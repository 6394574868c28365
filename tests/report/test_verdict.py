"""The first sentence names rank, pod and cause, also of a job that runs and of a job whose hub was killed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.report import reader
from launcher.report.facts import Facts, Lease
from launcher.report.verdict import judge
from tests.support.report_jobs import BEGIN, MadeJob, cause, stamp

Made = Callable[..., Facts]


def append(folder: Path, at: float, name: str, **fields: Any) -> None:
    with (folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"v": 1, "at": stamp(at), "event": name, **fields}) + "\n")


def test_a_complete_job_says_how_long_it_took(made: Made) -> None:
    verdict = judge(made())
    assert verdict.state == "complete"
    assert verdict.sentence == "The job is complete: 13 passes in 12 min 17 s, with 4 restarts."


def test_a_failed_job_names_rank_pod_and_cause_with_last_lines_and_advice(made: Made) -> None:
    verdict = judge(made(ends="failed", generations=2))
    assert verdict.sentence.startswith(
        "The job failed: rank 1 (pod quick-start-1): trainer (`python train.py`) was killed"
    )
    assert "out of memory" in verdict.sentence
    assert verdict.tail[-1] == "launch.sh: line 12:    57 Killed    python train.py"
    assert verdict.tail_of == "trainer of rank 1 (pod quick-start-1)"
    assert "more memory" in verdict.advice[0]
    assert "output/node_1/train.log" in verdict.advice[1]
    assert "pass-0000" in verdict.advice[2]


@pytest.mark.parametrize(
    ("fields", "beginning", "advice"),
    [
        ({"kind": "stopped", "what": "got SIGTERM"}, "rank 1 (pod quick-start-1): got SIGTERM", "deleted, evicted"),
        ({"kind": "lost", "what": "was lost"}, "rank 1 (pod quick-start-1): was lost", "OOMKilled"),
        ({"kind": "stalled", "rank": None, "pod": "", "what": "no trainer printed"}, "no trainer printed", "stalled-"),
        ({"kind": "staging", "what": "no shard"}, "rank 1 (pod quick-start-1): no shard", "shard"),
        ({"kind": "volume", "what": "is full"}, "rank 1 (pod quick-start-1): is full", "free space"),
        ({"kind": "peers", "what": "missing: rank 2"}, "missing: rank 2", "kubectl get pods"),
        ({"kind": "pserver", "what": "ended", "code": 134}, "rank 1 (pod quick-start-1): ended", "exit-codes"),
        ({"kind": "trainer", "what": "killed", "code": 137}, "rank 1 (pod quick-start-1): killed", "killed the"),
        ({"kind": "made up", "what": "x"}, "rank 1 (pod quick-start-1): x", "kubectl describe pod quick-start-1"),
    ],
)
def test_each_kind_of_cause_has_its_own_advice(made: Made, fields: Any, beginning: str, advice: str) -> None:
    verdict = judge(made(ends="failed", generations=1, cause=cause(1, **{"kind": "trainer", **fields})))
    assert verdict.sentence.startswith(f"The job failed: {beginning}")
    assert advice in " ".join(verdict.advice)


def test_a_member_that_the_cause_names_already_is_named_once(made: Made) -> None:
    why = cause(1, kind="lost", what="rank 1 (pod quick-start-1) was lost")
    assert judge(made(ends="failed", generations=1, cause=why)).sentence == (
        "The job failed: rank 1 (pod quick-start-1) was lost"
    )


def test_a_job_that_trains_says_its_pass(made: Made) -> None:
    facts = made(ends="running", generations=2)
    facts.lease = Lease(False, 2.0)
    assert judge(facts).sentence == "The job is training: pass 6."


def test_a_silent_trainer_of_a_job_that_trains_is_named(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    facts = reader.read(str(tmp_path / "output"), now=job.end + 1)
    facts.lease = Lease(False, 2.0)
    facts.members[min(facts.members)].samples[-18:] = []
    assert "The job is training: pass 3, rank 0 (pod quick-start-0) was silent for 3" in judge(facts).sentence


def test_a_member_without_connection_is_named(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    peer = {"rank": 2, "role": "both", "pod": "quick-start-2"}
    append(tmp_path / "output", job.end, "peer_lost", peer=peer, why="its connection has ended")
    facts = reader.read(str(tmp_path / "output"), now=job.end + 7)
    facts.lease = Lease(False, 2.0)
    assert "rank 2 (pod quick-start-2) has not been connected for 7.0 s" in judge(facts).sentence
    append(tmp_path / "output", job.end + 1, "peer_returned", peer=peer)
    facts = reader.read(str(tmp_path / "output"), now=job.end + 7)
    facts.lease = Lease(False, 2.0)
    assert judge(facts).sentence == "The job is training: pass 3."


def test_right_after_the_death_of_the_hub_the_hub_is_silent(made: Made) -> None:
    facts = made(ends="running", generations=1, age=15)
    facts.lease = Lease(False, 15.0)
    assert "rank 0 (pod quick-start-0), the hub, was silent for 15 s" in judge(facts).sentence


def test_members_that_wait_for_a_new_pod_say_so(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    output = tmp_path / "output"
    append(output, job.end, "peer_lost", peer={"rank": 2, "role": "both", "pod": "quick-start-2"}, why="x")
    for rank in (0, 1):
        append(output / f"node_{rank}", job.end + 1, "phase", phase="gathering", generation=0)
    facts = reader.read(str(output), now=job.end + 2)
    facts.lease = Lease(False, 2.0)
    assert judge(facts).sentence == "The job waits for a new pod in place of rank 2 (pod quick-start-2)."


def test_the_members_say_the_cause_if_the_hub_was_killed(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    why = cause(0, kind="lost", what="was lost without a message", tail=[])
    for rank in (1, 2):
        append(tmp_path / "output" / f"node_{rank}", job.end + 1, "ended", exit_code=69, first_cause=why, generation=0)
    verdict = judge(reader.read(str(tmp_path / "output"), now=job.end + 2))
    assert verdict.state == "failed"
    assert verdict.sentence == "The job failed: rank 0 (pod quick-start-0): was lost without a message"


def test_a_job_whose_pods_were_all_killed_says_who_wrote_no_end(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    lease = tmp_path / "output" / ".launcher" / ".leases" / "0"
    os.utime(lease, (time.time() - 500, time.time() - 500))
    verdict = judge(reader.read(str(tmp_path / "output"), now=job.end + 500))
    assert verdict.state == "silent"
    assert "the hub was silent for" in verdict.sentence
    assert "rank 0, rank 1 and rank 2 wrote no end" in verdict.sentence


def test_a_folder_without_events_is_a_job_that_has_not_begun(tmp_path: Path) -> None:
    verdict = judge(reader.read(str(tmp_path), now=BEGIN))
    assert verdict.sentence == "The job has not begun: no member has joined yet."


def test_a_clock_that_is_days_ahead_does_not_keep_a_dead_job_running(tmp_path: Path) -> None:
    job = MadeJob(ends="running", generations=1)
    output = job.write(tmp_path) / "output"
    append(output / "node_1", job.end + 300_000, "numbers", generation=0, loss=0.5)
    facts = reader.read(str(output), now=job.end + 3600)
    facts.lease = Lease(False, 3600.0)
    assert judge(facts).state == "silent"


def test_a_complete_job_counts_its_changes_of_size_apart_from_its_restarts(elastic: Facts) -> None:
    assert judge(elastic).sentence.endswith(", with 2 restarts and 2 changes of size.")


def test_a_job_that_runs_after_a_change_of_size_names_no_failure(made: Made) -> None:
    grows = cause(0, kind="resized", rank=None, role=None, what="the job grows from 2 to 3 trainers", tail=[])
    facts = made(ends="running", generations=2, sizes=(2, 3), ended_by={0: grows})
    facts.lease = Lease(False, 2.0)
    assert judge(facts).cause is None


def test_a_job_that_changes_its_size_says_so(tmp_path: Path) -> None:
    grows = cause(0, kind="resized", rank=None, role=None, what="the job grows from 2 to 3 trainers", tail=[])
    job = MadeJob(ends="running", generations=1)
    job.write(tmp_path)
    output = tmp_path / "output"
    one = {"number": 0, "began": stamp(job.end - 100), "ended": stamp(job.end), "trainers": 2, "first_cause": grows}
    append(output, job.end, "generation_ended", generation=one)
    for rank in range(3):
        append(output / f"node_{rank}", job.end + 1, "phase", phase="gathering", generation=0)
    facts = reader.read(str(output), now=job.end + 2)
    facts.lease = Lease(False, 2.0)
    assert judge(facts).sentence == "The job changes its size: the job grows from 2 to 3 trainers."
