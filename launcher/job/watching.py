"""Waiting for a job's end, with a line a member meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import cycle, islice

from launcher.errors import Exit, Failure
from launcher.job.access import Access, Unreachable
from launcher.job.screen import Screen
from launcher.job.state import RUNNING, JobState, MemberState, Seen, look

_POLL = 1.0  # seconds between two looks, and as much more as it takes to keep to _RATE
_RATE = 50  # pods a second
_ASKED = 10  # members a look whose last line is asked for
_OTHERS = 60.0  # seconds for the rest of a job to end once it is known how it ends
_PATIENCE = 300.0  # seconds that the API server may be away


def wait(access: Access, job: str, *, timeout: float | None, quiet: bool) -> int:
    """The job's exit code, once it has ended."""
    screen = None if quiet else Screen(sys.stderr)
    last = Progress(access)
    for state, over in _states(access, job, timeout):
        if screen:
            screen.show(state, last.lines(state))
        if over:
            break
    if screen:
        screen.end(state)
    return state.exit_code or 0


class Progress:
    """The last line that each running trainer has printed, a few of them asked for at a time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._last: dict[str, str] = {}
        self._asked = 0

    def lines(self, state: JobState) -> dict[str, str]:
        """By pod."""
        running = [member for member in state.members if member.phase == RUNNING and member.trains]
        if running:
            start = self._asked % len(running)
            for member in islice(cycle(running), start, start + min(_ASKED, len(running))):
                self._ask(member)
            self._asked += _ASKED
        return {member.pod: self._last.get(member.pod, "") for member in running}

    def _ask(self, member: MemberState) -> None:
        try:
            for line in self._access.log(member.pod, member.container, tailLines=1):
                self._last[member.pod] = line.decode(errors="replace").strip()
        except Failure:
            pass  # the pod is gone, or the API server is away: the next look tells


def _states(access: Access, job: str, timeout: float | None) -> Iterator[tuple[JobState, bool]]:
    """What is seen of the job, look by look, and whether that is its end: all of its Jobs have theirs, then."""
    deadline = None if timeout is None else time.monotonic() + timeout
    seen, settled, answered = Seen(), None, time.monotonic()
    while True:
        began = time.monotonic()
        try:
            state = look(access, job, seen)
        except Unreachable:
            if began - answered > _PATIENCE:
                raise
        else:
            answered = began
            settled = settled or (began if state.exit_code is not None else None)
            over = settled is not None and (state.ended or began - settled > _OTHERS)
            yield state, over
            if over:
                return
            if deadline is not None and began > deadline:
                waiting = "; ".join(f"{each.name} {each.phase} {each.what}".strip() for each in state.members)
                raise Failure(
                    Exit.TIMED_OUT, f"{job} has not ended after {timeout:g} s: {waiting}. It goes on without this"
                )
        time.sleep(max(_POLL, len(seen.pods) / _RATE))
