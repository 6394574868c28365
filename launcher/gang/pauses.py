"""The pauses of a job: how long all its trainers printed nothing, as far as their reports tell."""

from __future__ import annotations

from launcher.gang.events import ALL_PASSES, PROGRESS_REPORTS, SOME_PASSES, GangSettings, Progress

_FACTOR = 10  # a pause is a stall if it is so many times as long as the longest one before it


class Pauses:
    """Choose the stall timeout of an attempt from its pauses so far, for LAUNCHER_STALL_TIMEOUT=auto.

    The job pauses while all its trainers pause. So its longest pause is at most the longest pause of each trainer.
    Callers pass the time in seconds: no method reads a clock.
    """

    def __init__(self, settings: GangSettings) -> None:
        self._shortest = settings.shortest_auto_stall
        # A member whose last line is so old has not printed since. Reports may be late by one interval.
        self._overdue = 1.5 * settings.reported_stall / PROGRESS_REPORTS
        self._longest = 0.0
        self._knows_passes = self._is_last_done = False
        self._reports: dict[int, tuple[float, Progress]] = {}  # by rank: when its last line was printed, and its report

    def begin(self) -> None:
        """Begin an attempt. It may first load a saved pass, which the attempts before it did not do."""
        self._knows_passes = self._is_last_done = False
        self._reports = {}

    def add(self, rank: int, printed_at: float, report: Progress) -> None:
        self._reports[rank] = printed_at, report
        self._knows_passes = self._knows_passes or report.passes in (SOME_PASSES, ALL_PASSES)
        self._is_last_done = self._is_last_done or report.passes == ALL_PASSES
        self._longest = max(self._longest, self._pause())

    def trained(self) -> None:
        """Record that all trainers of a member have ended: what the others still do has no pause to compare with."""
        self._is_last_done = True

    @property
    def timeout(self) -> float | None:
        """The stall timeout now; None: no limit.

        There is no limit before two passes of the attempt are done: the pause between two passes is not known yet.
        There is none after the last pass either, if the number of passes is known.
        """
        if not self._knows_passes or self._is_last_done:
            return None
        return max(self._shortest, _FACTOR * self._longest)

    @property
    def longest(self) -> float:
        """The longest pause of all attempts so far."""
        return self._longest

    def _pause(self) -> float:
        """Return the longest pause of this attempt so far. The time before the first line of the job is no pause."""
        latest = max(at for at, _ in self._reports.values())
        first = min(report.first_line_after for _, report in self._reports.values())
        return min(self._of_member(latest - at, first, report) for at, report in self._reports.values())

    def _of_member(self, silent: float, first: float, report: Progress) -> float:
        """Return the longest pause of a member, which had printed nothing for `silent` seconds at the latest line."""
        late = report.first_line_after - first
        return max(report.longest_pause, late, silent if silent > self._overdue else 0.0)
