"""The lanes have what the events say; members with the same lane share it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launcher.report.facts import LOST, TRAINING, Facts, Lease, Member, PeerChange, Place
from launcher.report.lanes import MOST_LANES, Lane, lanes
from launcher.report.verdict import judge

Made = Callable[..., Facts]


def lanes_of(facts: Facts) -> list[Lane]:
    return lanes(facts, judge(facts))


def test_a_member_trains_once_per_generation(made: Made) -> None:
    facts = made()
    for lane in lanes_of(facts):
        training = [span for span in lane.spans if span.state == TRAINING]
        assert len(training) == 5
        assert training[0].begin == pytest.approx(facts.generations[0].began + 4.5, abs=1)


def test_spans_of_a_lane_follow_each_other(made: Made) -> None:
    for lane in lanes_of(made()):
        for one, other in zip(lane.spans, lane.spans[1:], strict=False):
            assert one.end <= other.begin + 1e-6


def test_each_failure_is_marked_on_the_member_that_had_it(made: Made) -> None:
    marks = [[mark.number for mark in lane.marks] for lane in lanes_of(made())]
    assert marks == [[0, 3], [1], [2]]


def test_a_lost_member_is_lost_until_now(made: Made) -> None:
    facts = made(ends="running", generations=1, age=20)
    facts.lease = Lease(False, 1.0)
    facts.peers.append(PeerChange(facts.now - 20, Place(0, 1), "quick-start-1", True, "x"))
    spans = [lane.spans[-1] for lane in lanes_of(facts)]
    assert [span.state for span in spans] == [TRAINING, LOST, TRAINING]
    assert spans[1].end - spans[1].begin == pytest.approx(20, abs=0.1)
    assert spans[0].end == facts.now


def test_equal_lanes_of_a_large_job_are_one_and_those_that_differ_come_first(made: Made) -> None:
    found = lanes_of(made(ranks=60, generations=4, every=0))
    assert [lane.label for lane in found] == ["rank 0", "rank 1", "rank 2", "ranks 3\N{EN DASH}59"]
    assert found[-1].note == "57 members"
    assert {span.state for span in found[-1].spans} >= {"staging", "starting", TRAINING, "restarting"}


def test_a_job_in_which_each_member_differs_has_a_bounded_number_of_lanes(made: Made) -> None:
    facts = made(ranks=120, generations=2, every=0)
    for place, member in facts.members.items():
        run = member.runs[0]
        run.spans = [span for number, span in enumerate(run.spans) if place.number >> number & 1 or number > 6]
    found = lanes_of(facts)
    assert len(found) <= MOST_LANES
    assert sum(len(lane.members) for lane in found) == 120


def test_a_change_of_size_is_not_marked_as_a_failure(elastic: Facts) -> None:
    assert [[mark.number for mark in lane.marks] for lane in lanes_of(elastic)] == [[3], [1], []]


def test_a_member_that_was_told_to_leave_an_elastic_job_is_not_lost(elastic: Facts) -> None:
    run = elastic.members[Place(False, 2)].runs[0]
    run.ended = elastic.generations[2].ended
    assert LOST not in [span.state for span in lanes_of(elastic)[2].spans]


def test_the_label_of_a_shared_lane_names_all_roles() -> None:
    places = [
        Place.of(role, number)
        for role, count in (("heter", 3), ("trainer", 2), ("pserver", 1))
        for number in range(count)
    ]
    shared = Lane([Member(place, place.role) for place in places], [])
    assert shared.label == "trainers 0\N{EN DASH}1, pservers 0, heter workers 0\N{EN DASH}2"
    assert [place.folder for place in sorted(places)] == [
        *("node_0", "node_1", "pserver_0", "heter_0", "heter_1", "heter_2")
    ]
