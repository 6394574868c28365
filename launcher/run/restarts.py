"""Decide whether the job restarts after a failure, and how long the pause before the restart is."""

from __future__ import annotations

from dataclasses import dataclass, replace

from launcher.errors import CANNOT_RUN, FOR_GOOD
from launcher.gang import Verdict
from launcher.model import Cause, CauseKind

MAX_ATTEMPTS = 5  # the job is given up after so many attempts in a row without progress
FINAL_CODES = frozenset({*map(int, FOR_GOOD), CANNOT_RUN})  # after these codes, another attempt cannot help
LONGEST_PAUSE = 60.0  # seconds
_LASTED = 60.0  # seconds: if passes cannot be seen, a generation that ran for so long counts as progress


@dataclass
class Generation:
    """The latest generation.

    resume: the pass after which it started, or None
    begun: when it began
    """

    resume: int | None
    begun: float
    passed: bool = False  # a trainer has logged the end of a pass, or the job is complete
    progressed: bool = False  # a finished pass counts: it is saved, or passes are not saved
    ended_by: Cause | None = None


class RestartPolicy:
    """Decide what follows from each failure of a job. Callers pass the time in seconds: no method reads a clock.

    max_restarts: how often this hub may start the processes again
    without_progress: how many generations in a row have ended before their first pass was complete
    sees_passes: the launcher learns of each finished pass
    sees_saves: each finished pass is saved where the launcher sees it. Then only a saved pass is progress.
    has_identity: the job has an identity, so the volume keeps the count of attempts for new pods
    rejoins: after the loss of a member, the other members join again
    forgets: new pods could not know how often the job has restarted
    stalled_within: a job counts as stalled after at most this many seconds without output
    """

    def __init__(
        self,
        max_restarts: int,
        without_progress: int,
        *,
        sees_passes: bool,
        sees_saves: bool = False,
        has_identity: bool,
        rejoins: bool,
        forgets: bool = False,
        stalled_within: float = 0.0,
        first_pause: float = 1.0,
    ) -> None:
        self.without_progress = without_progress  # including the latest generation
        self.latest: Generation | None = None
        self._before = without_progress  # the same number, excluding the latest generation
        self._max_restarts = self._restarts_left = max_restarts
        self._sees_passes = sees_passes
        self._sees_saves = sees_saves
        self._has_identity = has_identity
        self._rejoins = rejoins
        self._forgets = forgets
        self._stalled_within = stalled_within
        self._first_pause = self._next_pause = first_pause
        self._failed_at = 0.0
        self._last_failure: tuple[CauseKind, int] | None = None  # of the previous generation, if it made no progress

    @property
    def failed(self) -> Generation | None:
        """The latest generation, if it has failed."""
        return self.latest if self.latest and self.latest.ended_by else None

    def begin(self, resume: int | None, now: float) -> None:
        """Begin a generation, and count it as an attempt now. At its end, perhaps no launcher is left to count it."""
        self.latest = Generation(resume, now)
        self.without_progress = self._before + 1

    def passed(self) -> None:
        """Record that a trainer has logged the end of a pass. If passes are saved, it is progress only once saved."""
        if self.latest is not None:
            self.latest.passed = True
        if not self._sees_saves:
            self.progressed()

    def progressed(self) -> None:
        """Record progress: a pass is saved, a pass that is not saved is finished, or the job is complete."""
        if self.latest is not None:
            self.latest.passed = self.latest.progressed = True
        self.without_progress = 0

    def catch_up(self, without_progress: int) -> None:
        """Use the count of another gang of this job, since that gang has run newer generations."""
        self.without_progress = self._before = without_progress

    def judge(self, cause: Cause, now: float) -> tuple[Cause, Verdict]:
        """Return the cause to send to all members, and the verdict."""
        gone = (cause.kind.gone and self._rejoins) or cause.kind is CauseKind.RESIZED
        if self.latest is None and cause.kind.is_child:  # a server that has started early has died
            return self._restart(cause, now)
        if self.latest is None or self.failed:  # no generation runs, so none is at fault
            return cause, Verdict.REJOIN if gone else Verdict.STOP
        self.latest.ended_by = cause
        if not self.latest.progressed and cause.kind.planned:  # this does not count as an attempt
            self.without_progress = self._before
        elif not self.latest.passed and self._is_last_attempt(self._before + 1):
            return self._no_attempts_left(cause, self._before + 1), Verdict.STOP
        return (cause, Verdict.REJOIN) if gone else self._restart(cause, now)

    def look_back(self, saved: bool, now: float) -> Cause | None:
        """Count the failed generation before the next generation begins.

        Return None if the job may continue. If the same failure came twice without progress, the training program has a
        bug. Then return the cause with which the job is given up. Return such a cause, too, if no attempt is left.

        saved: whether the failed generation has saved a new pass
        """
        failed = self.failed
        if failed is None or failed.ended_by is None:
            return None
        self.latest = None
        cause = failed.ended_by
        if failed.progressed or saved or self._has_lasted(failed, cause, now):
            self._before, self._last_failure, self._next_pause = 0, None, self._first_pause
            return None
        self._before += not cause.kind.planned
        if not cause.kind.planned and self._is_last_attempt(self._before):
            return self._no_attempts_left(cause, self._before)
        if not cause.kind.is_child and cause.kind is not CauseKind.STALLED:  # the training program is not at fault
            return None
        if self._last_failure == (cause.kind, cause.code):
            return _give_up(cause, "the same failure came twice without progress")
        self._last_failure = cause.kind, cause.code
        return None

    def pause(self, now: float) -> float:
        """Return how many seconds to wait from `now` until the next start. Double the pause of the start after that.

        The result is 0 or less if the pause is over already.
        """
        pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)
        return self._failed_at + pause - now

    def _has_lasted(self, failed: Generation, cause: Cause, now: float) -> bool:
        silent = self._stalled_within if cause.kind is CauseKind.STALLED else 0.0
        return not self._sees_passes and now - failed.begun - silent >= _LASTED

    def _is_last_attempt(self, attempts: int) -> bool:
        return self._sees_passes and self._has_identity and attempts >= MAX_ATTEMPTS

    def _no_attempts_left(self, cause: Cause, attempts: int) -> Cause:
        return _give_up(cause, f"{attempts} attempts in a row ended before their first pass was done")

    def _restart(self, cause: Cause, now: float) -> tuple[Cause, Verdict]:
        if not cause.kind.restartable or cause.code in FINAL_CODES or cause.final:
            return cause, Verdict.STOP
        if self._restarts_left <= 0:
            used_up = self._max_restarts > 0 and self._forgets  # if False, the Job decides whether new pods try again
            return _give_up(cause, f"started again {self._max_restarts} times") if used_up else cause, Verdict.STOP
        self._restarts_left -= 1
        self._failed_at = now
        return cause, Verdict.RESTART


def _give_up(cause: Cause, why: str) -> Cause:
    return replace(cause, what=f"{cause.what}; given up: {why}", final=True)
