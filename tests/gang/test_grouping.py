"""The text about the processes of all members: groups by place, large groups first."""

from __future__ import annotations

import pytest

from launcher.gang.grouping import groups, summary
from launcher.model import MemberReport, ProcessState, Shape

WAITS = ProcessState("trainer", "all_reduce, train.py:57", "wait, paddle/group.py:9", 41.2)
READS = ProcessState("trainer", "read, train.py:42", "read, train.py:42", 40.0)
SERVES = ProcessState("pserver", "run_server, train.py:12", "", 60.0)
LOADS = ProcessState("child of a trainer", "load, data.py:3", "", 41.0)


def member(*states: ProcessState, phase: str = "training") -> MemberReport:
    return MemberReport(phase, len(states), states)


@pytest.mark.parametrize(
    ("reports", "text"),
    [
        (
            [member(WAITS), member(WAITS), member(READS), member(WAITS)],
            "3 of 4 in all_reduce, train.py:57, no output for 41 s; rank 2 in read, train.py:42, no output for 40 s",
        ),
        ([member(WAITS), member(READS)], "rank 0 in all_reduce, train.py:57, no output for 41 s; rank 1 in read"),
        ([member(SERVES, WAITS), member(SERVES, READS)], "rank 0 in all_reduce"),
        ([member(SERVES), member(SERVES)], "2 of 2 in run_server, train.py:12, no output for 60 s"),
        ([member(WAITS), member(phase="starting")], "rank 0 in all_reduce, train.py:57, no output for 41 s; rank 1: "),
        ([member(WAITS), None], "rank 0 in all_reduce, train.py:57, no output for 41 s; rank 1 did not answer"),
        ([None, None, None], "3 of 3 did not answer"),
    ],
)
def test_the_summary_names_the_places_of_the_trainers(reports: list[MemberReport | None], text: str) -> None:
    known = {rank: report for rank, report in enumerate(reports) if report}
    assert summary(known, Shape(len(reports))).startswith(text)


def test_in_a_job_with_roles_members_are_named_by_role() -> None:
    reports = {0: member(WAITS), 1: member(READS), 2: member(SERVES)}
    assert summary(reports, Shape(2, 1)) == (
        "trainer 0 in all_reduce, train.py:57, no output for 41 s; trainer 1 in read, train.py:42, no output for 40 s"
    )


def test_trainers_come_before_servers_and_servers_before_child_processes() -> None:
    found = groups({0: member(LOADS, SERVES, WAITS), 1: member(SERVES)}, Shape(3))
    assert [(group.role, group.ranks) for group in found] == [
        ("trainer", [0]),
        ("pserver", [0, 1]),
        ("child of a trainer", [0]),
        ("", [2]),
    ]


def test_the_summary_of_a_thousand_members_at_different_places_stays_short() -> None:
    reports = {rank: member(ProcessState("trainer", f"step, train.py:{rank}", "", 1.0)) for rank in range(1000)}
    text = summary(reports, Shape(1000))
    assert text.endswith("; and 992 more places")
    assert len(text) < 1000
