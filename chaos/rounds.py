"""Play one round: start a gang, inject the faults at their times, and collect the results."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos import limits, traces
from chaos.arena import Arena, End, Frozen
from chaos.plan import ENDING, LAUNCH, TRAINING, Fault, Plan

_TICK = 0.05
_GONE_WITHIN = 15.0  # seconds until processes have ended after a signal, on a busy machine


@dataclass(frozen=True)
class Done:
    """A fault that was injected. `what` is "" if it had no victim."""

    fault: Fault
    what: str
    at: float  # seconds since the launch
    at_clock: int  # nanoseconds, by the clock of the stamps

    def __str__(self) -> str:
        return f"{self.at:.1f} s {self.fault}{'' if self.what else ' (no victim)'}"


@dataclass
class Story:
    """The results of a round, for the invariants."""

    plan: Plan
    folder: Path
    stamps: Path
    job_id: str
    done: list[Done] = field(default_factory=list)
    ends: Sequence[End] = ()
    frozen: Sequence[Frozen] = ()
    complete: bool = False
    hung: bool = False
    seconds: float = 0.0
    said: str = ""
    left: list[str] = field(default_factory=list)
    processes: str = ""

    @property
    def effective(self) -> list[Fault]:
        """The faults that had a victim."""
        return [done.fault for done in self.done if done.what]


class _Faults:
    """The faults of a round. Each is injected and undone at its time."""

    def __init__(self, arena: Arena, plan: Plan, launched: float) -> None:
        self._arena = arena
        self._launched = launched
        self._waiting = list(plan.faults)
        self._lasting: list[tuple[float, Fault]] = []
        self._since = {LAUNCH: launched}
        self._last = plan.passes - 1
        self.done: list[Done] = []

    def step(self) -> None:
        now = time.monotonic()
        self._see_moments(now)
        for until, fault in [(until, fault) for until, fault in self._lasting if until <= now]:
            self._arena.undo(fault)
            self._lasting.remove((until, fault))
        for fault in [fault for fault in self._waiting if self._moment(fault) <= now]:
            self._waiting.remove(fault)
            self._do(fault)

    def _moment(self, fault: Fault) -> float:
        return self._since.get(fault.since, float("inf")) + fault.at

    def _see_moments(self, now: float) -> None:
        if {fault.since for fault in self._waiting} <= set(self._since):
            return
        seen = {(stamp.word, stamp.number) for stamp in traces.stamps(self._arena.stamps)}
        if seen:
            self._since.setdefault(TRAINING, now)
        if ("saved", self._last) in seen:
            self._since.setdefault(ENDING, now)

    def _do(self, fault: Fault) -> None:
        clock = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        what = self._arena.do(fault)
        self.done.append(Done(fault, what, time.monotonic() - self._launched, clock))
        if fault.lasts is not None:
            self._lasting.append((time.monotonic() + fault.lasts, fault))

    def undo_all(self) -> None:
        for _, fault in self._lasting:
            self._arena.undo(fault)


def play(arena: Arena, plan: Plan) -> Story:
    """Play a round in an entered arena. The arena is not closed, so that evidence can still be collected."""
    began = time.monotonic()
    arena.start(plan)
    launched = time.monotonic()
    faults = _Faults(arena, plan, launched)
    story = Story(plan, arena.folder, arena.stamps, arena.job_id, faults.done)
    limit = limits.seconds(plan)
    try:
        while (ends := arena.ended()) is None and not story.hung:
            arena.step()
            faults.step()
            story.hung = time.monotonic() - launched > limit
            time.sleep(_TICK)
    finally:
        if story.hung:
            story.processes = subprocess.run(
                ["ps", "-eo", "pid,ppid,stat,wchan:20,etimes,args"], capture_output=True, text=True, check=False
            ).stdout
        faults.undo_all()
    story.ends = ends or ()
    story.frozen = arena.frozen()
    story.complete = arena.complete()
    story.said = arena.said()
    story.left = arena.left() if story.hung else _left(arena)
    story.seconds = time.monotonic() - began
    return story


def _left(arena: Arena) -> list[str]:
    deadline = time.monotonic() + _GONE_WITHIN
    while (left := arena.left()) and time.monotonic() < deadline:
        time.sleep(_TICK)
    return left
