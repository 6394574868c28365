"""One TCP connection of the gang: lines in, lines out, and the one timer that keeps connections alive."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable

from launcher.gang.protocol import ALIVE, UNKNOWN_LIMIT, Malformed, Message, decode

MISSED = 2  # beats, after which somebody counts as cut off
MALFORMED = "malformed"
TOO_LONG = "a line too long"
# When a connection is over is the pulse's affair. From Linux 6.15 on the kernel tries again every 2 s; by itself it
# doubles its pauses, and a cut of the network lasts up to twice as long for a connection: a member makes a second one.
TCP_RTO_MAX_MS = 44
_PATIENT = ((socket.TCP_USER_TIMEOUT, 24 * 3600 * 1000), (TCP_RTO_MAX_MS, 2000))
_WAKING = 2  # beats for what was said meanwhile to be read, no more: the others may have given this side up
_ALIVE = ALIVE.rstrip(b"\n")


class Connection(asyncio.Protocol):
    """Calls `heard` with each message and `ended` once. Both may be exchanged when the connection changes its owner."""

    def __init__(
        self,
        heard: Callable[[Connection, Message], None],
        ended: Callable[[Connection], None],
        opened: Callable[[Connection], None] | None = None,
    ) -> None:
        self.heard = heard
        self.ended = ended
        self.limit = UNKNOWN_LIMIT
        self.peer = "somebody"  # the other side's address
        self.heard_at = time.monotonic()
        self.why = ""  # it was ended on this side; otherwise the other side or the network did it
        self.silent = False  # it was ended because nothing was heard
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        if name:
            self.peer = name[0]
        _be_patient(transport.get_extra_info("socket"))
        if self._opened:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        searched = len(self._buffer)
        self._buffer += data
        start = 0
        while not self.closing and (end := self._buffer.find(b"\n", max(start, searched))) >= 0:
            self._line(bytes(self._buffer[start:end]))
            start = end + 1
        del self._buffer[:start]
        if len(self._buffer) > self.limit:
            self.fail(TOO_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._buffer.clear()
        if not self.gone.done():
            self.gone.set_result(None)
        self.ended(self)

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def send(self, line: bytes) -> None:
        """Written at once or when the other side reads; lost when the connection has ended."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(line)

    def close(self) -> None:
        """End it once everything is written."""
        if self._transport is not None:
            self._transport.close()

    def fail(self, why: str) -> None:
        """End it at once, whatever is still unwritten."""
        if self._transport is not None:
            self.why = self.why or why
            self._transport.abort()

    def unheard(self) -> float:
        """For how many seconds the other side has said nothing."""
        return time.monotonic() - self.heard_at

    def is_cut_off(self, every: float) -> bool:
        """Whether so many beats were missed that the other side may be gone, though nothing has ended."""
        return self.unheard() > MISSED * every

    def give_up_if_cut_off(self, every: float) -> bool:
        """Whether it counts as ended from now on."""
        if cut_off := self.is_cut_off(every):
            self.give_up(round(self.unheard()))
        return cut_off

    def give_up(self, seconds: float) -> None:
        """The other side has said nothing for so long, which is as good as an end."""
        self.silent = True
        self.fail(f"nothing was heard for {seconds:g} s")

    def say_goodbye(self) -> None:
        """Write everything, then read on until the other side ends too: closing with unread data would reset it."""
        if self._transport is not None and not self._transport.is_closing():
            try:
                self._transport.write_eof()
            except OSError:  # reset meanwhile, and the loop does not know it yet
                self.fail("reset")

    def _line(self, line: bytes) -> None:
        if len(line) > self.limit:
            self.fail(TOO_LONG)
            return
        if line == _ALIVE:
            return
        try:
            self.heard(self, decode(line))
        except Malformed:
            self.fail(MALFORMED)


def _be_patient(own: socket.socket | None) -> None:
    if own is None:
        return
    for option, value in _PATIENT:
        try:
            own.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:
            return  # an older kernel


async def settle(connections: Iterable[Connection], within: float) -> None:
    """End connections so that all that was said arrives, as far as the others read it in time."""
    open_ones = [connection for connection in connections if not connection.gone.done()]
    for connection in open_ones:
        connection.say_goodbye()
    if open_ones:
        await asyncio.wait([connection.gone for connection in open_ones], timeout=within)
    for connection in open_ones:
        connection.fail("not ended in time")


class Heartbeat:
    """One timer for any number of connections: says that this side lives, and ends those that are silent.

    `cut_off` is told at each beat of those on which so many beats were missed that they may soon be ended.
    """

    def __init__(
        self,
        every: float,
        silence: float,
        connections: Callable[[], Iterable[Connection]],
        line: Callable[[], bytes] = lambda: ALIVE,
        cut_off: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._every = every
        self._silence = silence
        self._connections = connections
        self._line = line
        self._cut_off = cut_off
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        self._due = time.monotonic() + self._every
        self._timer = asyncio.get_running_loop().call_at(self._due, self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        # Somebody who was stopped himself (SIGSTOP, a frozen node) may not have read yet what the others have said.
        stopped_myself = now - self._due > self._every
        line = self._line()
        for connection in list(self._connections()):
            if stopped_myself:
                connection.heard_at = max(connection.heard_at, now - self._silence + _WAKING * self._every)
            if now - connection.heard_at > self._silence:
                connection.give_up(self._silence)
                continue
            connection.send(line)
            if connection.is_cut_off(self._every):
                self._cut_off(connection)
        self._schedule()
