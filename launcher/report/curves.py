"""Loss and speed over time: one line per trainer or, with many trainers, the median and the range."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from launcher.report.facts import Facts, Member, Sample

MOST_LINES = 8
_POINTS = 220  # of a line
_BINS = 160  # of a range

Point = tuple[float, float]
_Value = Callable[[Sample], float | None]


@dataclass
class Line:
    """The values of one trainer. A restart cuts the line into parts."""

    label: str
    parts: list[list[Point]]


@dataclass
class Chart:
    """Lines, and with many trainers a band from the lowest to the highest value, as (time, low, median, high).

    low, high: the values at the lower and upper edge. Higher values are cut there
    bad: the times of values that are NaN or infinite, and their trainers
    """

    lines: list[Line] = field(default_factory=list)
    band: list[list[tuple[float, float, float, float]]] = field(default_factory=list)
    low: float = 0.0
    high: float = 1.0
    bad: list[tuple[float, str]] = field(default_factory=list)
    is_cut: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.lines and not self.band


@dataclass(frozen=True)
class Speed:
    """The usual speed of one trainer: the median of its examples per second."""

    member: Member
    median: float


def loss(facts: Facts, end: float) -> Chart:
    """Return the loss of each trainer until `end`. Without samples, return the loss of each pass."""
    chart = _chart(facts, end, lambda sample: sample.loss)
    if chart.is_empty:
        _add_passes(facts, chart)
    _set_range(chart, from_zero=False)
    return chart


def speed(facts: Facts, end: float) -> Chart:
    """Return the examples per second of each trainer until `end`."""
    chart = _chart(facts, end, lambda sample: sample.speed)
    _set_range(chart, from_zero=True)
    return chart


def speeds(facts: Facts) -> list[Speed]:
    """Return the usual speed of each trainer that has printed one, in rank order."""
    found = []
    for member in facts.members.values():
        values = [each.speed for each in member.samples if each.speed is not None and math.isfinite(each.speed)]
        if values and member.is_current:
            found.append(Speed(member, median(values)))
    return found


def newest_loss(facts: Facts) -> float | None:
    """Return the mean of the newest losses of all trainers, or the loss of the newest pass. NaN if one loss is NaN."""
    newest = []
    for member in facts.members.values():
        losses = [sample.loss for sample in member.samples[-50:] if sample.loss is not None]
        newest += losses[-1:] if member.is_current else []
    if newest:
        return sum(newest) / len(newest)
    passes = sorted((done.at, done.loss) for done in facts.passes.values() if done.loss is not None)
    return passes[-1][1] if passes else None


def _chart(facts: Facts, end: float, value: _Value) -> Chart:
    chart = Chart()
    cuts = [generation.began for generation in facts.history]
    lines = []
    for member in facts.members.values():
        points = []
        for sample in member.samples:
            known = value(sample)
            if known is None:
                continue
            if math.isfinite(known):
                points.append((sample.at, known))
            elif len(chart.bad) < 200:
                chart.bad.append((sample.at, f"{member.name}: {known}"))
        if points:
            lines.append(Line(member.name, _parts(points, cuts)))
    chart.bad.sort()
    if len(lines) <= MOST_LINES:
        chart.lines = [Line(line.label, _thin(line.parts)) for line in lines]
    else:
        chart.band = _band(lines, facts.begin, end, cuts)
    return chart


def _add_passes(facts: Facts, chart: Chart) -> None:
    points = []
    for done in sorted(facts.passes.values(), key=lambda done: done.at):
        if done.loss is None:
            continue
        if math.isfinite(done.loss):
            points.append((done.at, done.loss))
        elif len(chart.bad) < 200:
            chart.bad.append((done.at, f"pass {done.number}: {done.loss}"))
    if points:
        chart.lines = [Line("loss of each pass", _thin(_parts(points, [each.began for each in facts.history])))]


def _parts(points: list[Point], cuts: list[float]) -> list[list[Point]]:
    """Cut a line where a generation begins."""
    parts: dict[int, list[Point]] = {}
    for point in points:
        parts.setdefault(bisect_right(cuts, point[0]), []).append(point)
    return list(parts.values())


def _thin(parts: list[list[Point]]) -> list[list[Point]]:
    """Keep the lowest and the highest point of each bin, so that no peak is lost."""
    total = sum(map(len, parts))
    if total <= _POINTS:
        return parts
    size = math.ceil(2 * total / _POINTS)
    found = []
    for part in parts:
        kept = []
        for begin in range(0, len(part), size):
            piece = part[begin : begin + size]
            ends = {min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])}
            kept += sorted(ends)
        found.append([*kept, part[-1]] if kept[-1] != part[-1] else kept)
    return found


def _band(
    lines: list[Line], begin: float, end: float, cuts: list[float]
) -> list[list[tuple[float, float, float, float]]]:
    width = max(end - begin, 0.001) / _BINS
    bins: dict[tuple[int, int], list[float]] = {}
    for line in lines:
        for part in line.parts:
            for at, value in part:
                bins.setdefault((bisect_right(cuts, at), int((at - begin) / width)), []).append(value)
    parts: dict[int, list[tuple[float, float, float, float]]] = {}
    for (generation, place), values in sorted(bins.items()):
        middle = begin + (place + 0.5) * width
        parts.setdefault(generation, []).append((middle, min(values), median(values), max(values)))
    return list(parts.values())


def _set_range(chart: Chart, *, from_zero: bool) -> None:
    """Set the lower and upper edge of the scale. If a few values are far above all others, cut these values."""
    values = [value for line in chart.lines for part in line.parts for _, value in part]
    values += [value for part in chart.band for _, low, _, high in part for value in (low, high)]
    if not values:
        return
    values.sort()
    low, high, usual = values[0], values[-1], values[int(len(values) * 0.97)]
    if len(values) > 40 and high > 0 and high - low > 4 * (usual - low) > 0:
        high, chart.is_cut = low + 1.5 * (usual - low), True
    low = min(0.0, low) if from_zero or 0 <= low < 0.35 * high else low
    if high <= low:
        high = low + (abs(low) or 1.0)
    chart.low, chart.high = low, high + 0.04 * (high - low)
