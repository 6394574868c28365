"""Waiting for a job's end, with a line a member meanwhile."""

from __future__ import annotations

import sys
import time
from itertools import cycle, islice

from launcher.errors import Exit, Failure
from launcher.job.access import Access
from launcher.job.outage import Patience
from launcher.job.screen import Screen
from launcher.job.state import HALFWAY, RUNNING, SUBMITTED, SUSPENDED, JobState, MemberState, Seen, look

_POLL = 1.0  # seconds between two looks, and as much more as it takes to keep to _RATE
_RATE = 50  # pods a second
_ASKED = 10  # members a look whose last line is asked for
_AT_ONCE = 3.0  # seconds that such a line may take
_OTHERS = 60.0  # seconds for the rest of a job to end once it is known how it ends
_AWAY = 300.0  # seconds that the API server may be away


def wait(access: Access, job: str, *, timeout: float | None, quiet: bool) -> int:
    """The job's exit code, once it has ended."""
    watch = _Watch(access, job, timeout)
    screen = None if quiet else Screen(sys.stderr)
    last = Progress(access)
    while not watch.over:
        state = watch.look()
        if screen and state:
            screen.show(state, last.lines(state))
        watch.pause()
    assert watch.state is not None
    if screen:
        screen.end(watch.state)
    return watch.state.exit_code or 0


class _Watch:
    """Look by look at one job, until all of its Jobs have ended, or the time is up."""

    def __init__(self, access: Access, job: str, timeout: float | None) -> None:
        self.state: JobState | None = None
        self.over = False
        self._access = access
        self._job = job
        self._timeout = timeout
        self._began = time.monotonic()
        self._settled: float | None = None
        self._seen = Seen()
        self._patience = Patience(_AWAY)
        self._trouble = ""

    def look(self) -> JobState | None:
        """The state now; None where the API server does not answer."""
        try:
            self.state = look(self._access, self._job, self._seen)
        except Failure as failure:
            if failure.code == Exit.NO_INPUT and self.state is not None:
                self.state, self.over = self._seen.end(self.state), True
                return self.state
            self._patience.bear(failure)
            self._trouble = failure.message
            return None
        self._patience.answered()
        self._trouble = ""
        now = time.monotonic()
        if self.state.exit_code is not None:
            self._settled = self._settled or now
            self.over = self.state.ended or now - self._settled > _OTHERS
        elif self.state.phase == SUSPENDED and now - self._began > SUBMITTED:
            raise Failure(Exit.NO_INPUT, f"{self._job} is {HALFWAY}")
        return self.state

    def pause(self) -> None:
        """Until the next look. When the time is up a Failure says what is waited for."""
        if self.over:
            return
        left = float("inf") if self._timeout is None else self._began + self._timeout - time.monotonic()
        if left <= 0:
            members = self.state.members if self.state else ()
            waiting = "; ".join(f"{each.name} {each.phase} {each.what}".strip() for each in members)
            raise Failure(
                Exit.TIMED_OUT,
                f"{self._job} has not ended after {self._timeout:g} s: {self._trouble or waiting}. It goes on",
            )
        time.sleep(min(left, max(_POLL, len(self._seen.pods) / _RATE)))


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
                if not self._ask(member):
                    break  # its node does not answer, and others may be there, too: this is not to hold up the look
            self._asked += _ASKED
        return {member.pod: self._last.get(member.pod, "") for member in running}

    def _ask(self, member: MemberState) -> bool:
        try:
            for line in self._access.log(member.pod, member.container, {"tailLines": "1"}, within=_AT_ONCE):
                self._last[member.pod] = line.decode(errors="replace").strip()
        except Failure:
            return False  # the pod is gone, or the API server is away: the next look tells
        return True
