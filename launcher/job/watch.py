"""Wait until a job ends. Meanwhile, show the members of the job."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from itertools import cycle, islice
from typing import TextIO

from launcher.base.files import printable
from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.outage import OutageLimit
from launcher.job.state import (
    HALF_SUBMITTED,
    RUNNING,
    SUBMIT_SECONDS,
    SUSPENDED,
    JobState,
    MemberState,
    PodHistory,
    read_state,
)

_POLL_SECONDS = 1.0  # at least; large jobs are polled less often, to stay below _PODS_PER_SECOND
_PODS_PER_SECOND = 50
_LAST_LINES = 10  # members per poll whose last line is read
_LAST_LINE_SECONDS = 3.0  # timeout for reading one last line
_END_SECONDS = 60.0  # in which the other Jobs must end once the exit code is known
_OUTAGE_SECONDS = 300.0
_PROGRESS_SECONDS = 10.0  # without a terminal: between two lines about the progress of one member


def wait(client: KubeClient, job: str, *, timeout: float | None, quiet: bool) -> int:
    """Wait until the job has ended, and return the job's exit code. Raises Failure after `timeout` seconds."""
    watch = _Watch(client, job, timeout)
    screen = None if quiet else _Screen(sys.stderr)
    progress = _Progress(client)
    while not watch.is_over:
        state = watch.poll()
        if screen and state:
            screen.show(state, progress.last_lines(state))
        watch.pause()
    assert watch.state is not None
    if screen:
        screen.end(watch.state)
    return watch.state.exit_code or 0


class _Watch:
    """Polls a job until all of its Jobs have ended, or the timeout has passed."""

    def __init__(self, client: KubeClient, job: str, timeout: float | None) -> None:
        self.state: JobState | None = None
        self.is_over = False
        self._client = client
        self._job = job
        self._timeout = timeout
        self._began = time.monotonic()
        self._exit_known: float | None = None
        self._history = PodHistory()
        self._outage = OutageLimit(_OUTAGE_SECONDS)
        self._trouble = ""

    def poll(self) -> JobState | None:
        """Return the state now, or None if the API server does not answer."""
        try:
            self.state = read_state(self._client, self._job, self._history)
        except Failure as failure:
            if failure.code == Exit.NO_INPUT and self.state is not None:
                self.state, self.is_over = self._history.end_of_removed(self.state), True
                return self.state
            self._outage.bear(failure)
            self._trouble = failure.message
            return None
        self._outage.answered()
        self._trouble = ""
        now = time.monotonic()
        if self.state.exit_code is not None:
            self._exit_known = self._exit_known or now
            self.is_over = self.state.ended or now - self._exit_known > _END_SECONDS
        elif self.state.phase == SUSPENDED and now - self._began > SUBMIT_SECONDS:
            raise Failure(Exit.NO_INPUT, f"{self._job}: {HALF_SUBMITTED}")
        return self.state

    def pause(self) -> None:
        """Sleep until the next poll. Raises Failure if the timeout has passed."""
        if self.is_over:
            return
        left = float("inf") if self._timeout is None else self._began + self._timeout - time.monotonic()
        if left <= 0:
            members = self.state.members if self.state else ()
            waiting = "; ".join(f"{member.name} {member.phase} {member.what}".strip() for member in members)
            raise Failure(
                Exit.TIMED_OUT,
                f"{self._job} has not ended after {self._timeout:g} s: {self._trouble or waiting}. The job continues",
            )
        time.sleep(min(left, max(_POLL_SECONDS, len(self._history.pods) / _PODS_PER_SECOND)))


class _Progress:
    """The last line that each running trainer has printed. Each poll reads the last lines of at most 10 trainers."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._last: dict[str, str] = {}
        self._next = 0

    def last_lines(self, state: JobState) -> dict[str, str]:
        """Return the last line of each running trainer by pod."""
        running = [member for member in state.members if member.phase == RUNNING and member.trains]
        if running:
            start = self._next % len(running)
            for member in islice(cycle(running), start, start + min(_LAST_LINES, len(running))):
                if not self._read(member):
                    break  # its node may not answer, and other members on that node would delay the poll, too
            self._next += _LAST_LINES
        return {member.pod: self._last.get(member.pod, "") for member in running}

    def _read(self, member: MemberState) -> bool:
        try:
            for line in self._client.log(member.pod, member.container, {"tailLines": "1"}, within=_LAST_LINE_SECONDS):
                self._last[member.pod] = line.decode(errors="replace").strip()
        except Failure:
            return False  # the pod is gone or the API server does not answer: the next poll will show
        return True


class _Screen:
    """Shows one line per member. A terminal shows updated lines in place. Otherwise each change is a new line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._height = 0  # lines on the terminal
        self._shown: dict[str, tuple[str, str, float]] = {}  # by member: line, progress, time

    def show(self, state: JobState, progress: Mapping[str, str]) -> None:
        """Show the members; `progress` is the last line of each running trainer by pod."""
        if self._is_terminal:
            self._redraw(state, progress)
        else:
            self._append(state, progress)
        self._stream.flush()

    def end(self, state: JobState) -> None:
        """Show how the job ended."""
        outcome = f"exit code {state.exit_code}: {state.cause}" if state.exit_code else "the job is complete"
        self._stream.write(f"{state.name}: {outcome}\n")
        self._stream.flush()

    def _redraw(self, state: JobState, progress: Mapping[str, str]) -> None:
        columns, rows = shutil.get_terminal_size()
        lines = [_line(member, progress.get(member.pod, ""))[: columns - 1] for member in state.members]
        if len(lines) > rows - 2:
            hidden = len(lines) - (rows - 3)
            lines = [*lines[: rows - 3], f"... and {hidden} more"]
        back = f"\x1b[{self._height}F" if self._height else ""
        self._stream.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
        self._height = len(lines)

    def _append(self, state: JobState, progress: Mapping[str, str]) -> None:
        now = time.monotonic()
        for member in state.members:
            line, last = _line(member, ""), progress.get(member.pod, "")
            shown_line, shown_last, when = self._shown.get(member.name, ("", "", -_PROGRESS_SECONDS))
            if line != shown_line or (last != shown_last and now - when >= _PROGRESS_SECONDS):
                self._stream.write(_line(member, last) + "\n")
                self._shown[member.name] = (line, last, now)


def _line(member: MemberState, progress: str) -> str:
    text = progress or member.what
    return printable(f"{member.name:<11} {member.pod or '-':<30} {member.phase:<8} {text}".rstrip())
