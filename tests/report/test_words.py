"""Numbers and times are short, and never say more than is known."""

from __future__ import annotations

import math

import pytest

from launcher.report import words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.85, "850 ms"),
        (4.21, "4.2 s"),
        (42, "42 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (273_600, "3 d 4 h"),
        (-3, "0 s"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.711, "71 %"), (0.9999, "99 %"), (1, "100 %"), (0.001, "<1 %"), (0, "0 %")]
)
def test_only_everything_is_100_percent(share: float, text: str) -> None:
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12_400.0, "12,400"), (3.14159, "3.14"), (math.nan, "nan"), (math.inf, "inf"), (None, "")]
)
def test_a_quantity_has_a_few_digits(value: float | None, text: str) -> None:
    assert words.quantity(value) == text


def test_numbers_in_a_row_are_a_range() -> None:
    assert words.ranges([7, 0, 1, 2, 9, 8, 5]) == "0\N{EN DASH}2, 5, 7\N{EN DASH}9"
    assert words.ranges(range(0, 40, 2), most=2) == "0, 2, ..."


def test_of_many_names_some_are_counted() -> None:
    assert words.names(["rank 1"]) == "rank 1"
    assert words.names(["rank 1", "rank 2", "rank 3"]) == "rank 1, rank 2 and rank 3"
    assert words.names([f"rank {number}" for number in range(9)], 2) == "rank 0, rank 1 and 7 more"


@pytest.mark.parametrize("span", [0.01, 0.9, 5.0, 61.0, 3601.0, 86_399.0, 1e7, 1e9])
def test_a_time_axis_has_a_few_ticks(span: float) -> None:
    assert 2 <= span / words.time_step(span, 8) <= 8.01


def test_moments_out_of_range_are_unknown() -> None:
    assert words.clock(1e18) == "?"
