"""Curves keep their peaks and their gaps, whatever is in the events."""

from __future__ import annotations

import math
from collections.abc import Callable

from launcher.report import curves
from launcher.report.facts import Facts, Sample

Made = Callable[..., Facts]


def test_each_trainer_has_a_line_with_a_part_per_generation(made: Made) -> None:
    facts = made()
    chart = curves.loss(facts, facts.last)
    assert [line.label for line in chart.lines] == ["rank 0", "rank 1", "rank 2"]
    assert [len(line.parts) for line in chart.lines] == [5, 5, 5]
    assert chart.low == 0
    assert 2 < chart.high < 4


def test_many_trainers_are_a_band(made: Made) -> None:
    facts = made(ranks=20, generations=2, every=5)
    chart = curves.speed(facts, facts.last)
    assert not chart.lines
    assert len(chart.band) == 2
    assert all(low <= middle <= high for part in chart.band for _, low, middle, high in part)


def test_a_line_is_thinned_but_keeps_its_peaks(made: Made) -> None:
    facts = made(generations=1)
    member = next(iter(facts.members.values()))
    member.samples = [Sample(facts.begin + at / 100, 1.0 + (at == 5000) * 8, None, None) for at in range(10_000)]
    line = curves.loss(facts, facts.last).lines[0]
    assert sum(map(len, line.parts)) < 300
    assert max(value for part in line.parts for _, value in part) == 9.0


def test_values_that_are_no_numbers_are_reported_and_not_drawn(made: Made) -> None:
    facts = made(generations=1)
    member = next(iter(facts.members.values()))
    member.samples += [Sample(facts.last, math.nan, None, math.inf)]
    chart = curves.loss(facts, facts.last)
    assert chart.bad == [(facts.last, "rank 0: nan")]
    assert all(math.isfinite(value) for line in chart.lines for part in line.parts for _, value in part)
    assert math.isnan(curves.newest_loss(facts) or 0.0)


def test_without_samples_the_loss_of_the_passes_is_drawn(made: Made) -> None:
    facts = made(every=0)
    chart = curves.loss(facts, facts.last)
    assert [line.label for line in chart.lines] == ["loss of each pass"]
    assert curves.speed(facts, facts.last).is_empty


def test_a_few_values_far_above_all_others_are_cut(made: Made) -> None:
    facts = made(generations=1)
    next(iter(facts.members.values())).samples[0] = Sample(facts.begin, 1e9, None, None)
    chart = curves.loss(facts, facts.last)
    assert chart.is_cut
    assert chart.high < 10


def test_the_usual_speed_of_a_trainer_is_a_median(made: Made) -> None:
    found = curves.speeds(made())
    assert [round(each.median, -2) for each in found] == [400, 400, 300]
