"""What the volume is told while a job runs: each member's status.json, and by the hub job.json and the generations."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from launcher.base.clock import utc_now
from launcher.errors import Exit
from launcher.model import Member, Outcome, Roster, Shape, Start, member_folder
from launcher.store.history import History
from launcher.store.json_fields import cause_fields, member_status, place_fields
from launcher.store.latest_file import LatestFile

_LAST_PHASES: Mapping[int, str] = {Exit.COMPLETE: "complete", Exit.STOPPED: "stopped"}


class Journal:
    """Begins when the rank is known, and writes once a generation has begun: before that another gang may train here.

    Writes off the loop: nothing here waits for the volume but `flush`.

    `history` is the hub's, for job.json and, where the job has an identity, for `attempts_file`.
    """

    def __init__(
        self,
        job: str,
        output: str,
        roster: Roster,
        me: Member,
        history: History | None,
        attempts_file: str | None,
        shape: Shape,
    ) -> None:
        assert me.rank is not None
        self.folder = os.path.join(output, member_folder(me.role, shape.number(me.rank)))
        self._job = job
        self._roster = roster
        self._me = me
        self._shape = shape
        self._since = utc_now()
        self._started = self._since
        self._phase = ""
        self._generation: int | None = None
        self._last_pass: int | None = None
        self._result: Outcome | None = None
        self._history = history
        self._status = LatestFile(os.path.join(self.folder, "status.json"))
        self._summary = LatestFile(os.path.join(output, "job.json"))
        self._attempts = LatestFile(attempts_file) if attempts_file else None
        self.begun = False

    def phase(self, name: str) -> None:
        self._phase, self._since = name, utc_now()
        self._write_status()

    def begin(self, start: Start) -> None:
        """A generation begins; what was trained before is done."""
        self._generation = start.generation
        self._last_pass = start.resume
        self.begun = True
        self.phase("starting")
        self.summarize()

    def passed(self, number: int) -> None:
        self._last_pass = number
        self._write_status()

    def ended(self, result: Outcome) -> None:
        """The last entry, also where nothing has begun."""
        self._result = result
        self.begun = True
        self.phase(_LAST_PHASES.get(result.code, "failed"))
        self.summarize()

    def summarize(self) -> None:
        """The history has changed, or the end has come."""
        if self._history is None or not self.begun:
            return
        history = self._history.content()
        if self._attempts:
            self._attempts.put(history)
        self._summary.put(
            {
                "job": self._job,
                "members": [
                    {**dataclasses.asdict(member), **place_fields(member.rank, self._shape)}
                    for member in self._roster.members
                ],
                "generations": history["generations"],
                "started": self._started,
                "ended": None if self._result is None else utc_now(),
                "exit_code": None if self._result is None else self._result.job_code,
                "first_cause": cause_fields(self._result.cause if self._result else None, self._shape),
            }
        )

    def flush(self, within: float) -> bool:
        """Wait for what was written last. Blocks: call it off the loop."""
        files = [self._status]
        if self._history is not None:
            files += [self._summary, *([self._attempts] if self._attempts else [])]
        return all(file.flush(within) for file in files)

    def _write_status(self) -> None:
        if not self.begun:
            return
        self._status.put(
            member_status(
                self._job,
                self._me,
                self._phase,
                self._since,
                self._generation,
                self._last_pass,
                self._result,
                self._shape,
            )
        )
