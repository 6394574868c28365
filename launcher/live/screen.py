"""Draw views of a job on a terminal, with rich. Only this module imports rich."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from launcher.base.clock import duration
from launcher.live import words
from launcher.live.selection import choose, summary
from launcher.live.signals import drawing
from launcher.live.view import COMPLETE, PROBLEMS, EventLine, JobView, MemberView

_GAP = 2  # between two columns
_LEAST_OUTPUT, _LEAST_POD = 16, 8  # columns of the terminal
_EVENTS = 5  # lines for events, if there is room for more members than that
_FINE = ("training", "running", "trained", "serving", COMPLETE)
_PROBLEM, _GOOD, _DIM, _TITLE = "bold red", "green", "dim", "bold"
_TITLES = ("rank", "pod", "phase", "pass", "loss", "examples/s", "last output")
_RIGHT = ("pass", "loss", "examples/s")

_Row = dict[str, str]


class Screen:
    """Show views on a terminal. The terminal is as before after `close`.

    hint: the last line, such as what Ctrl-C does
    """

    def __init__(self, stream: TextIO, hint: str) -> None:
        self._console = Console(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=False)
        self._hint = hint
        self._live = Live(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )

    def open(self) -> None:
        with drawing():
            self._live.start()

    def close(self) -> None:
        self._live.stop()

    def show(self, view: JobView, stale: str) -> None:
        """Draw the view. `stale`: since when the view is old, or ""."""
        width, height = self._console.size
        drawn = draw(view, width, height, time.time(), stale, self._hint)
        with drawing():
            self._live.update(drawn, refresh=True)

    def end(self, view: JobView) -> None:
        """Leave the last view on the terminal, with its verdict."""
        self.close()
        width, height = self._console.size
        self._console.print(draw(view, width, max(12, height - 3), view.at, "", "", fills=False))
        style = _GOOD if view.exit_code == 0 else _PROBLEM
        self._console.print(Text(f"{view.name}: {view.verdict}", style=style))
        for line in view.epilogue:
            self._console.print(Text(line))


def draw(
    view: JobView, width: int, height: int, now: float, stale: str, hint: str, *, fills: bool = True
) -> RenderableType:
    """Return the lines of a view for a terminal of this size.

    fills: put the hint into the last line of the terminal
    """
    head: list[RenderableType] = [_first_line(view, width, now), *_progress(view, width, now)]
    if numbers := _numbers(view):
        head.append(_fit(Text(numbers), width))
    head += [_fit(Text(note, "yellow"), width) for note in [*([stale] if stale else []), *view.notes[:2]]]
    hint = hint if height > 5 else ""
    room = max(0, height - len(head) - (1 if hint else 0))
    table, events = _divide(view, room)
    lines = list(head)
    if table:
        lines += [Text(), *_table(view, width, table - 2, now)]
    if events:
        lines += [Text(), *(_event(each, width) for each in view.events[-(events - 1) :])]
    if hint:
        lines += [Text()] * (height - 1 - len(lines)) if fills else []
        lines.append(_fit(Text(hint, _DIM), width))
    return Group(*lines[:height])


def _divide(view: JobView, room: int) -> tuple[int, int]:
    """Return the lines for the table and for the events, each with the empty line before it."""
    wanted_table = len(view.members) + 2 if view.members else 0
    wanted_events = len(view.events) + 1 if view.events else 0
    events = min(wanted_events, max(room - wanted_table, min(_EVENTS + 1, room // 3)))
    if events < 2:
        events = 0
    table = min(wanted_table, room - events)
    return (table if table >= 3 else 0), events


def _first_line(view: JobView, width: int, now: float) -> RenderableType:
    style = _PROBLEM if view.phase in PROBLEMS else _GOOD if view.phase in _FINE else "yellow"
    text = Text.assemble((view.name, _TITLE), "  ", (view.phase, style))
    if view.members and any(member.phase != view.phase for member in view.members):
        text.append(f"  {summary(view.members).partition(';')[0]}")
    elif len(view.members) > 1:
        text.append(f"  {len(view.members)} members")
    if view.generation:
        text.append(f"  generation {view.generation}")
    clock = words.clock(now)
    if cell_len(text.plain) + len(clock) + _GAP > width:
        return _fit(text, width)
    text.pad_right(width - cell_len(text.plain) - len(clock))
    return text.append(clock, _DIM)


def _progress(view: JobView, width: int, now: float) -> list[RenderableType]:
    if view.fraction is None:
        return []
    before = f"pass {view.current_pass}" if "/" in view.current_pass else "progress"
    after = f"{math.floor(view.fraction * 100)} %"
    if view.ends_at is not None and not view.verdict:
        after += f"  ETA {duration(view.ends_at - now)}"
    bar = max(5, width - len(before) - len(after) - 2 * _GAP)
    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    grid.add_row(
        Text(before, no_wrap=True),
        ProgressBar(total=1.0, completed=view.fraction, width=bar),
        Text(after, no_wrap=True),
    )
    return [grid]


def _numbers(view: JobView) -> str:
    parts = []
    if view.losses:
        low, high = map(words.loss, view.losses)
        parts.append(f"loss {low}" if low == high else f"loss {low} to {high}")
    if view.speed is not None:
        parts.append(f"{words.speed(view.speed)} examples/s")
    if not view.fraction and view.current_pass:
        parts.insert(0, f"pass {view.current_pass}")
    return "   ".join(parts)


def _table(view: JobView, width: int, room: int, now: float) -> Iterable[Text]:
    shown, hidden = choose(view.members, room)
    rows = [_row(member, now) for member in shown]
    widths = _widths(rows, width)
    title = {name: name for name in widths}
    yield _line(title, widths, dict.fromkeys(widths, _DIM))
    for member, row in zip(shown, rows, strict=True):
        yield _line(row, widths, _styles(member))
    if hidden:
        yield _fit(Text(f"and {len(hidden)} more: {summary(hidden)}", _DIM), width)


def _row(member: MemberView, now: float) -> _Row:
    output = member.what
    if not output and member.output:
        since = "" if member.output_at is None else words.age(now - member.output_at)
        output = f"{since:>3} {member.output}".strip() if since else member.output
    numbers = member.numbers
    loss, speed = words.loss(numbers.loss), words.speed(numbers.examples_per_second)
    values = (member.label, member.pod, member.phase, member.current_pass, loss, speed, output)
    return dict(zip(_TITLES, values, strict=True))


def _widths(rows: Sequence[_Row], width: int) -> dict[str, int]:
    """Return the width of each column that is shown. Columns that all rows leave empty are not shown."""
    content = {name: max((cell_len(row[name]) for row in rows), default=0) for name in _TITLES}
    wanted = {name: max(cell_len(name), size) for name, size in content.items() if size}
    widths: dict[str, int] = {}
    left = width
    for name in ("rank", "phase", "pass", "loss", "examples/s"):  # the most important first
        if name in wanted and wanted[name] + (_GAP if widths else 0) <= left:
            widths[name] = wanted[name]
            left -= wanted[name] + (_GAP if len(widths) > 1 else 0)
    output = min(wanted.get("last output", 0), _LEAST_OUTPUT) + _GAP if "last output" in wanted else 0
    if "pod" in wanted and (pod := min(wanted["pod"], left - _GAP - output)) >= min(_LEAST_POD, wanted["pod"]):
        widths["pod"] = pod
        left -= pod + _GAP
    if "last output" in wanted and left - _GAP >= min(_LEAST_POD, wanted["last output"]):
        widths["last output"] = min(wanted["last output"], left - _GAP)
    return {name: widths[name] for name in _TITLES if name in widths}


def _line(row: _Row, widths: dict[str, int], styles: dict[str, str]) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for name, size in widths.items():
        if text.plain:
            text.append(" " * _GAP)
        value = row[name]
        if cell_len(value) > size:
            value = _shortened(value, size, at_end=name != "pod")
        space = " " * (size - cell_len(value))
        text.append(space + value if name in _RIGHT else value + space, styles.get(name, ""))
    text.rstrip()
    return text


def _shortened(text: str, size: int, *, at_end: bool = True) -> str:
    """Return the text without its end. The names of pods differ at their ends, so there the beginning is left out."""
    if at_end:
        return set_cell_size(text, size - 1) + "…"
    while cell_len(text) > size - 1:
        text = text[1:]
    return "…" + text


def _styles(member: MemberView) -> dict[str, str]:
    loss = member.numbers.loss
    is_problem = member.phase in PROBLEMS
    phase = _PROBLEM if is_problem else _GOOD if member.phase in _FINE else "yellow"
    diverged = loss is not None and not math.isfinite(loss)
    return {"phase": phase, "loss": _PROBLEM if diverged else "", "last output": "red" if is_problem else _DIM}


def _event(event: EventLine, width: int) -> Text:
    text = Text.assemble((words.clock(event.at), _DIM), "  ", (event.text, "red" if event.is_problem else ""))
    return _fit(text, width)


def _fit(text: Text, width: int) -> Text:
    text.no_wrap = True
    text.truncate(width, overflow="ellipsis")
    return text
