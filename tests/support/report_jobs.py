"""Write the files of a job that never ran, for tests of the report: members, generations, numbers, failures."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGIN = 1_795_000_000.0  # 2026-11-18 11:06:40 UTC
TAIL = [
    "[11:14:02] INFO: pass: 8, step: 17, loss: 0.6043, ips: 271.3 samples/s",
    "[11:14:04] INFO: pass: 8, step: 18, loss: 0.5921, ips: 268.0 samples/s",
    "[11:14:06] INFO: loading shard 2 into memory: 6.9 GiB",
    "launch.sh: line 12:    57 Killed    python train.py",
]


def stamp(at: float) -> str:
    thousandth = round(at * 1000)
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(thousandth // 1000))
    return f"{whole}.{thousandth % 1000:03}Z"


def second(at: float) -> str:
    return f"{stamp(at)[:19]}Z"


def cause(number: int, kind: str = "trainer", **more: Any) -> dict[str, Any]:
    """Return the first cause of a generation, as the hub writes it."""
    what = "trainer (`python train.py`) was killed by SIGKILL (exit code 137): out of memory (the limit is 8.0 GiB)"
    found = {"kind": kind, "rank": number, "role": "both", "pod": pod(number), "what": what, "code": 137, "tail": TAIL}
    return found | {"final": False, "silent": False} | more


def pod(rank: int) -> str:
    return f"quick-start-{rank}"


@dataclass
class MadeJob:
    """A job of `ranks` members. Each of its generations but the last one ends by a failure of one rank.

    passes: that each generation finishes; pass_seconds: the length of one
    every: seconds between two `numbers` events; 0: there are none
    ends: complete, failed or running
    sizes: how many trainers each generation has; none: they are not written
    ended_by: by generation, a first cause in place of the death of a trainer
    """

    ranks: int = 3
    generations: int = 5
    passes: int = 3
    pass_seconds: float = 40.0
    every: float = 2.0
    ends: str = "complete"
    seed: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = ()
    ended_by: dict[int, dict[str, Any]] = field(default_factory=dict)
    cause: dict[str, Any] | None = None  # of the last generation of a failed job

    def write(self, folder: Path) -> Path:
        """Write the files into `folder`/output, and return `folder`."""
        self.output = folder / "output"
        self.of_job: list[dict[str, Any]] = []
        self.of_member: list[list[dict[str, Any]]] = [[] for _ in range(self.ranks)]
        self.random = random.Random(self.seed)
        self._play()
        self._write_events(self.output, self.of_job)
        for rank, found in enumerate(self.of_member):
            self._write_events(self.output / f"node_{rank}", found)
        self._write_lease()
        return folder

    def _play(self) -> None:
        at = BEGIN
        for rank in range(self.ranks):
            self._member(rank, at + self._jitter(), "staging_begun", None)
            self._member(rank, at + 6 + 2 * self._jitter(), "staging_ended", None, bytes=150_000_000)
            self._member(
                rank, at + 9, "joined", None, job="quick-start", role="both", rank=rank, pod=pod(rank), uid=f"u{rank}"
            )
        at += 10
        members = [
            {"rank": r, "role": "both", "pod": pod(r), "uid": f"u{r}", "address": "10.0.0.1"} for r in range(self.ranks)
        ]
        extra = {key: value for key, value in (("settings", self.settings), ("versions", self.versions)) if value}
        self._job(at, "gang", job="quick-start", members=members, **extra)
        after: int | None = None
        for number in range(self.generations):
            at, after = self._generation(number, at, after, is_last=number == self.generations - 1)
        self.end = at

    def _generation(self, number: int, at: float, after: int | None, *, is_last: bool) -> tuple[float, int | None]:
        began = at
        one: dict[str, Any] = {
            "number": number,
            "began": second(at),
            "ended": None,
            "after_pass": after,
            "first_cause": None,
        }
        if self.sizes:
            one["trainers"] = self.sizes[number]
        self._job(at, "generation_begun", generation=one)
        resumed = {} if after is None else {"after_pass": after}
        for rank in range(self.ranks):
            self._member(rank, at, "generation", number, **resumed)
            self._member(rank, at, "phase", number, phase="starting")
            self._member(rank, at + 4 + self._jitter(), "phase", number, phase="training")
        at += 5
        first = 0 if after is None else after + 1
        for done in range(first, first + self.passes):
            self._numbers(number, done, at)
            at += self.pass_seconds
            average = _loss(done * self.pass_seconds + self.pass_seconds / 2)
            for rank in range(self.ranks):
                self._member(rank, at + self._jitter() / 4, "pass", number, **{"pass": done}, loss=average)
            self._job(at, "pass", generation=number, **{"pass": done})
        newest = first + self.passes - 1
        if is_last and self.ends == "running":
            return at, newest
        if is_last and self.ends == "complete":
            for rank in range(self.ranks):
                self._member(rank, at + 1, "phase", number, phase="trained")
                self._member(rank, at + 2, "ended", number, exit_code=0)
                self._member(rank, at + 2, "phase", number, phase="complete")
            self._save(newest)
            one = {**one, "ended": second(at + 2)}
            self._job(at + 2, "generation_ended", generation=one)
            self._job(at + 2, "ended", exit_code=0, first_cause=None)
            return at + 2, newest
        return self._fail(number, at + self.pass_seconds / 2, one, newest, is_last=is_last, began=began)

    def _fail(
        self, number: int, at: float, one: dict[str, Any], newest: int, *, is_last: bool, began: float
    ) -> tuple[float, int | None]:
        rank = number % self.ranks
        why = cause(rank) if not is_last or self.cause is None else self.cause
        why = self.ended_by.get(number, why)
        if why["kind"] == "trainer":
            self._member(rank, at, "process_ended", number, process="trainer", exit_code=137, tail=TAIL)
        if why["kind"] == "stopped":
            self._member(why["rank"], at, "stop_requested", number)
        kept = max(0, newest - (1 if number % 2 else 0))  # every second time, the newest pass was not saved
        for other in range(self.ranks):
            self._member(other, at + 0.4, "phase", number, phase="ending" if is_last else "restarting")
            if is_last:
                self._member(other, at + 1, "ended", number, exit_code=69, first_cause=why)
                self._member(other, at + 1, "phase", number, phase="failed")
        self._job(at + 0.3, "generation_ended", generation={**one, "ended": second(at + 0.3), "first_cause": why})
        if is_last:
            self._save(kept)
            self._job(at + 1, "ended", exit_code=137, first_cause=why)
        return at + 2 + number % 3 * 4, kept

    def _numbers(self, generation: int, done: int, at: float) -> None:
        if not self.every:
            return
        for rank in range(self.ranks):
            speed = 400 + 10 * (rank % 7) - (150 if rank == self.ranks - 1 and self.ranks > 2 else 0)
            for place in range(int(self.pass_seconds / self.every)):
                moment = place * self.every + self._jitter()
                loss = _loss(done * self.pass_seconds + moment) * (1 + 0.06 * self.random.gauss(0, 1))
                fields = {"pass": done, "step": place, "loss": round(loss, 4), "accuracy": round(1 - loss / 3, 3)}
                rate = round(speed * (1 + 0.05 * self.random.gauss(0, 1)), 1)
                self._member(rank, at + moment, "numbers", generation, **fields, examples_per_second=rate)

    def _jitter(self) -> float:
        return self.random.random()

    def _member(self, number: int, at: float, name: str, generation: int | None, **fields: Any) -> None:
        where = {} if generation is None else {"generation": generation}
        self.of_member[number].append({"v": 1, "at": stamp(at), "event": name, **where, **fields})

    def _job(self, at: float, name: str, **fields: Any) -> None:
        self.of_job.append({"v": 1, "at": stamp(at), "event": name, **fields})

    def _save(self, newest: int) -> None:
        folder = self.output / f"pass-{newest:05d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "done").touch()

    def _write_lease(self) -> None:
        leases = self.output / ".launcher" / ".leases"
        leases.mkdir(parents=True)
        holder = {"gang": "g", "job": "j", "pod": pod(0), "uid": "u0", "ends_within": 100.0}
        (leases / "0").write_text(json.dumps(holder))
        if self.ends != "running":
            (leases / "0.over").write_text("0.0\n")

    @staticmethod
    def _write_events(folder: Path, found: list[dict[str, Any]]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lines = sorted(found, key=lambda event: str(event["at"]))
        (folder / "events.jsonl").write_bytes(b"".join(_lines(lines)))


def _lines(found: list[dict[str, Any]]) -> Iterator[bytes]:
    for event in found:
        yield json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _loss(seconds: float) -> float:
    return 0.25 + 2.2 * math.exp(-seconds / 180)
