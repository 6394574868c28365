"""A job's members on standard error: on a terminal a line each that changes in place, elsewhere a line a change."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import TextIO

from launcher.base.files import shown
from launcher.job.state import JobState, MemberState

_EVERY = 10.0  # seconds between two lines of a member's progress, where lines stay


class Screen:
    """Where `wait` shows a job."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._height = 0  # lines to go back over
        self._said: dict[str, tuple[str, str, float]] = {}  # by member: state, progress, when

    def show(self, state: JobState, progress: Mapping[str, str]) -> None:
        """How the members are now; `progress`: the last lines of those that run, by pod."""
        if self._live:
            self._redraw(state, progress)
        else:
            self._append(state, progress)
        self._stream.flush()

    def end(self, state: JobState) -> None:
        """How it ended."""
        how = f"exit code {state.exit_code}: {state.cause}" if state.exit_code else "the job is complete"
        self._stream.write(f"{state.name}: {how}\n")
        self._stream.flush()

    def _redraw(self, state: JobState, progress: Mapping[str, str]) -> None:
        columns, rows = shutil.get_terminal_size()
        lines = [_line(member, progress.get(member.pod, ""))[: columns - 1] for member in state.members]
        if len(lines) > rows - 2:
            rest = len(lines) - (rows - 3)
            lines = [*lines[: rows - 3], f"... and {rest} more"]
        back = f"\x1b[{self._height}F" if self._height else ""
        self._stream.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
        self._height = len(lines)

    def _append(self, state: JobState, progress: Mapping[str, str]) -> None:
        now = time.monotonic()
        for member in state.members:
            is_now, last = _line(member, ""), progress.get(member.pod, "")
            was, said, when = self._said.get(member.name, ("", "", -_EVERY))
            if is_now != was or (last != said and now - when >= _EVERY):
                self._stream.write(_line(member, last) + "\n")
                self._said[member.name] = (is_now, last, now)


def _line(member: MemberState, progress: str) -> str:
    text = progress or member.what
    return shown(f"{member.name:<11} {member.pod or '-':<30} {member.phase:<8} {text}".rstrip())
