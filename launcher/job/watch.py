"""Views of a job in the cluster, until it ends."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from itertools import cycle, islice

from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.log_end import LogEnd, read_log_end
from launcher.job.lookup import read_state
from launcher.job.outage import OutageLimit
from launcher.job.state import (
    COMPLETE,
    HALF_SUBMITTED,
    RUNNING,
    SUBMIT_SECONDS,
    JobState,
    MemberState,
    PodHistory,
)
from launcher.live import words
from launcher.live.show import show
from launcher.live.show import wait as wait_quietly
from launcher.live.view import PROBLEMS, EventLine, JobView, MemberView, Pace
from launcher.model import BOTH, ROLES, TRAINER, role_name

_POLL_SECONDS = 1.0  # at least; large jobs are polled less often, to stay below _PODS_PER_SECOND
_PODS_PER_SECOND = 50
_LOGS = 10  # members per poll whose log is read
_END_SECONDS = 60.0  # in which the other Jobs must end once the exit code is known
_OUTAGE_SECONDS = 300.0
_LAST_EVENTS = 50
_MEMBER = re.compile(rf"\b({'|'.join(map(role_name, (BOTH, *ROLES)))}) (\d+)\b")


def wait(client: KubeClient, job: str, *, timeout: float | None, quiet: bool) -> int:
    """Wait until the job has ended, and return the job's exit code. Raises Failure after `timeout` seconds."""
    source = ClusterSource(client, job, timeout)
    return wait_quietly(source) if quiet else show(source, sys.stderr)


class ClusterSource:
    """Views of a job. The last one, with the verdict, comes when all of its Jobs have ended.

    Pass, loss and speed come from the ends of the trainers' logs. Each poll reads the logs of at most 10 trainers.
    """

    def __init__(self, client: KubeClient, job: str, timeout: float | None = None) -> None:
        self.name = job
        self._client = client
        self._timeout = timeout
        self._began = time.monotonic()
        self._exit_known: float | None = None
        self._history = PodHistory()
        self._outage = OutageLimit(_OUTAGE_SECONDS)
        self._trouble = ""
        self._state: JobState | None = None
        self._is_over = False
        self._logs = _Logs(client)
        self._changes = _Changes()

    def poll(self) -> JobView | None:
        """Return the state now, or the last known state if the API server does not answer."""
        try:
            self._read()
        except Failure as failure:
            if failure.code == Exit.NO_INPUT and self._state is not None:
                self._state, self._is_over = self._history.end_of_removed(self._state), True
            else:
                self._outage.bear(failure)
                self._trouble = failure.message
        if self._is_stuck():
            raise Failure(Exit.NO_INPUT, f"{self.name}: {HALF_SUBMITTED}")
        return None if self._state is None else self._view(self._state)

    def pause(self, took: float) -> float:
        """Return the seconds until the next poll. Raises Failure if the timeout has passed."""
        left = float("inf") if self._timeout is None else self._began + self._timeout - time.monotonic()
        if left <= 0:
            members = self._state.members if self._state else ()
            waiting = "; ".join(f"{member.name} {member.phase} {member.what}".strip() for member in members)
            raise Failure(
                Exit.TIMED_OUT,
                f"{self.name} has not ended after {self._timeout:g} s: {self._trouble or waiting}. The job continues",
            )
        return min(left, max(_POLL_SECONDS, len(self._history.pods) / _PODS_PER_SECOND))

    def _read(self) -> None:
        self._state = read_state(self._client, self.name, self._history)
        self._outage.answered()
        self._trouble = ""
        now = time.monotonic()
        if self._state.exit_code is not None:
            self._exit_known = self._exit_known or now
            self._is_over = self._state.ended or now - self._exit_known > _END_SECONDS

    def _is_stuck(self) -> bool:
        """Return whether the submission of the job was interrupted."""
        state = self._state
        return state is not None and state.is_half_submitted and time.monotonic() - self._began > SUBMIT_SECONDS

    def _view(self, state: JobState) -> JobView:
        if not self._is_over and not self._trouble:
            self._logs.read(state)
        members = tuple(self._logs.member(member) for member in state.members)
        slowest = min(
            (member for member in members if member.trains and member.fraction is not None),
            key=lambda member: member.fraction or 0.0,
            default=None,
        )
        is_complete = state.phase == COMPLETE
        return JobView(
            state.name,
            f"namespace {state.namespace}",
            time.time(),
            words.line(state.phase),
            members,
            fraction=1.0 if is_complete else slowest.fraction if slowest else None,
            ends_at=self._logs.ends_at(slowest) if slowest and not self._is_over else None,
            events=self._changes.since(members),
            notes=(words.line(self._trouble),) if self._trouble else (),
            exit_code=state.exit_code,
            verdict=words.line(_verdict(state)) if self._is_over else "",
            epilogue=_epilogue(state) if self._is_over else (),
        )


def _verdict(state: JobState) -> str:
    return f"exit code {state.exit_code}: {state.cause}" if state.exit_code else "the job is complete"


def _epilogue(state: JobState) -> tuple[str, ...]:
    """Return the last lines of the process that failed first, and the command that prints its whole log."""
    found = _MEMBER.search(state.cause) if state.exit_code else None
    lines = [f"    {words.line(line)}" for line in state.tail]
    if found:
        job = f"-n {state.namespace} {state.name} {found[2]}"
        role = next((f" --role {role}" for role in ROLES if role != TRAINER and role_name(role) == found[1]), "")
        lines.append(f"the log: paddle-launcher logs {job}{role}")
    return tuple(lines)


def _what(member: MemberState) -> str:
    """Return how a member has ended, or why it waits. The cause of another member is shown at that member."""
    found = _MEMBER.search(member.what)
    if member.exit_code == Exit.PEER_FAILED and found and found[0] != member.name:
        return f"{member.exit_code}, because of {found[0]}"
    return member.what


class _Logs:
    """The ends of the logs of all running trainers, of which each poll reads a few."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._ends: dict[str, LogEnd] = {}
        self._paces: dict[str, Pace] = {}
        self._next = 0

    def read(self, state: JobState) -> None:
        running = [member for member in state.members if member.phase == RUNNING and member.trains]
        if not running:
            return
        start = self._next % len(running)
        for member in islice(cycle(running), start, start + min(_LOGS, len(running))):
            try:
                end = read_log_end(self._client, member.pod, member.container, self._ends.get(member.pod))
            except Failure:
                break  # its node may not answer, and other members on that node would delay the poll, too
            self._ends[member.pod] = end
            fraction = self.member(member).fraction
            if fraction is not None:
                now = time.time()
                self._paces.setdefault(member.pod, Pace()).add(now, fraction, now)
        self._next += _LOGS

    def member(self, member: MemberState) -> MemberView:
        end = self._ends.get(member.pod) or LogEnd()
        return MemberView(
            member.role,
            member.rank,
            words.line(member.pod),
            member.phase,
            words.line(_what(member)),
            last_pass=None,
            passes=end.numbers.passes,
            numbers=end.numbers,
            output=words.line(end.line),
            output_at=end.at,
        )

    def ends_at(self, member: MemberView) -> float | None:
        pace = self._paces.get(member.pod)
        return pace.ends_at if pace else None


class _Changes:
    """The changes of phases, as events: the timeline of the job is on the volume, where this command cannot see it."""

    def __init__(self) -> None:
        self._phases: dict[tuple[str, int], str] = {}
        self._lines: deque[EventLine] = deque(maxlen=_LAST_EVENTS)

    def since(self, members: Sequence[MemberView]) -> tuple[EventLine, ...]:
        """Return the newest events, with those since the last call. The first call sees no change."""
        is_first = not self._phases
        for member in members:
            place = member.role, member.rank
            if self._phases.get(place) != member.phase and not is_first:
                told = f"{member.name}: {member.phase}{': ' if member.what else ''}{member.what}"
                self._lines.append(EventLine(time.time(), told, member.phase in PROBLEMS, is_phase=True))
            self._phases[place] = member.phase
        return tuple(self._lines)
