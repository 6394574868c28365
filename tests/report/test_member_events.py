"""The events of one member add up to launchers, spans, failures and samples. Memory is bounded."""

from __future__ import annotations

import math
from typing import Any

from launcher.report.facts import Member, Place
from launcher.report.member_events import MemberEvents, Passes
from tests.support.report_jobs import BEGIN, stamp


def fold(*found: tuple[float, str, dict[str, Any]], samples: int = 100) -> tuple[Member, Passes, dict[int, float]]:
    member = Member(Place(0, 1))
    passes: Passes = {}
    training_from: dict[int, float] = {}
    events = MemberEvents(member, passes, training_from, samples)
    for at, name, more in found:
        events.add({"v": 1, "at": stamp(BEGIN + at), "event": name, **more})
    return member, passes, training_from


def phase(at: float, name: str, generation: int | None = 0) -> tuple[float, str, dict[str, Any]]:
    return at, "phase", {"phase": name} | ({} if generation is None else {"generation": generation})


def test_the_phases_are_spans() -> None:
    member, _, training_from = fold(
        (0, "staging_begun", {}),
        (2, "joined", {"pod": "p", "uid": "u", "role": "both"}),
        phase(2, "starting", None),
        (3, "staging_ended", {"bytes": 7}),
        (4, "generation", {"generation": 0}),
        phase(4, "starting"),
        phase(5, "training"),
        phase(9, "restarting"),
        (10, "generation", {"generation": 1, "after_pass": 4}),
        phase(10, "starting", 1),
        phase(11, "training", 1),
        phase(15, "trained", 1),
        phase(16, "complete", 1),
    )
    (run,) = member.runs
    shown = [(span.state, span.begin - BEGIN, span.end - BEGIN) for span in run.spans]
    assert shown == [
        ("staging", 0, 3),
        ("waiting", 3, 4),
        ("starting", 4, 5),
        ("training", 5, 9),
        ("restarting", 9, 10),
        ("starting", 10, 11),
        ("training", 11, 15),
        ("finished", 15, 16),
    ]
    assert run.state == ""
    assert (member.copied, member.last_pass, member.pod) == (7, 4, "p")
    assert training_from == {0: BEGIN + 5, 1: BEGIN + 11}


def test_a_member_that_joins_again_is_the_same_launcher() -> None:
    joined = {"pod": "p", "uid": "u", "role": "both"}
    member, _, _ = fold(
        (0, "joined", joined),
        phase(1, "training"),
        phase(5, "gathering"),
        (9, "joined", joined),
        phase(9, "starting"),
    )
    (run,) = member.runs
    assert run.state == "waiting"


def test_a_launcher_in_the_same_pod_after_a_restart_of_the_container_is_another_one() -> None:
    joined = {"pod": "p", "uid": "u", "role": "both"}
    member, _, _ = fold((0, "joined", joined), phase(1, "training"), (20, "staging_begun", {}), (21, "joined", joined))
    assert [(run.begin - BEGIN, run.last - BEGIN) for run in member.runs] == [(0, 1), (20, 21)]


def test_a_process_that_ended_with_0_is_no_failure() -> None:
    member, _, _ = fold(
        (1, "process_ended", {"process": "trainer", "exit_code": 0}),
        (2, "process_ended", {"process": "trainer", "exit_code": 0, "out_of_memory": "ran out"}),
        (3, "process_ended", {"process": "pserver", "exit_code": 9, "tail": ["x"]}),
    )
    assert [(death.process, death.exit_code) for death in member.deaths] == [("trainer", 0), ("pserver", 9)]


def test_equal_warnings_are_counted() -> None:
    member, _, _ = fold(*((number, "warning", {"text": "again"}) for number in range(5)))
    assert member.warnings == {"again": (5, BEGIN)}


def test_many_samples_are_thinned_evenly() -> None:
    member, _, _ = fold(*((number, "numbers", {"loss": number}) for number in range(5000)), samples=100)
    assert 100 <= len(member.samples) < 200
    steps = {round(b.at - a.at) for a, b in zip(member.samples[:-1], member.samples[1:], strict=True)}
    assert steps == {32}


def test_numbers_may_be_missing_or_no_numbers() -> None:
    member, passes, _ = fold(
        (1, "numbers", {"loss": "nan", "examples_per_second": "inf"}),
        (2, "numbers", {"step": 7}),
        (3, "numbers", {"loss": "evil", "accuracy": []}),
        (4, "pass", {"pass": 3, "generation": 0, "loss": "inf"}),
        (5, "pass", {"pass": -1, "generation": 0}),
    )
    (sample,) = member.samples
    assert math.isnan(sample.loss or 0)
    assert [done.loss for done in passes[0, 3]] == [math.inf]
    assert len(passes) == 1
