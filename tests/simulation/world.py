"""A simulated world for the gang: computers with different clocks, and a network that delays, holds back and cuts.

Everything runs in one thread and in simulated time, which jumps to the next event. The code of the gang is unchanged:
each computer is the event loop of its launcher, and the sockets that the launcher opens are simulated.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import os
import random
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from launcher.run import resume
from tests.support.wire import opened

Address = tuple[str, int]
SOON = -math.inf
_FIN = "the other side sends no more"
_RESET = "the connection is gone"


class World:
    """All events that are due, the computers, and the network.

    `sent` is called with each line that is sent, `tap` with each that arrives, both without its seal.
    """

    def __init__(self, delays: Sequence[float]) -> None:
        self.now = 0.0
        self.random = random.Random(0)
        self.delays = itertools.cycle(delays)  # each direction of each connection takes the next one
        self.computers: dict[str, Computer] = {}
        self.listeners: dict[Address, Socket] = {}
        self.tap: Callable[[Computer, Computer, bytes], None] = lambda sender, receiver, line: None
        self.sent: Callable[[Computer, Computer, bytes], None] = lambda sender, receiver, line: None
        self.over = False
        self._directions: dict[tuple[str, str], Direction] = {}
        self._due: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()

    def computer(self, name: str, clock: float) -> Computer:
        """Add a computer whose clock shows `clock` at the beginning."""
        computer = self.computers[name] = Computer(self, name, clock)
        return computer

    def at(self, when: float, timer: Timer) -> None:
        heapq.heappush(self._due, (when, next(self._count), timer))

    def after(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Schedule a call that runs on no computer."""
        self.at(self.now + seconds, Timer(None, call, args))

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Run until `done`. Return False if the time `until` is reached or no event is left before that."""
        while not done():
            if not self._due or self._due[0][0] > until:
                return False
            when, _, timer = heapq.heappop(self._due)
            self.now = max(self.now, when)
            timer.fire()
        return True

    def close(self) -> None:
        """Cancel all tasks, without events. Raise AssertionError if an exception of a task was never retrieved."""
        self.over = True
        tasks = [task for computer in self.computers.values() for task in computer.tasks]
        unseen = [task.exception() for task in tasks if task.done() and getattr(task, "_log_traceback", False)]
        waiting = [timer for _, _, timer in self._due]
        for computer in self.computers.values():
            computer.dead, computer.frozen_until = False, 0.0
            waiting += computer.waiting
        self._due.clear()
        for timer in waiting:
            if timer.when == SOON:  # it may be the first step of a task
                self.at(self.now, timer)
        for task in tasks:
            task.cancel()
        self.run(lambda: not self._due, self.now)
        if unseen:
            raise AssertionError(f"exceptions of tasks that were never retrieved: {unseen}") from unseen[0]

    # ---- the network -------------------------------------------------------------------------------------------------

    def direction(self, sender: Computer, receiver: Computer) -> Direction:
        return self._directions.setdefault((sender.name, receiver.name), Direction())

    def silence(self, sender: Computer, receiver: Computer, seconds: float) -> None:
        """Let nothing arrive in one direction for a while. TCP repeats the data later, after doubled pauses."""
        direction = self.direction(sender, receiver)
        direction.silent_until = max(direction.silent_until, self.now + seconds)
        for end in sender.ends:
            if end.peer.computer is receiver:
                end.arrives_at = max(end.arrives_at, self.now + 2 * seconds)

    def part(self, one: Computer, other: Computer, seconds: float) -> None:
        """Let nothing arrive in both directions for a while."""
        self.silence(one, other, seconds)
        self.silence(other, one, seconds)

    def cut(self, one: Computer, other: Computer, later: float, away: float) -> None:
        """End the connections of two computers and drop data in transit. `other` notices this `later` seconds after.

        Refuse new connections for `away` seconds.
        """
        for sender, receiver in ((one, other), (other, one)):
            direction = self.direction(sender, receiver)
            direction.away_until = max(direction.away_until, self.now + away)
        for end in one.ends:
            if end.peer.computer is other and not end.cut:
                end.cut = end.peer.cut = True
                end.receive(_RESET)
                self.after(later, end.peer.receive, _RESET)

    def dial(self, dialling: Socket, address: Address, answered: asyncio.Future[None]) -> None:
        """Connect. The kernel of the other computer answers, even if its launcher is frozen."""
        here, there = dialling.computer, self.computers[address[0]]
        to, fro = next(self.delays), next(self.delays)

        def knock() -> None:
            listener = self.listeners.get(address)
            if there.off or here.off:
                return
            refused = listener is None or self.direction(here, there).away_until > self.now
            mine, theirs = End(here, to), End(there, fro)
            mine.peer, theirs.peer = theirs, mine
            theirs.arrives_at = max(self.now, self.direction(there, here).silent_until) + fro
            self.after(theirs.arrives_at - self.now, answer, mine, refused)
            if listener is not None and not refused:
                listener.arrived(theirs)

        def answer(mine: End, refused: bool) -> None:
            if here.dead or dialling.closed:
                mine.close()
            elif refused:
                here.call_soon(_settle, answered, ConnectionRefusedError(111, "refused"))
            else:
                dialling.end = mine
                here.call_soon(_settle, answered, None)

        self.after(max(0.0, self.direction(here, there).silent_until - self.now) + to, knock)


class Direction:
    """The state of the network from one computer to another."""

    silent_until = 0.0
    away_until = 0.0


class Timer:
    """A call that is due on a computer, or on none. It can be cancelled."""

    __slots__ = ("args", "call", "computer", "off", "when")

    def __init__(
        self, computer: Computer | None, call: Callable[..., object], args: tuple[object, ...], when: float = 0.0
    ) -> None:
        self.computer = computer
        self.call = call
        self.args = args
        self.when = when  # by the clock of the computer
        self.off = False

    def cancel(self) -> None:
        self.off = True

    def fire(self) -> None:
        if self.off:
            return
        if self.computer is None:
            self.call(*self.args)
        elif not self.computer.runs:
            self.computer.waiting.append(self)
        else:
            self.computer.reached = max(self.computer.reached, self.when)
            self.computer.run(self.call, *self.args)


class Computer:
    """The computer of one launcher: the part of an event loop that the gang needs, and its own clock."""

    def __init__(self, world: World, name: str, clock: float) -> None:
        self.world = world
        self.name = name
        self.ends: list[End] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.waiting: list[Timer] = []  # timers that wait until the launcher is no longer frozen
        self.reached = SOON  # the latest timer, so that no timer is early because of rounding
        self.frozen_until = 0.0
        self.dead = False  # whether its launcher is dead
        self.off = False
        self._clock = clock
        self._loop = cast(asyncio.AbstractEventLoop, self)

    def run(self, call: Callable[..., object], *args: object) -> None:
        asyncio._set_running_loop(self._loop)
        try:
            call(*args)
        finally:
            asyncio._set_running_loop(None)

    # ---- faults ------------------------------------------------------------------------------------------------------

    @property
    def frozen(self) -> bool:
        return self.world.now < self.frozen_until

    @property
    def runs(self) -> bool:
        return not self.frozen and not self.dead

    def freeze(self, seconds: float) -> None:
        """Stop the launcher for a while. The kernel still works."""
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.world.after(self.frozen_until - self.world.now, self._wake)

    def _wake(self) -> None:
        """Handle first what has arrived, then the timers that are due, as an event loop does."""
        if not self.runs:
            return
        for end in self.ends:
            end.read()
        for listener in list(self.world.listeners.values()):
            if listener.computer is self:
                self.run(listener.accept_all)
        waiting, self.waiting = self.waiting, []
        for timer in waiting:
            self.world.at(self.world.now, timer)

    def kill(self) -> None:
        """Kill the launcher. The kernel ends its connections."""
        self.dead = True
        for address in [address for address, listener in self.world.listeners.items() if listener.computer is self]:
            self.world.listeners[address].close()
        for end in self.ends:
            end.close()

    def switch_off(self) -> None:
        """Switch the computer off. No other computer notices."""
        self.dead = self.off = True

    # ---- the event loop ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        return max(self.world.now + self._clock, self.reached)

    def call_soon(self, call: Callable[..., object], *args: object, context: object = None) -> Timer:
        timer = Timer(self, call, args, SOON)
        self.world.at(self.world.now, timer)
        return timer

    def call_at(self, when: float, call: Callable[..., object], *args: object, context: object = None) -> Timer:
        timer = Timer(self, call, args, when)
        self.world.at(max(when - self._clock, self.world.now), timer)
        return timer

    def call_later(self, delay: float, call: Callable[..., object], *args: object, context: object = None) -> Timer:
        return self.call_at(self.time() + delay, call, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._loop)

    def create_task(self, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self._loop, **options)
        self.tasks.append(task)
        return task

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Do nothing. `World.close` looks for what would be logged here."""

    def add_reader(self, listener: Socket, call: Callable[..., object], *args: object) -> None:
        listener.reader = lambda: call(*args)
        self.call_soon(listener.accept_all)

    def remove_reader(self, listener: Socket) -> None:
        listener.reader = None

    async def sock_connect(self, dialling: Socket, address: Address) -> None:
        answered = self.create_future()
        self.world.dial(dialling, address, answered)
        await answered

    async def create_connection(
        self, factory: Callable[[], asyncio.Protocol], *, sock: Socket
    ) -> tuple[Transport, asyncio.Protocol]:
        return await self.connect_accepted_socket(factory, sock)

    async def connect_accepted_socket(
        self, factory: Callable[[], asyncio.Protocol], sock: Socket
    ) -> tuple[Transport, asyncio.Protocol]:
        assert sock.end is not None
        protocol = factory()
        transport = Transport(sock.end, protocol)
        self.call_soon(protocol.connection_made, transport)
        self.call_soon(transport.begin)
        ready = self.create_future()
        self.call_soon(_settle, ready, None)
        await ready
        return transport, protocol


class End:
    """One side of a connection, in the kernel of its computer."""

    peer: End

    def __init__(self, computer: Computer, delay: float) -> None:
        self.computer = computer
        self.arrived: deque[bytes | str] = deque()
        self.arrives_at = 0.0  # when the last data sent arrives; later data must not be earlier
        self.closed = False
        self.cut = False
        self.transport: Transport | None = None
        self._delay = delay
        self._world = computer.world
        computer.ends.append(self)

    def send(self, what: bytes | str) -> None:
        there, world = self.peer.computer, self._world
        silent_until = world.direction(self.computer, there).silent_until
        lost = self.cut or self.computer.off or there.off or world.over
        if lost or (what is _RESET and silent_until > world.now):  # a reset is not repeated
            return
        self.arrives_at = max(self.arrives_at, max(world.now, silent_until) + self._delay)
        # Not `after`: rounded times would change the order of what is sent.
        world.at(self.arrives_at, Timer(None, self._arrives, (what,)))

    def _arrives(self, what: bytes | str) -> None:
        if not self.cut:
            self.peer.receive(what)

    def receive(self, what: bytes | str) -> None:
        if not self.closed:
            self.arrived.append(what)
            self.read()
        elif isinstance(what, bytes):
            self.send(_RESET)

    def read(self) -> None:
        if self.transport is not None and self.computer.runs:
            self.computer.run(self.transport.read)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.send(_RESET if self.arrived else _FIN)


class Transport(asyncio.Transport):
    """The transport of a connection, for its protocol."""

    def __init__(self, end: End, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._closing = False
        self._said_all = False

    def begin(self) -> None:
        self._end.transport = self
        self.read()

    def read(self) -> None:
        end = self._end
        while end.arrived and not self._closing and end.computer.runs:
            what = end.arrived.popleft()
            if isinstance(what, bytes):
                end.computer.world.tap(end.peer.computer, end.computer, opened(what))
                self._protocol.data_received(what)
            elif what is _FIN:
                if not self._protocol.eof_received():
                    self.close()
            else:
                self._lose(ConnectionResetError())

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._end.peer.computer.name, 0) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        if not self._closing and not self._said_all:
            here = self._end.computer
            here.world.sent(here, self._end.peer.computer, opened(bytes(data)))
            self._end.send(bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._said_all:
            self._said_all = True
            self._end.send(_FIN)

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._end.close()
            self._end.computer.call_soon(self._protocol.connection_lost, error)


class Socket:
    """The part of a socket that the gang needs."""

    def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> None:
        self.computer = cast(Computer, asyncio.get_running_loop())
        self.end: End | None = None
        self.reader: Callable[[], object] | None = None
        self.closed = False
        self._address: Address = ("", 0)
        self._arrived: deque[End] = deque()

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *option: int) -> None:
        pass

    def bind(self, address: Address) -> None:
        self._address = address

    def listen(self, backlog: int) -> None:
        self.computer.world.listeners[self._address] = self

    def getsockname(self) -> Address:
        return self._address

    def arrived(self, end: End) -> None:
        self._arrived.append(end)
        if self.computer.runs:
            self.computer.run(self.accept_all)

    def accept_all(self) -> None:
        if self.reader is not None and self._arrived:
            self.reader()

    def accept(self) -> tuple[Socket, Address]:
        if not self._arrived:
            raise BlockingIOError
        accepted = Socket()
        accepted.end = self._arrived.popleft()
        return accepted, (accepted.end.peer.computer.name, 0)

    def close(self) -> None:
        self.closed = True
        self.computer.world.listeners.pop(self._address, None)
        for end in (self.end, *self._arrived):
            if end is not None and end.transport is None:
                end.close()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


# ---- modules that replace Python's in the code of the gang -----------------------------------------------------------


class _Time:
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class _Os:
    strerror = staticmethod(os.strerror)

    def urandom(self, size: int) -> bytes:
        return cast(Computer, asyncio.get_running_loop()).world.random.randbytes(size)


class _Sockets:
    socket = Socket

    def getaddrinfo(self, host: str, port: int, **options: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


def move_in(patch: pytest.MonkeyPatch) -> None:
    """Replace time, random numbers and sockets in the code of the gang by those of the simulated world.

    The hub's decisions about generations get the simulated time only, since they write to a real folder.
    """
    patch.setattr(resume, "time", _Time())
    for name, module in list(sys.modules.items()):
        if name.startswith("launcher.gang"):
            for known, simulated in {"time": _Time(), "os": _Os(), "socket": _Sockets()}.items():
                if hasattr(module, known):
                    patch.setattr(module, known, simulated)
