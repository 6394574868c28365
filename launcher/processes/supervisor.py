"""All processes of one member: started, watched, told of, and ended with everything that they left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher.base.aio import bounded, off_loop
from launcher.base.spawn import is_own, reap_orphans
from launcher.model import Process
from launcher.processes import oom, stacks
from launcher.processes.child import KILL_WAIT, Child, Death, StartFailed
from launcher.processes.evidence import Subject
from launcher.processes.guardian import Guardian
from launcher.processes.output import Output
from launcher.processes.ports import wait_until_listening
from launcher.processes.proc import descendants, read_entry, table, tagged, tagged_environment
from launcher.processes.sinks import Limits

log = logging.getLogger(__name__)

_REST_GRACE = 1.0  # for what is left of a group when its process has died
_SETTLE = 0.1  # for the last words of a dead process to be read
_DETACH = 0.3  # for the end of a pipe that somebody outside the group may hold
_SWEEP = 1.0


@dataclass(frozen=True)
class Serving:
    """All ports of the process listen."""

    process: Process


@dataclass(frozen=True)
class Died:
    """Nobody had asked for this end. `at` is by the monotonic clock; `why` is set when it could not be started.

    `shortage` says so where the kernel killed for want of memory since the start. `words` are more of its last lines
    than `tail`: what tells why may stand far above the end.
    """

    process: Process
    code: int
    at: float
    tail: tuple[str, ...]
    why: str = ""
    shortage: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassDone:
    """A process has logged the end of this pass."""

    number: int


Event = Serving | Died | PassDone


class _Run:
    """One process of the plan, over all its tries."""

    def __init__(self, process: Process, output: Output) -> None:
        self.process = process
        self.output = output
        self.child: Child | None = None
        self.served = False
        self.ending = False  # asked for: its death is no event
        self.rest_grace = _REST_GRACE
        self.task: asyncio.Task[None] | None = None


class Supervisor:
    """Made on the loop. `events` is called on the loop, and `printed` from other threads whenever
    a trainer has printed something. With `can_tell_stacks` Python children are started such that they can.

    The caller has SIGCHLD call `processes.reap_orphans`, and is process 1 or has called `become_subreaper`.
    """

    def __init__(
        self,
        events: Callable[[Event], None],
        tag: str,
        guardian: Guardian | None = None,
        *,
        printed: Callable[[], None] = lambda: None,
        can_tell_stacks: bool = False,
        stdout: int = 1,
        limits: Limits | None = None,
    ) -> None:
        self._events = events
        self._tag = tag
        self._guardian = guardian
        self._printed = printed
        self._can_tell_stacks = can_tell_stacks
        self._printed_last: Output | None = None
        self._stdout = stdout
        self._limits = limits
        self._runs: list[_Run] = []
        self._place: tuple[str | None, str] | None = None

    def start(self, process: Process) -> None:
        """Start it and see to it from now on. One that dies before it serves is tried again as often as it may."""
        output = Output(
            process,
            passed=lambda number: self._events(PassDone(number)),
            printed=lambda: self._note_printed(run),
            stdout=self._stdout,
            limits=self._limits,
        )
        if self._place is not None:
            output.place(*self._place)
        run = _Run(process, output)
        self._runs.append(run)
        run.task = asyncio.ensure_future(self._see_to(run))

    def subjects(self) -> list[Subject]:
        """The children that live, for evidence of what they do."""
        return [
            Subject(run.process.role, run.process.log, run.child.pid, run.output.words())
            for run in self._runs
            if run.child is not None and run.child.pid is not None and run.child.lives
        ]

    def last_line(self) -> str:
        """Of the trainer that has printed last."""
        return next(reversed(self._printed_last.tail()), "") if self._printed_last else ""

    def place_logs(self, folder: str | None, mark: str) -> None:
        """The member's folder is known: logs are written there, after a line with this mark. None: no log files."""
        self._place = (folder, mark)
        for run in self._runs:
            run.output.place(folder, mark)

    async def end(self, grace: float, *, role: str | None = None) -> list[Process]:
        """End all, or those of a role: SIGTERM at once, SIGKILL at the end of the grace.

        Gives those of which something is left, held by the kernel.
        """
        runs = [run for run in self._runs if role in (None, run.process.role)]
        gone = await asyncio.gather(*(self._end(run, grace) for run in runs))
        left = [run for run, is_gone in zip(runs, gone, strict=True) if not is_gone]
        for run in left:
            log.info(
                f"the {run.process.role} (process group {run.child and run.child.pid}) does not end even by SIGKILL: "
                "the kernel holds it, as it does when a volume stalls; it is left behind"
            )
        return [run.process for run in left]

    def kill(self) -> None:
        """SIGKILL to all, now, also while `end` waits."""
        for run in self._runs:
            run.ending = True
            if run.child is not None:
                run.child.kill()

    async def close(self, flush_within: float) -> None:
        """Kill what is left, strays of sessions of their own included, and bring all output to its places."""
        self.kill()
        await asyncio.gather(*(self._end(run, 0) for run in self._runs))
        await self._sweep()
        await asyncio.gather(*(self._close(run, flush_within) for run in self._runs))
        self._runs.clear()

    async def _see_to(self, run: _Run) -> None:
        process = run.process
        for attempt in range(1, process.tries + 1):
            if run.ending:
                return
            shortage = oom.watch()
            child = run.child = Child(process, self._environment(process), self._watch)
            try:
                await child.start(run.output.attach())
            except StartFailed as failure:
                self._tell_death(run, Death(failure.code, time.monotonic()), failure.message)
                self._forget(child)
                return
            death = await self._live(run, child)
            await run.output.settle(_SETTLE)
            last = run.served or not process.ports or attempt == process.tries
            if last:
                self._tell_death(run, death, shortage=shortage())
            gone = await child.end(run.rest_grace)
            if gone:
                self._forget(child)
            await run.output.detach(_DETACH)
            if last or run.ending:
                return
            if not gone:  # what is left of it may hold its ports
                self._tell_death(run, death, shortage=shortage())
                return
            log.info(
                f"the {process.role} ended with {death.code} before it served (try {attempt} of {process.tries}), "
                f"it is started again; its last words: {' / '.join(run.output.tail()[-1:]) or 'none'}"
            )

    def _environment(self, process: Process) -> Mapping[str, str]:
        env = tagged_environment(process.env, self._tag)
        return stacks.environment(env) if self._can_tell_stacks else env

    def _note_printed(self, run: _Run) -> None:
        """Called in the thread that reads."""
        if run.process.role == "trainer":
            self._printed_last = run.output
            self._printed()

    async def _live(self, run: _Run, child: Child) -> Death:
        """From its start to its death; in between it may come to serve."""
        stop = threading.Event()
        watch = asyncio.ensure_future(self._tell_serving(run, child, stop)) if run.process.ports else None
        death = await child.death()
        stop.set()
        if watch is not None:
            watch.cancel()
        return death

    async def _tell_serving(self, run: _Run, child: Child, stop: threading.Event) -> None:
        assert child.pid is not None
        if await off_loop(wait_until_listening, child.pid, run.process.ports, stop) and not run.ending:
            run.served = True
            self._events(Serving(run.process))

    def _tell_death(self, run: _Run, death: Death, why: str = "", shortage: str = "") -> None:
        if not run.ending:
            output = run.output
            self._events(Died(run.process, death.code, death.at, output.tail(), why, shortage, output.words()))

    def _watch(self, pid: int) -> None:
        """Called in the starting thread, at the fork."""
        if self._guardian is not None:
            self._guardian.watch(pid)

    def _forget(self, child: Child) -> None:
        if self._guardian is not None and child.pid is not None:
            self._guardian.forget(child.pid)

    async def _end(self, run: _Run, grace: float) -> bool:
        run.ending = True
        run.rest_grace = grace  # a wrapper, as of `paddle`, dies at once: what it started gets all of the grace
        return run.child is None or await run.child.end(grace)

    async def _close(self, run: _Run, flush_within: float) -> None:
        if run.task is not None:
            await asyncio.wait([run.task], timeout=KILL_WAIT + _DETACH)
        await run.output.detach(0)
        await run.output.close(flush_within)

    async def _sweep(self) -> None:
        """Kill what our children left behind outside their groups, and orphans that fell to us."""
        killed: set[int] = set()
        strays: set[int] = set()

        async def until_none_is_left() -> None:
            nonlocal strays
            while strays := await off_loop(_kill_strays, self._tag):
                killed.update(strays)
                reap_orphans()
                await asyncio.sleep(0.01)

        try:
            await bounded(until_none_is_left(), _SWEEP)
        except asyncio.TimeoutError:
            log.info(f"processes {sorted(strays)} do not end even by SIGKILL: the kernel holds them, they are left")
        if killed:
            log.info(f"{len(killed)} processes that the children had left behind were killed")


def _kill_strays(tag: str) -> set[int]:
    """SIGKILL to every live stray. Gives those that were there."""
    processes = table()
    me = os.getpid()
    orphans = {pid for pid, entry in processes.items() if entry.parent == me and not is_own(pid)}
    strays = (descendants(orphans, processes) | set(tagged(tag))) - {me}
    return {pid for pid in strays if _kill(pid)}


def _kill(pid: int) -> bool:
    """Whether it was still alive. Its number was seen a moment ago: numbers do not come round as fast as that."""
    entry = read_entry(pid)
    if entry is None or entry.dead:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
