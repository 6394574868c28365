"""Start, watch and end all processes of one member, and kill the processes that they leave behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from launcher.base import shortage
from launcher.base.aio import run_in_own_thread, run_in_thread, wait_within
from launcher.base.spawn import is_own_child, reap_orphans
from launcher.errors import CANNOT_RUN, Failure
from launcher.model import Numbers, Process
from launcher.processes import forwarding, oom, stacks
from launcher.processes.child import KILL_WAIT, Child, Death, StartFailed
from launcher.processes.evidence import Subject
from launcher.processes.guardian import Guardian
from launcher.processes.output import NumbersReader, Output
from launcher.processes.ports import wait_until_listening
from launcher.processes.proc import all_processes, descendants, find_tagged, read_entry, tagged_environment
from launcher.processes.sinks import Limits

log = logging.getLogger(__name__)

# In seconds.
_REST_GRACE = 1.0  # for the other processes of a group to end after the death of the first one
_READ_REST = 0.1  # for reading the last output of a dead process
_DETACH = 0.3  # for the end of a pipe that a process outside of the group may still have open
_SWEEP = 1.0  # for killing processes outside of the children's groups


@dataclass(frozen=True)
class Serving:
    """The process listens on all its ports."""

    process: Process


@dataclass(frozen=True)
class Died:
    """The process could not be started, or has died although the supervisor was not ending it.

    at: the monotonic time of the death
    tail: the last lines of its output
    start_error: why the process could not be started, or why the launcher had to end it, or ""
    out_of_memory: a sentence, if the kernel killed a process of the container because memory ran out, or ""
    recent_lines: more of the last lines: the line with the reason may be far above the last line
    """

    process: Process
    code: int
    at: float
    tail: tuple[str, ...]
    start_error: str = ""
    out_of_memory: str = ""
    recent_lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassDone:
    """A trainer has logged the end of this pass."""

    number: int


@dataclass(frozen=True)
class NumbersSeen:
    """A trainer has printed new numbers. This event comes before or after `PassDone` of the same line."""

    numbers: Numbers


Event = Serving | Died | PassDone | NumbersSeen


class _Run:
    """One process of the plan, with all its starts."""

    def __init__(self, process: Process, output: Output) -> None:
        self.process = process
        self.output = output
        self.child: Child | None = None
        self.has_served = False
        self.printed_at = time.monotonic()  # or when it was started, before its first output
        self.is_ending = False  # the supervisor is ending the process, so its death is not reported
        self.rest_grace = _REST_GRACE
        self.task: asyncio.Task[None] | None = None


class Supervisor:
    """Supervises one attempt. The caller must create it on the event loop. It calls `events` on the same loop.

    on_output: called in a thread after each output of a trainer
    find_numbers: makes the reader of the numbers in one trainer's output; None: no events `NumbersSeen`
    format_line: takes the role of a process and a line, see StandardStreams

    The caller must call `base.spawn.reap_orphans` on SIGCHLD, and be process 1 or a subreaper.
    """

    def __init__(
        self,
        events: Callable[[Event], None],
        tag: str,
        guardian: Guardian | None = None,
        *,
        on_output: Callable[[], None] = lambda: None,
        find_numbers: Callable[[], NumbersReader] | None = None,
        format_line: Callable[[str, bytes], bytes] | None = None,
        stdout: int = 1,
        stderr: int = 2,
        limits: Limits | None = None,
    ) -> None:
        self._events = events
        self._tag = tag
        self._guardian = guardian
        self._on_output = on_output
        self._find_numbers = find_numbers
        self._last_printed: Output | None = None  # of the trainer that printed last
        self._forwarding: asyncio.Task[None] | None = None  # a task that nothing refers to may be dropped
        self._format_line = format_line
        self._stdout, self._stderr = stdout, stderr
        self._turns = (threading.Lock(), threading.Lock())  # for standard output and standard error
        self._limits = limits
        self._runs: list[_Run] = []
        self._log_folder: tuple[str | None, str] | None = None

    def start(self, process: Process) -> None:
        """Start a process and supervise it. If it dies before it listens on all its ports, start it again.

        `process.tries` is the maximum number of starts, the first included.
        """
        output = Output(
            process,
            on_pass=lambda number: self._events(PassDone(number)),
            on_output=lambda: self._note_output(run),
            on_numbers=lambda numbers: self._events(NumbersSeen(numbers)),
            numbers=self._find_numbers() if self._find_numbers and process.role == "trainer" else None,
            stdout=self._stdout,
            stderr=self._stderr,
            format_line=partial(self._format_line, process.role) if self._format_line else None,
            turns=self._turns,
            limits=self._limits,
        )
        if self._log_folder is not None:
            output.set_folder(*self._log_folder)
        run = _Run(process, output)
        self._runs.append(run)
        run.task = asyncio.ensure_future(self._supervise(run))

    def subjects(self) -> list[Subject]:
        """Return the live children as subjects for evidence."""
        now = time.monotonic()
        return [
            Subject(run.process.role, run.process.log, run.child.pid, run.output.recent_lines(), now - run.printed_at)
            for run in self._runs
            if run.child is not None and run.child.pid is not None and run.child.is_alive
        ]

    def last_line(self) -> str:
        """Return the last line of the trainer that printed last."""
        return next(reversed(self._last_printed.tail()), "") if self._last_printed else ""

    def log_traffic(self) -> tuple[int, int]:
        """Return how many bytes all processes have printed, and how many of them are not in the log files yet."""
        each = [run.output.traffic() for run in self._runs]
        return sum(read for read, _ in each), sum(waiting for _, waiting in each)

    def set_log_folder(self, folder: str | None, mark: str) -> None:
        """Write all logs to this folder, each after a line with `mark`. If the folder is None, write no log files."""
        self._log_folder = (folder, mark)
        for run in self._runs:
            run.output.set_folder(folder, mark)

    async def end(self, grace: float, *, role: str | None = None) -> list[Process]:
        """End all processes, or all processes of `role`: send SIGTERM now, and SIGKILL after `grace` seconds.

        Return the processes that are still alive after SIGKILL, for example because they are blocked in the kernel.
        """
        runs = [run for run in self._runs if role in (None, run.process.role)]
        ended = await asyncio.gather(*(self._end(run, grace) for run in runs))
        held = [run for run, has_ended in zip(runs, ended, strict=True) if not has_ended]
        for run in held:
            log.info(
                f"the {run.process.role} (process group {run.child and run.child.pid}) did not end after SIGKILL: it "
                "is blocked in the kernel, for example by a stalled volume; the launcher continues without it"
            )
        return [run.process for run in held]

    def kill(self) -> None:
        """Send SIGKILL to all processes now, even while `end` waits."""
        for run in self._runs:
            run.is_ending = True
            if run.child is not None:
                run.child.kill()

    async def close(self, flush_within: float) -> None:
        """Kill all processes that are left, even in other sessions, and write all pending output."""
        self.kill()
        await asyncio.gather(*(self._end(run, 0) for run in self._runs))
        await self._kill_strays()
        await asyncio.gather(*(self._close(run, flush_within) for run in self._runs))
        self._runs.clear()

    def forward(self, number: int) -> None:
        """Send a signal on to the trainers that handle it, or to the servers if there are no trainers."""
        live = [run for run in self._runs if run.child is not None and run.child.is_alive]
        groups = [
            run.child.pid
            for run in [run for run in live if run.process.role == "trainer"] or live
            if run.child is not None and run.child.pid is not None
        ]
        self._forwarding = asyncio.ensure_future(self._forward(number, groups))

    async def _forward(self, number: int, groups: list[int]) -> None:
        name = signal.Signals(number).name
        try:
            pids = await run_in_thread(forwarding.forward, number, groups)
        except (Failure, OSError) as error:
            log.info(f"{name} is not sent to any process: {shortage.explain(error) or error}")
            return
        if pids:
            log.info(f"{name} is sent to process {', '.join(map(str, pids))}")
        elif number != signal.SIGWINCH:
            log.info(f"{name} is not sent to any process: no trainer handles {name}, so {name} would end the trainers")

    async def _supervise(self, run: _Run) -> None:
        """Start and watch a process. If this fails, kill the process, since the gang would wait for it forever."""
        try:
            await self._start_and_watch(run)
        except Exception as error:
            child = run.child
            started = child is not None and child.pid is not None
            what = "was ended, since the launcher cannot watch it" if started else "cannot start"
            why = f"the {run.process.role} {what}: {_reason(error)}"
            self._report_death(run, Death(CANNOT_RUN, time.monotonic()), start_error=why)
            if child is not None and await child.end(0):
                self._forget(child)
            await run.output.detach(_DETACH)

    async def _start_and_watch(self, run: _Run) -> None:
        process = run.process
        for try_number in range(1, process.tries + 1):
            if run.is_ending:
                return
            describe_kill = oom.watch()
            child = run.child = Child(process, self._environment(process), self._note_fork)
            try:
                await child.start(*run.output.attach())
            except StartFailed as failure:
                self._report_death(run, Death(failure.code, time.monotonic()), start_error=failure.message)
                self._forget(child)
                return
            death = await self._wait_for_death(run, child)
            await run.output.read_rest(_READ_REST)
            last = run.has_served or not process.ports or try_number == process.tries
            if last:
                self._report_death(run, death, out_of_memory=describe_kill())
            ended = await child.end(run.rest_grace)
            if ended:
                self._forget(child)
            await run.output.detach(_DETACH)
            if last or run.is_ending:
                return
            if not ended:  # the remaining processes of its group may still use its ports
                self._report_death(run, death, out_of_memory=describe_kill())
                return
            log.info(
                f"the {process.role} exited with code {death.code} before it listened on its ports (try {try_number} "
                f"of {process.tries}); starting it again; last line: {' / '.join(run.output.tail()[-1:]) or 'none'}"
            )

    def _environment(self, process: Process) -> Mapping[str, str]:
        return stacks.environment(tagged_environment(process.env, self._tag))

    def _note_output(self, run: _Run) -> None:
        """Record that a process has printed something. Called in a thread."""
        run.printed_at = time.monotonic()
        if run.process.role == "trainer":
            self._last_printed = run.output
            self._on_output()

    async def _wait_for_death(self, run: _Run, child: Child) -> Death:
        """Wait for the death of a child. Meanwhile, report when the child listens on all its ports."""
        stop = threading.Event()
        dying = asyncio.ensure_future(child.death())
        try:
            if run.process.ports:
                listening = run_in_own_thread(wait_until_listening, child.pid, run.process.ports, stop)
                either: list[asyncio.Future[Any]] = [dying, listening]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if listening.done() and listening.result() and not run.is_ending:
                    run.has_served = True
                    self._events(Serving(run.process))
            return await dying
        finally:
            stop.set()
            dying.cancel()

    def _report_death(self, run: _Run, death: Death, *, start_error: str = "", out_of_memory: str = "") -> None:
        if not run.is_ending:
            tail, recent = run.output.tail(), run.output.recent_lines()
            self._events(Died(run.process, death.code, death.at, tail, start_error, out_of_memory, recent))

    def _note_fork(self, pid: int) -> None:
        """Tell the guardian about a new child. Called in the thread that starts the child."""
        if self._guardian is not None:
            self._guardian.watch(pid)

    def _forget(self, child: Child) -> None:
        if self._guardian is not None and child.pid is not None:
            self._guardian.forget(child.pid)

    async def _end(self, run: _Run, grace: float) -> bool:
        run.is_ending = True
        run.rest_grace = grace  # a wrapper such as `paddle` dies at once: give its children the whole grace
        return run.child is None or await run.child.end(grace)

    async def _close(self, run: _Run, flush_within: float) -> None:
        if run.task is not None:
            await asyncio.wait([run.task], timeout=KILL_WAIT + _DETACH)
        await run.output.detach(0)
        await run.output.close(flush_within)

    async def _kill_strays(self) -> None:
        """Kill orphans, and all descendants of the children that have left the children's process groups."""
        killed: set[int] = set()
        strays: set[int] = set()

        async def kill_all() -> None:
            nonlocal strays
            while strays := await run_in_thread(_kill_strays, self._tag):
                killed.update(strays)
                reap_orphans()
                await asyncio.sleep(0.01)

        try:
            await wait_within(kill_all(), _SWEEP)
        except (Failure, OSError) as error:
            log.info(f"cannot look for processes that the children left behind: {shortage.explain(error) or error}")
        except asyncio.TimeoutError:
            log.info(
                f"processes {sorted(strays)} did not end after SIGKILL: they are blocked in the kernel; the launcher "
                "continues without them"
            )
        if killed:
            log.info(f"killed {len(killed)} processes that the children had left behind")


def _reason(error: Exception) -> str:
    """Return why the launcher cannot start or watch a process."""
    if isinstance(error, Failure):
        return error.message
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return shortage.explain(error, starting=True) or f"a fault of the launcher itself, please report it:\n{trace}"


def _kill_strays(tag: str) -> set[int]:
    """Send SIGKILL to all live strays. Return their pids."""
    processes = all_processes()
    me = os.getpid()
    orphans = {pid for pid, entry in processes.items() if entry.parent == me and not is_own_child(pid)}
    strays = (descendants(orphans, processes) | set(find_tagged(tag))) - {me}
    return {pid for pid in strays if _kill(pid)}


def _kill(pid: int) -> bool:
    """Kill a process, and return whether it was alive. The caller has just seen it, so the pid is not reused yet."""
    entry = read_entry(pid)
    if entry is None or entry.is_dead:
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True
