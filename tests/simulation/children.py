"""The processes of a member in simulated time, and a supervisor that replaces the launcher's own."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from launcher.model import Process
from launcher.processes.supervisor import Died, PassDone, Serving

if TYPE_CHECKING:
    from tests.simulation.pods import Pod

KILL_WAIT = 1.0  # seconds to wait after SIGKILL; a process that is blocked in the kernel does not end
_KILLED_WITHIN = 0.01
_HELD = 0.005  # seconds between two looks of a trainer that is held
_TOLD = ("trainer_id", "pservers", "init_model_path", "start_pass", "num_passes")  # flags that recordings show
_ENV = ("PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS", "LAUNCHER_GENERATION", "LAUNCHER_RESUME_DIR")


@dataclass(frozen=True)
class Program:
    """What the processes of a member do, and how many seconds they take."""

    serves: float = 0.3  # seconds until a process listens
    passes: int = 3  # if no flag sets the number of passes
    each: float = 10.0  # seconds per pass
    ends: float = 0.3  # seconds from SIGTERM to the end
    held: bool = False  # whether the processes are blocked in the kernel, so that even SIGKILL does not end them
    silent: bool = False  # whether trainers print nothing
    saves: bool = True
    step: float = 0.0  # seconds of a step, after which it calls `launcher.train.should_stop`; 0: it does not


@dataclass(eq=False)
class Child:
    """One process."""

    process: Process
    generation: int | None
    alive: bool = True
    ending: bool = False  # the launcher ends it: its death is no event
    told: bool = False
    number: int = 0  # the number of the next pass
    left: int = 0  # how many passes are left
    steps: int = 0  # how often it has called `launcher.train.should_stop`
    gone: asyncio.Event = field(default_factory=asyncio.Event)


class FakeSupervisor:
    """The children of one attempt. They continue while their launcher is frozen, which gets their events later."""

    def __init__(
        self,
        pod: Pod,
        events: Callable[[object], None],
        tag: str,
        guardian: object,
        *,
        on_output: Callable[[], None],
        find_numbers: object,
        format_line: object,
    ) -> None:
        self._pod = pod
        self._events = events
        self._on_output = on_output
        self._children: list[Child] = []
        self._last_line = ""
        self._generation: int | None = None

    # ---- what the launcher asks for ------------------------------------------------------------------------------

    def start(self, process: Process) -> None:
        pod = self._pod
        child = Child(process, self._generation)
        self._children.append(child)
        pod.started(child, self)
        told = " ".join(_told(process))
        pod.note("runs", f"start {process.role} {told}".rstrip(), started=child)
        if process.ports:
            pod.after(pod.program.serves, self._serves, child)
        if process.role == "trainer":
            child.number, child.left = _passes(process, pod.program.passes)
            pod.after(pod.program.each, self._pass, child)
            if pod.program.step and (path := process.env.get("LAUNCHER_STEP_FILE")):
                pod.after(pod.program.step, self._step, child, _numbers(path))

    def subjects(self) -> list[Any]:
        return []

    def last_line(self) -> str:
        return self._last_line

    def set_log_folder(self, folder: str | None, mark: str) -> None:
        head, _, rest = mark.partition(" ")
        self._generation = int(rest.split(",")[0]) if head == "generation" else None
        self._pod.note("runs", f"logs {folder or 'nowhere'}: {mark}", generation=self._generation)
        for child in self._children:
            child.generation = self._generation

    async def end(self, grace: float) -> list[Process]:
        if any(child.alive for child in self._children):  # without live children, nothing is seen from outside
            self._pod.note("runs", f"end within {grace:g} s")
        await asyncio.gather(*(self._end(child, grace) for child in self._children))
        return [child.process for child in self._children if child.alive]

    def kill(self) -> None:
        if any(child.alive for child in self._children):
            self._pod.note("runs", "kill")
        self._kill_all()

    async def close(self, flush_within: float) -> None:
        if self._children:
            self._pod.note("runs", "close")
        self._kill_all()
        if alive := [child.gone.wait() for child in self._children if child.alive]:
            await asyncio.wait([asyncio.ensure_future(each) for each in alive], timeout=KILL_WAIT)
        self._children.clear()

    # ---- what happens to a child ---------------------------------------------------------------------------------

    def die(self, child: Child, code: int, later: float = 0.0) -> None:
        """Let a child end by itself. Its launcher notices this `later` seconds after the death."""
        if child.alive:
            words = (f"{child.process.role}: these are my last words",)
            death = Died(child.process, code, self._pod.machine.monotonic(), words, "", "", words)
            self.lose(child, f"{child.process.role} ends with {code}")
            self._pod.after(later, self._tell, child, death)

    def lose(self, child: Child, how: str) -> None:
        """Remove a child without an event for its launcher."""
        if child.alive:
            child.alive = False
            self._pod.note("child", how, ended=child)
            self._pod.machine.call_soon(child.gone.set)

    def _serves(self, child: Child) -> None:
        if child.alive:
            self._pod.note("child", f"{child.process.role} serves", serves=child)
            self._tell(child, Serving(child.process))

    def _pass(self, child: Child) -> None:
        if not child.alive or self._pod.hangs:
            return
        if child.left > 0:
            program = self._pod.program
            self._last_line = f"Pass={child.number}"
            if program.saves and trainer_id(child.process) == 0:
                self._pod.job.save_pass(child.number)
                self._pod.note("child", f"pass {child.number} is saved", saved=child.number)
            if not program.silent:
                self._pod.machine.call_soon(self._on_output)
            if child.process.pass_mark:
                self._tell(child, PassDone(child.number))
            child.number += 1
            child.left -= 1
        if child.left > 0:
            self._pod.after(self._pod.program.each, self._pass, child)
        else:
            self.die(child, 0)

    def _step(self, child: Child, numbers: memoryview, *, is_held: bool = False) -> None:
        """Do what `launcher.train.should_stop` does."""
        if not child.alive:
            return
        if not is_held:
            child.steps += 1
            numbers[2] = child.steps
        if numbers[0] and not numbers[1]:
            self._pod.after(_HELD, partial(self._step, child, numbers, is_held=True))
        elif 0 < numbers[1] <= child.steps:
            self._pod.note("child", f"trainer saves after step {child.steps}", agreed=(child.generation, child.steps))
            self.die(child, 0)
        else:
            self._pod.after(self._pod.program.step, self._step, child, numbers)

    def _tell(self, child: Child, event: object) -> None:
        def tell() -> None:
            if not child.ending:
                self._events(event)

        self._pod.machine.call_soon(tell)

    async def _end(self, child: Child, grace: float) -> None:
        child.ending = True
        if not child.alive:
            return
        if not child.told:
            child.told = True
            self._pod.after(self._pod.program.ends, self._ends, child)
        if not await _comes(child.gone, grace):
            self._kill(child)
            await _comes(child.gone, KILL_WAIT)

    def _ends(self, child: Child) -> None:
        if not self._pod.program.held:
            self.lose(child, f"{child.process.role} has ended")

    def _kill_all(self) -> None:
        for child in self._children:
            child.ending = True
            self._kill(child)

    def _kill(self, child: Child) -> None:
        if child.alive and not self._pod.program.held:
            self._pod.after(_KILLED_WITHIN, self.lose, child, f"{child.process.role} is killed")


def trainer_id(process: Process) -> int:
    """Return the number of a trainer in its generation, from its flags or its variables. 0 if it trains alone."""
    flags = [word.partition("=")[2] for word in process.argv if word.startswith("--trainer_id=")]
    return int(flags[-1] if flags else process.env.get("PADDLE_TRAINER_ID", 0))


def _numbers(path: str) -> memoryview:
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 24)).cast("q")


async def _comes(event: asyncio.Event, within: float) -> bool:
    waiting = asyncio.ensure_future(event.wait())
    await asyncio.wait([waiting], timeout=within)
    waiting.cancel()
    return event.is_set()


def _told(process: Process) -> list[str]:
    """Return the flags and variables that differ between members, attempts and generations."""
    pairs = [word.lstrip("-").partition("=") for word in process.argv if word.startswith("--")]
    flags = [f"--{name}={value}" for name, _, value in pairs if name in _TOLD]
    return flags + [f"{name}={process.env[name]}" for name in _ENV if name in process.env]


def _passes(process: Process, otherwise: int) -> tuple[int, int]:
    """Return the number of the first pass, and how many passes to train."""

    def last(name: str, default: int) -> int:
        found: Sequence[str] = [word for word in process.argv if word.startswith(f"--{name}=")]
        return int(found[-1].partition("=")[2]) if found else default

    return last("start_pass", 0), last("num_passes", otherwise)
