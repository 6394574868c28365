"""Show views of a job as plain lines, for logs and for terminals without rich. Only changes are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TextIO

from launcher.base.clock import duration
from launcher.live import words
from launcher.live.view import PROBLEMS, EventLine, JobView, MemberView
from launcher.model import role_name

_PROGRESS_SECONDS = 10.0  # between two lines about the progress
_MOST = 20  # members in trouble at the same moment that get a line each


class PlainLines:
    """Write one line for each change, with its time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[tuple[str, int], tuple[str, str, str]] = {}  # by member: pod, phase, what
        self._progress = ""
        self._progress_at = -_PROGRESS_SECONDS
        self._events: set[EventLine] = set()
        self._notes: tuple[str, ...] = ()
        self._is_stale = False

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def show(self, view: JobView, stale: str) -> None:
        """Write what has changed. `stale`: since when the view is old, or ""."""
        if bool(stale) != self._is_stale:
            self._is_stale = bool(stale)
            self._write(time.time(), stale or f"{view.name}: its state is up to date again")
        if stale:
            return
        for note in view.notes:
            if note not in self._notes:
                self._write(view.at, note)
        self._notes = view.notes
        for event in view.events:
            if event not in self._events and not event.is_phase:
                self._write(event.at, event.text)
        self._events = set(view.events)
        for line in self._changes(view):
            self._write(view.at, line)
        self._show_progress(view)
        self._stream.flush()

    def end(self, view: JobView) -> None:
        self._stream.writelines(f"{line}\n" for line in (f"{view.name}: {view.verdict}", *view.epilogue))
        self._stream.flush()

    def _changes(self, view: JobView) -> Iterator[str]:
        """Yield a line for each group of members that have changed in the same way."""
        groups: dict[tuple[str, str, str], list[MemberView]] = {}
        for member in view.members:
            state = member.pod, member.phase, member.what
            if self._shown.get((member.role, member.rank)) != state:
                self._shown[member.role, member.rank] = state
                groups.setdefault((member.role, member.phase, member.what), []).append(member)
        own_lines = _MOST
        for (role, phase, what), members in groups.items():
            told = f"{phase}{': ' if what else ''}{what}"
            if len(members) == 1 and (phase in PROBLEMS or len(view.members) <= _MOST) and own_lines:
                own_lines -= 1
                pod = f" ({members[0].pod})" if members[0].pod else ""
                yield f"{members[0].name}{pod}: {told}"
            else:
                yield f"{role_name(role)} {words.ranks([each.rank for each in members])}: {told}"

    def _show_progress(self, view: JobView) -> None:
        line = progress_line(view)
        now = time.monotonic()
        if line and line != self._progress and now - self._progress_at >= _PROGRESS_SECONDS:
            self._progress, self._progress_at = line, now
            self._write(view.at, line)

    def _write(self, at: float, text: str) -> None:
        moment = time.strftime("%Y-%m-%d", time.localtime(at)) if at else "?"
        self._stream.write(f"{moment} {words.clock(at)} {words.line(text)}\n")
        self._stream.flush()


def progress_line(view: JobView) -> str:
    """Return how far the training is. If it prints no numbers, return the last line of its first trainer."""
    parts = [f"pass {view.current_pass}"] if view.current_pass else []
    if view.fraction is not None:
        parts.append(f"{int(view.fraction * 100)} %")
    if view.losses:
        low, high = map(words.loss, view.losses)
        parts.append(f"loss {low}" if low == high else f"loss {low} to {high}")
    if view.speed is not None:
        parts.append(f"{words.speed(view.speed)} examples/s")
    if view.ends_at is not None:
        parts.append(f"ETA {duration(view.ends_at - view.at)}")
    if not view.losses:
        parts += [f"{each.name}: {each.output}" for each in view.members if each.output][:1]
    return ", ".join(parts)
