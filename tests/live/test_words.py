"""Times, numbers and events in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from launcher.live import words

AT = "2026-11-19T11:10:00.500Z"
AGAIN = "generation 1 begins"
CAUSE = {"rank": 1, "role": "both", "pod": "pod-1", "what": "trainer ended with 3", "kind": "trainer", "code": 3}


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (7.4, "7s"), (185, "3m5s"), (7620, "127m"), (20_000, "5h33m"), (270_000, "3d")]
)
def test_an_age_has_two_units_at_most(seconds: float, text: str) -> None:
    assert words.age(seconds) == text


def test_numbers_have_as_many_digits_as_a_reader_needs() -> None:
    assert [words.loss(each) for each in (None, 0.24812, 12.3, 1037.63, 1e-5, 0.00052, 0.0, 1e9, math.nan)] == (
        ["", "0.2481", "12.30", "1038", "1.00e-05", "5.20e-04", "0", "1.00e+09", "nan"]
    )
    assert [words.speed(each) for each in (None, 3.77, 5312.4, 1e12)] == ["", "3.8", "5,312", "1.00e+12"]
    assert words.ranks([12, 1, 0, 2]) == "0-2, 12"


@pytest.mark.parametrize(
    ("event", "told", "is_problem"),
    [
        ({"event": "gang", "members": [{}, {}]}, "all 2 members have joined", False),
        ({"event": "generation_begun", "generation": {"number": 1}}, "generation 1 begins", False),
        ({"event": "generation_begun", "generation": {"number": 1, "after_pass": 4}}, f"{AGAIN} after pass 4", False),
        (
            {"event": "generation_ended", "generation": {"number": 1, "first_cause": CAUSE}},
            "generation 1 has ended: rank 1 (pod-1): trainer ended with 3",
            True,
        ),
        ({"event": "pass", "pass": 3}, "pass 3 is done", False),
        ({"event": "peer_lost", "peer": {"rank": 1, "pod": "pod-1"}, "why": "gone"}, "rank 1 (pod-1): gone", True),
        ({"event": "ended", "exit_code": 0}, "the job is complete", False),
        ({"event": "ended", "exit_code": 3, "first_cause": CAUSE}, "the job has failed: exit code 3", True),
    ],
)  # fmt: skip
def test_events_of_the_job_are_told_in_words(event: dict[str, Any], told: str, is_problem: bool) -> None:
    found = words.job_event({"at": AT, **event})
    assert found is not None
    assert (found.text, found.is_problem, found.at % 1) == (told, is_problem, 0.5)


@pytest.mark.parametrize("name", ["gang", "generation_begun", "generation_ended", "pass", "peer_lost", "ended", "new"])
@pytest.mark.parametrize("value", [None, 5, "x\x1b", [1], {"number": [], "first_cause": 5, "rank": {}}])
def test_no_content_of_an_event_is_too_odd(name: str, value: object) -> None:
    fields = ("members", "generation", "pass", "peer", "why", "exit_code", "first_cause")
    event = {"at": "not a time", "event": name, **dict.fromkeys(fields, value)}
    found = words.job_event(event)
    assert found is None or found.text.isprintable()
    for other in ("process_ended", "stop_requested", "warning"):
        line = words.member_event("rank 0", event | {"event": other, "process": value, "text": value})
        assert line is None or line.text.isprintable()


def test_only_the_member_at_fault_has_the_whole_cause() -> None:
    assert words.own_cause({"role": "both", "rank": 1, "first_cause": CAUSE}) == "trainer ended with 3"
    assert words.own_cause({"role": "both", "rank": 0, "first_cause": CAUSE}) == "because of rank 1"
    assert words.own_cause({"rank": 0, "first_cause": CAUSE | {"rank": None}}) == "trainer ended with 3"
    assert words.own_cause({"rank": 0}) == ""


def test_a_change_of_size_is_told_in_words_and_is_no_problem() -> None:
    grows = {"kind": "resized", "rank": None, "pod": "pod-0", "what": "the job grows from 2 to 3 trainers"}
    ended = words.job_event({"at": AT, "event": "generation_ended", "generation": {"number": 0, "first_cause": grows}})
    assert ended is not None
    assert (ended.text, ended.is_problem) == ("generation 0 has ended: the job grows from 2 to 3 trainers", False)
    begun = {"at": AT, "event": "generation_begun", "generation": {"number": 1, "after_pass": 2, "trainers": 3}}
    told = [found.text for before in (2, 3, None) if (found := words.job_event(begun, before))]
    assert told == [f"{AGAIN} after pass 2, with 3 trainers instead of 2", *[f"{AGAIN} after pass 2"] * 2]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"event": "newcomers", "count": 1}, "1 member waits until the job grows"),
        ({"event": "newcomers", "count": 2}, "2 members wait until the job grows"),
        ({"event": "pass_repeated", "pass": 3}, "pass 3 was interrupted, and is repeated"),
        ({"event": "pass_repeated"}, "the training begins again"),
    ],
)
def test_events_of_an_elastic_job_are_told_in_words(event: dict[str, Any], told: str) -> None:
    found = words.job_event({"at": AT, **event})
    assert found is not None
    assert (found.text, found.is_problem) == (told, False)
