"""The rules that the launchers of an elastic job must keep, checked from outside of the launchers."""

from __future__ import annotations

import itertools
import json
import os
from collections import defaultdict
from functools import partial
from typing import Any

from launcher.errors import Exit
from tests.simulation import whole_job_rules
from tests.simulation.children import trainer_id
from tests.simulation.elastic_jobs import ElasticSchedule, Scale
from tests.simulation.pods import Pod
from tests.simulation.schedule import Cut, Death, Freeze, Killed, Off, Silence, Told
from tests.simulation.whole_job_rules import TOLERANCE, lifetimes, results
from tests.simulation.whole_jobs import Stalls, Tale

_CODES = {
    *(Exit.COMPLETE, Exit.STOPPED, Exit.PEER_FAILED, Exit.PEER_LOST, Exit.TIMED_OUT, Exit.GIVEN_UP, Exit.IO_FAILED),
    1,  # of a trainer or a pserver
}


def schedule_of(tale: Tale) -> ElasticSchedule:
    assert isinstance(tale.schedule, ElasticSchedule)
    return tale.schedule


def history(tale: Tale) -> list[dict[str, Any]]:
    path = os.path.join(tale.scene.jobs[0].output, "job.json")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        found: list[dict[str, Any]] = json.load(file)["generations"]
    return found


def trainers_of_two_generations_never_run_together(tale: Tale) -> None:
    """Trainers of a frozen or unreachable launcher, or of one whose hub was killed, may continue for a while."""
    if tale.has(Freeze, Silence, Cut, Killed, Off, Stalls):
        return
    trainers = [lifetime for lifetime in lifetimes(tale) if lifetime[0].process.role == "trainer"]
    for (one, pod, begun, ended), (other, another, began, finished) in itertools.combinations(trainers, 2):
        if one.generation != other.generation:
            together = min(ended, finished) - max(begun, began)
            assert together <= TOLERANCE, f"for {together:g} s at {max(begun, began):g}: {pod.label} {another.label}"


def each_generation_has_dense_ranks_and_all_shards_once(tale: Tale) -> None:
    shares: dict[Pod, list[str]] = {}
    ranks: dict[int | None, dict[int, list[str]]] = defaultdict(dict)
    for entry in tale.scene.entries:
        if entry.kind == "runs" and entry.text.startswith("copy "):
            shares[entry.pod] = [what for what in entry.text.removeprefix("copy ").split(", ") if "shard" in what]
        if "started" in entry.facts and entry.facts["started"].process.role == "trainer":
            child = entry.facts["started"]
            rank = trainer_id(child.process)
            known = ranks[child.generation]
            assert rank not in known, f"two trainers {rank} in generation {child.generation}"
            known[rank] = shares.get(entry.pod, [])
    sizes = {one["number"]: one["trainers"] for one in history(tale)}
    for generation, found in ranks.items():
        if generation is None or len(found) != sizes.get(generation):
            continue  # not all trainers have started
        assert sorted(found) == list(range(len(found))), f"generation {generation}: {sorted(found)}"
        shards = sorted(shard for share in found.values() for shard in share)
        expected = [f"shard {number}" for number in range(schedule_of(tale).size)]
        assert shards == expected, f"generation {generation}: {found}"


def each_size_is_within_its_limits(tale: Tale) -> None:
    schedule = schedule_of(tale)
    for one in history(tale):
        assert schedule.least <= one["trainers"] <= schedule.size, one


def growing_loses_no_saved_pass(tale: Tale) -> None:
    before: int | None = None
    for one, following in itertools.pairwise(history(tale)):
        cause, before = one["first_cause"], one["after_pass"]
        after = following["after_pass"]
        assert before is None or (after is not None and after >= before), f"{before} then {after}"
        if cause and cause["kind"] == "resized" and schedule_of(tale).saves and not schedule_of(tale).step:
            assert after is not None, "the job grew before a pass was saved"
            assert before is None or after > before, f"grew after {before}, then resumed after {after}"


def all_trainers_that_save_save_after_the_same_step(tale: Tale) -> None:
    saved: dict[int | None, set[int]] = defaultdict(set)
    for entry in tale.scene.entries:
        if "agreed" in entry.facts:
            generation, step = entry.facts["agreed"]
            saved[generation].add(step)
    for generation, steps in saved.items():
        assert len(steps) == 1, f"generation {generation}: {steps}"


def a_job_with_enough_pods_completes(tale: Tale) -> None:
    """Only sizes have changed, and at the end there are enough pods."""
    schedule = schedule_of(tale)
    if tale.has(Death, Cut, Silence, Freeze, Killed, Off, Told, Stalls):
        return
    wanted = [fault.pods for fault in schedule.faults if isinstance(fault, Scale)]
    if min([schedule.begins, *wanted]) >= schedule.least:
        codes = {pod.label: int(result.code) for pod, result in results(tale)}
        assert Exit.COMPLETE in codes.values(), codes
        assert set(codes.values()) <= {Exit.COMPLETE, Exit.STOPPED}, codes


def exit_codes_are_as_documented(tale: Tale) -> None:
    for pod, result in results(tale):
        assert result.code in _CODES, f"{pod.label}: {result}"
        assert result.code != Exit.STOPPED or pod.told_at, f"{pod.label} got no signal: {result}"


RULES = (
    whole_job_rules.every_launcher_ends,
    whole_job_rules.no_launcher_reports_a_fault_of_its_own,
    trainers_of_two_generations_never_run_together,
    whole_job_rules.no_process_runs_after_its_launcher_has_left,
    whole_job_rules.a_launcher_starts_no_process_after_sigterm,
    whole_job_rules.a_trainer_starts_after_its_member_has_copied_its_files,
    partial(whole_job_rules.a_trainer_starts_after_the_server_of_its_pod_serves, lone_trainers=True),
    whole_job_rules.a_trainer_resumes_after_the_last_pass,
    whole_job_rules.a_launcher_leaves_in_time_after_sigterm,
    whole_job_rules.the_termination_message_contains_the_outcome,
    whole_job_rules.exit_code_0_requires_the_mark_of_completion,
    whole_job_rules.each_generation_begins_once,
    whole_job_rules.nothing_is_written_after_the_lease_has_ended,
    each_generation_has_dense_ranks_and_all_shards_once,
    each_size_is_within_its_limits,
    growing_loses_no_saved_pass,
    all_trainers_that_save_save_after_the_same_step,
    a_job_with_enough_pods_completes,
    exit_codes_are_as_documented,
)
