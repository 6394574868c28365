"""What the volume is told while a job runs: each member's status.json, and by the hub job.json and the attempts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping

from launcher import report, roles
from launcher.errors import Exit
from launcher.latest import LatestFile
from launcher.model import Cause, Member, Outcome, Roster
from launcher.record import MAX_ATTEMPTS

_LAST_PHASES: Mapping[int, str] = {Exit.COMPLETE: "complete", Exit.STOPPED: "stopped"}


class Journal:
    """Begins when the rank is known. Writes off the loop: nothing here waits for the volume but `flush`.

    Attempts are counted in `attempts_file`, where there is one: only a job whose progress can be seen can lack it.
    """

    def __init__(
        self,
        job: str,
        output: str,
        roster: Roster,
        me: Member,
        attempts_file: str | None,
        failed: int,
        shape: roles.Shape,
        say: Callable[[str], None],
    ) -> None:
        assert me.rank is not None
        self.folder = os.path.join(output, roles.folder(me.role, shape.number(me.rank)))
        self.attempt = failed + 1
        self._job = job
        self._roster = roster
        self._me = me
        self._shape = shape
        self._since = report.now()
        self._started = self._since
        self._phase = ""
        self._last_pass: int | None = None
        self._result: Outcome | None = None
        self._status = LatestFile(os.path.join(self.folder, "status.json"), say)
        self._hub = me.rank == 0
        self._summary = LatestFile(os.path.join(output, "job.json"), say)
        self._attempts = LatestFile(attempts_file, say) if self._hub and attempts_file else None
        self._count(self.attempt)
        self._write_summary()

    def phase(self, name: str) -> None:
        self._phase, self._since = name, report.now()
        self._write_status()

    def passed(self, number: int) -> None:
        """A pass is done: the attempt made progress, so that none before it counts against the job."""
        self._last_pass = number
        self._count(0)
        self._write_status()

    def judge(self, cause: Cause) -> Cause:
        """The hub's last word on a first cause: after too many attempts without progress the job is given up."""
        if self._last_pass is not None:
            return cause  # the attempt made progress: none before it counts, whatever ends it
        if cause.kind == "stopped":
            self._count(self.attempt - 1)
        elif self._attempts and self.attempt >= MAX_ATTEMPTS:
            given_up = (
                f"{cause.what}; given up: {self.attempt} attempts in a row ended before their first pass was done"
            )
            return dataclasses.replace(cause, what=given_up, final=True)
        return cause

    def ended(self, result: Outcome) -> None:
        """The last entry."""
        self._result = result
        if result.code == Exit.COMPLETE:
            self._count(0)
        self.phase(_LAST_PHASES.get(result.code, "failed"))
        self._write_summary()

    def flush(self, within: float) -> bool:
        """Wait for what was written last. Blocks: call it off the loop."""
        files = [self._status, *([self._summary] if self._hub else []), *([self._attempts] if self._attempts else [])]
        return all(file.flush(within) for file in files)

    def _count(self, without_progress: int) -> None:
        if self._attempts:
            self._attempts.put({"without_progress": without_progress})

    def _write_status(self) -> None:
        content = (self._job, self._me, self._phase, self._since, self._last_pass, self._result, self._shape)
        self._status.put(report.status(*content))

    def _write_summary(self) -> None:
        if not self._hub:
            return
        self._summary.put(
            {
                "job": self._job,
                "members": [
                    {**dataclasses.asdict(member), **report.place(member.rank, self._shape)}
                    for member in self._roster.members
                ],
                "attempt": self.attempt,
                "started": self._started,
                "ended": None if self._result is None else report.now(),
                "exit_code": None if self._result is None else report.job_code(self._result),
                "first_cause": report.cause_in_words(self._result, self._shape),
            }
        )
