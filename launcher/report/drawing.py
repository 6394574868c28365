"""The drawings as SVG. All widths are shares of the page's width, so the page needs no script to fit any screen.

Texts keep their size on each screen. Each function returns a whole `svg` element; all texts are escaped.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from launcher.report.accounts import KEPT, REPEATED, GenerationRow, PassRow
from launcher.report.curves import Chart
from launcher.report.facts import Span
from launcher.report.lanes import Mark
from launcher.report.words import clock, duration, nice_step, quantity, round_time, time_step
from launcher.store import sizes

_LABELLED = 7.0  # percent: shorter spans have no text
_WIDE = 22.0  # percent: such spans have a text on small screens, too
_APART = 9.0  # percent between two numbers on small screens
_TICKS = 8
_PASS_LABELS = 24

PATTERNS = (
    '<svg class="defs" width="0" height="0" aria-hidden="true" focusable="false"><defs>'
    '<pattern id="p-waiting" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="b-waiting" width="6" height="6"/><circle class="i-waiting" cx="3" cy="3" r="0.9"/></pattern>'
    '<pattern id="p-staging" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect class="b-staging" width="6" height="6"/><rect class="i-staging" width="1.6" height="6"/></pattern>'
    '<pattern id="p-serving" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect class="b-serving" width="5" height="5"/><rect class="i-serving" width="1.2" height="5"/></pattern>'
    '<pattern id="p-restarting" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">'
    '<rect class="b-restarting" width="7" height="7"/><rect class="i-restarting" width="2.6" height="7"/></pattern>'
    '<pattern id="p-lost" width="7" height="7" patternUnits="userSpaceOnUse">'
    '<rect class="b-lost" width="7" height="7"/><path class="i-lost" d="M0 0L7 7M7 0L0 7"/></pattern>'
    "</defs></svg>"
)


@dataclass(frozen=True)
class Axis:
    """The time axis that all drawings share."""

    begin: float
    end: float

    @property
    def span(self) -> float:
        return max(self.end - self.begin, 0.001)

    def x(self, at: float) -> float:
        """Return the position of a time on the axis, in percent."""
        return min(100.0, max(0.0, (at - self.begin) / self.span * 100))

    def ticks(self) -> list[float]:
        """Return the times of the ticks, in seconds after the begin."""
        step = time_step(self.span, _TICKS)
        return [step * number for number in range(int(self.span / step) + 1)]


def percent(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") + "%"


def lane(axis: Axis, spans: list[Span], marks: list[Mark], height: int, label: str) -> str:
    """Return the lane of a member."""
    parts = []
    for span in spans:
        left, right = axis.x(span.begin), axis.x(span.end)
        width = max(right - left, 0.12)
        title = f"{span.state} for {duration(span.end - span.begin)}, from {clock(span.begin)}"
        parts.append(
            f'<rect class="s-{span.state}" x="{percent(left)}" width="{percent(width)}" height="{height}">'
            f"<title>{escape(title)}</title></rect>"
        )
        if width >= _LABELLED and height >= 18:
            wide = "" if width >= _WIDE else " narrow"
            parts.append(
                f'<svg x="{percent(left)}" width="{percent(width)}" height="{height}">'
                f'<text class="in t-{span.state}{wide}" x="6" y="{height / 2 + 4:g}">{span.state}</text></svg>'
            )
    parts += [_mark(axis, mark, height) for mark in marks]
    return f'<svg class="lane" height="{height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


def _mark(axis: Axis, mark: Mark, height: int) -> str:
    middle = height / 2
    return (
        f'<svg class="mark" x="{percent(axis.x(mark.at))}" width="1" height="{height}"><g><title>'
        f"{escape(f'{clock(mark.at)} {mark.text}')}</title>"
        f'<circle cx="0" cy="{middle:g}" r="6.5"/><path d="M-2.7 {middle - 2.7:g}l5.4 5.4m0 -5.4l-5.4 5.4"/></g></svg>'
    )


def generations(axis: Axis, rows: tuple[GenerationRow, ...]) -> str:
    """Return the bands of the generations, above the lanes."""
    parts, last, last_narrow = [], -100.0, -100.0
    has_resized = sizes.vary([row.generation.size for row in rows])
    for row in rows[-400:]:
        left, right = axis.x(row.generation.began), axis.x(row.end)
        number = row.generation.number
        width = max(right - left, 0.12)
        size = f", {row.generation.size} trainers" if has_resized and row.generation.size else ""
        title = f"generation {number}, {duration(row.end - row.generation.began)}{size}"
        parts.append(
            f'<g><title>{escape(title)}</title><rect class="band{" failed" if row.is_failed else ""}" '
            f'x="{percent(left)}" width="{percent(width)}" y="13" height="4"/></g>'
        )
        if left - last >= 2.4 and width >= 1:
            narrow = "" if left - last_narrow >= _APART else " narrow"
            word = '<tspan class="narrow">generation </tspan>' if width >= 14 else ""
            wide = f'<tspan class="narrow">{size}</tspan>' if width >= _WIDE else ""
            parts.append(f'<text class="small{narrow}" x="{percent(left)}" y="9">{word}{number}{wide}</text>')
            last = left
            last_narrow = last_narrow if narrow else left
    return f'<svg class="row" height="18" role="img" aria-label="generations">{"".join(parts)}</svg>'


def passes(axis: Axis, rows: tuple[PassRow, ...]) -> str:
    """Return one tick at the end of each pass, with its number where there is space."""
    parts, last, last_narrow = [], -100.0, -100.0
    gap = 100 / _PASS_LABELS
    for row in _thinned(rows):
        x = axis.x(row.done.at)
        kind = "kept" if row.fate == KEPT else "lost" if row.fate == REPEATED else "open"
        title = f"pass {row.done.number} {row.fate}, {duration(row.seconds)}, done at {clock(row.done.at)}"
        shape = '<path d="M0 1v8"/>' if kind != "lost" else '<path d="M0 1v8M-3 2l6 6m0 -6l-6 6"/>'
        parts.append(
            f'<svg class="tick {kind}" x="{percent(x)}" width="1" height="22"><g><title>{escape(title)}</title>{shape}'
            "</g></svg>"
        )
        if x - last >= gap:
            anchor = ' text-anchor="end"' if x > 98 else ' text-anchor="middle"'
            narrow = "" if x - last_narrow >= _APART else " narrow"
            parts.append(f'<text class="small{narrow}" x="{percent(x)}" y="20"{anchor}>{row.done.number}</text>')
            last = x
            last_narrow = last_narrow if narrow else x
    return f'<svg class="row" height="22" role="img" aria-label="passes">{"".join(parts)}</svg>'


def _thinned(rows: tuple[PassRow, ...]) -> tuple[PassRow, ...]:
    """Return at most 400 passes: if possible all lost passes, and some of the others."""
    if len(rows) <= 400:
        return rows
    lost = [place for place, row in enumerate(rows) if row.fate == REPEATED][-200:]
    chosen = {*range(0, len(rows), len(rows) // 200 + 1), *lost}
    return tuple(rows[place] for place in sorted(chosen))


def time_axis(axis: Axis) -> str:
    """Return the axis below the lanes: the time since the begin, and the time of day."""
    parts = []
    ticks = axis.ticks()
    for place, seconds in enumerate(ticks):
        x = axis.x(axis.begin + seconds)
        anchor = "start" if place == 0 else "end" if x > 94 else "middle"
        name = f"+{round_time(seconds)}" if seconds else "0"
        narrow = ' class="narrow"' if place % 2 else ""
        parts.append(
            f'<g{narrow}><text class="small halo" x="{percent(x)}" y="12" text-anchor="{anchor}">{escape(name)}</text>'
            f'<text class="small faint halo" x="{percent(x)}" y="25" text-anchor="{anchor}">'
            f"{clock(axis.begin + seconds)}</text></g>"
        )
    return f'<svg class="row" height="30" role="img" aria-label="time, UTC">{"".join(parts)}</svg>'


def grid(axis: Axis, rows: tuple[GenerationRow, ...]) -> str:
    """Return the vertical lines behind all rows: the ticks of the axis, and the ends of generations that failed."""
    parts = [
        f'<line class="tickline" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
        for x in (percent(axis.x(axis.begin + seconds)) for seconds in axis.ticks())
    ]
    parts += [
        f'<line class="endline" x1="{x}" x2="{x}" y1="0" y2="100%"/>'
        for x in (percent(axis.x(row.end)) for row in rows[-100:] if row.is_failed)
    ]
    return "".join(parts)


def chart(axis: Axis, shown: Chart, height: int, label: str) -> str:
    """Return lines over time, with a scale of values at the left."""
    scale = _Scale(axis, shown, height)
    parts = []
    step = nice_step(shown.high - shown.low, 4)
    first = int(shown.low / step) if shown.low >= 0 else int(shown.low / step) - 1
    for number in range(first, first + 8):
        value = number * step
        if shown.low <= value <= shown.high:
            y = f"{scale.y(value):.1f}"
            parts.append(f'<line class="value" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
    parts.append(
        f'<svg class="plot" width="100%" height="{height}" viewBox="0 0 1000 {height}" preserveAspectRatio="none">'
        f"{_band(scale, shown)}{''.join(_line(scale, shown, place) for place in range(len(shown.lines)))}</svg>"
    )
    for number in range(first, first + 8):
        value = number * step
        if shown.low <= value <= shown.high and scale.y(value) > 8:
            parts.append(f'<text class="small halo" x="2" y="{scale.y(value) - 3:.1f}">{quantity(value, 4)}</text>')
    for at, text in shown.bad[:40]:
        parts.append(
            f'<svg class="bad" x="{percent(axis.x(at))}" width="1" height="{height}"><g><title>'
            f'{escape(f"{clock(at)} {text}")}</title><path d="M-4 4l8 8m0 -8l-8 8"/></g></svg>'
        )
    return f'<svg class="chart" height="{height}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'


class _Scale:
    """The coordinates of a chart, which is 1000 units wide."""

    def __init__(self, axis: Axis, shown: Chart, height: int) -> None:
        self._axis = axis
        self._low, self._span, self._height = shown.low, (shown.high - shown.low) or 1.0, height

    def y(self, value: float) -> float:
        share = min(1.0, max(0.0, (value - self._low) / self._span))
        return self._height - 2 - share * (self._height - 6)

    def path(self, points: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self._axis.x(at) * 10:.1f} {self.y(value):.1f}" for at, value in points)


def _line(scale: _Scale, shown: Chart, place: int) -> str:
    line = shown.lines[place]
    path = "".join(scale.path(_twice(part)) for part in line.parts)
    return f'<path class="line l{place}" d="{path}"><title>{escape(line.label)}</title></path>'


def _twice(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at least two points, so that a single point is drawn as a dot."""
    return points if len(points) > 1 else points * 2


def _band(scale: _Scale, shown: Chart) -> str:
    parts = []
    for part in shown.band:
        upper = [(at, high) for at, _, _, high in part]
        lower = [(at, low) for at, low, _, _ in reversed(part)]
        parts.append(f'<path class="range" d="{scale.path([*upper, *lower])}Z"/>')
        parts.append(f'<path class="line l0" d="{scale.path(_twice([(at, middle) for at, _, middle, _ in part]))}"/>')
    return "".join(parts)


def shares(parts: list[tuple[str, float]]) -> str:
    """Return the parts of the wall time as one bar. The parts have the classes `k0`, `k1`, ..."""
    total = sum(seconds for _, seconds in parts) or 1.0
    drawn, left = [], 0.0
    for place, (name, seconds) in enumerate(parts):
        width = seconds / total * 100
        if width > 0:
            title = escape(f"{name}: {duration(seconds)}")
            drawn.append(
                f'<rect class="k{place}" x="{percent(left)}" width="{percent(max(width, 0.2))}" height="14">'
                f"<title>{title}</title></rect>"
            )
        left += width
    return f'<svg class="row" height="14" role="img" aria-label="where the time went">{"".join(drawn)}</svg>'
