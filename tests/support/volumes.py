"""A job's folder on a volume, as launchers leave it: events, status files and logs."""

from __future__ import annotations

import json
import os
import time
from functools import reduce
from pathlib import Path
from typing import Any

from launcher.base.files import Folder
from launcher.store.events import as_line, fold_job, fold_member, new_event, read
from launcher.store.lease_files import LeaseFiles, LeaseOwner

_HOLDER = LeaseOwner("gang-1", "job-1", "pod-0", "", 155.0)


class JobFolder:
    """The files of a job whose members have joined. Each method writes what launchers write."""

    def __init__(self, folder: Path, members: int = 3) -> None:
        self.path = folder / "quick-start"
        self.output = self.path / "output"
        self.output.mkdir(parents=True)
        self.leases = LeaseFiles(str(self.output))
        self.leases.take(0, _HOLDER)
        joined = [
            {"role": "both", "rank": rank, "pod": f"pod-{rank}", "uid": "", "address": ""} for rank in range(members)
        ]
        self.add("gang", job="quick-start", members=joined)
        self.add("generation_begun", generation={"number": 0, "began": "2026-11-19T11:00:00Z", "ended": None})
        for rank in range(members):
            self.of(rank, "joined", job="quick-start", role="both", rank=rank, pod=f"pod-{rank}", uid="")
            self.of(rank, "generation", generation=0)
            self.of(rank, "phase", phase="training")

    def add(self, name: str, **fields: Any) -> None:
        """Add an event of the job, and write job.json."""
        self._append(self.output, "job.json", fold_job, name, fields)

    def of(self, rank: int, name: str, /, **fields: Any) -> None:
        """Add an event of a member, and write its status.json."""
        self._append(self.output / f"node_{rank}", "status.json", fold_member, name, fields)

    def log(self, rank: int, text: str) -> None:
        with (self.output / f"node_{rank}" / "train.log").open("a") as file:
            file.write(text)

    def end(self, code: int = 0, /, **cause: Any) -> None:
        """End all members and the job."""
        for rank in range(sum(1 for _ in self.output.glob("node_*"))):
            self.of(rank, "ended", exit_code=code, first_cause=cause or None)
            self.of(rank, "phase", phase="failed" if code else "complete")
        self.add("ended", exit_code=code, first_cause=cause or None)
        self.leases.release(_HOLDER.gang, 0)

    def age(self, seconds: float) -> None:
        """Let all files be this old."""
        at = time.time() - seconds
        for path in self.output.rglob("*"):
            os.utime(path, (at, at))

    def _append(self, folder: Path, summary: str, fold: Any, name: str, fields: dict[str, Any]) -> None:
        folder.mkdir(exist_ok=True)
        with (folder / "events.jsonl").open("ab") as file:
            file.write(as_line(new_event(name, **fields)))
        content: Any = reduce(fold, read(Folder(str(folder))), {})
        temporary = folder / f".{summary}"
        temporary.write_text(json.dumps(content))
        temporary.rename(folder / summary)
