"""One TCP connection of the gang, which sends and receives lines, and the heartbeat of all connections."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable, Iterable

from launcher.gang.protocol import ALIVE, JOIN_LIMIT, KNOWN_PEER_LIMIT, UNKNOWN_PEER_LIMIT, Malformed, Message, decode
from launcher.gang.seal import Seal, digest

MISSED_BEATS = 2  # a peer counts as cut off if nothing arrives for so many heartbeat intervals
MALFORMED = "malformed"
TOO_LONG = "a line too long"
# The heartbeat alone decides when a connection is dead, so the kernel must not end the connection earlier.
# From Linux 6.15 on, the kernel can be set to retransmit every 2 s. An older kernel doubles the pause after each
# retransmission, so a connection may recover only after twice the length of a network cut. This is why a member opens
# a second connection.
TCP_RTO_MAX_MS = 44
_TCP_OPTIONS = ((socket.TCP_USER_TIMEOUT, 24 * 3600 * 1000), (TCP_RTO_MAX_MS, 2000))
_GRACE_BEATS = 2  # after a stop of this process: heartbeat intervals to read what arrived, before a peer is silent
_ALIVE = ALIVE.rstrip(b"\n")


class Connection(asyncio.Protocol):
    """One connection. A new owner of the connection replaces both callbacks.

    Each direction is sealed as soon as its key is known.

    on_message: called with each received message
    on_ended: called once, at the end
    """

    def __init__(
        self,
        on_message: Callable[[Connection, Message], None],
        on_ended: Callable[[Connection], None],
        on_opened: Callable[[Connection], None] | None = None,
    ) -> None:
        self.on_message = on_message
        self.on_ended = on_ended
        self.peer = "an unknown address"
        self.heard_at = time.monotonic()
        self.reason = ""  # why this side has ended the connection; empty if the peer or the network did
        self.timed_out = False  # this side has ended the connection because nothing arrived
        self.error: Exception | None = None  # why the transport has ended the connection, if it was an error
        self.forged = False  # this side has ended the connection because of a line that the peer did not send
        self.unsure_at = -math.inf  # the last time that the peer was cut off, or that this process had been stopped
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_opened = on_opened
        self._transport: asyncio.Transport | None = None
        self._closed = False  # with TLS, the transport may read on until the peer agrees to the end
        self._half_closed = False
        self._buffer = bytearray()
        self._line_limit = UNKNOWN_PEER_LIMIT
        self._incoming: Seal | None = None
        self._outgoing: Seal | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        name = transport.get_extra_info("peername")
        if name:
            self.peer = name[0]
        _set_tcp_options(transport.get_extra_info("socket"))
        if self._on_opened:
            self._on_opened(self)

    def data_received(self, data: bytes) -> None:
        if self._closed:
            return
        if not self.is_sealed:  # else only a line with its seal shows that the peer is there
            self.heard_at = time.monotonic()
        searched = len(self._buffer)
        self._buffer += data
        start = 0
        while not self.closing and (end := self._buffer.find(b"\n", max(start, searched))) >= 0:
            self._line(bytes(self._buffer[start:end]))
            start = end + 1
        del self._buffer[:start]
        if len(self._buffer) > self._line_limit:
            self.abort(TOO_LONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._buffer.clear()
        self.error = exc
        if not self.ended.done():
            self.ended.set_result(None)
        self.on_ended(self)

    @property
    def closing(self) -> bool:
        return self._closed or self._transport is None or self._transport.is_closing()

    @property
    def is_sealed(self) -> bool:
        """Whether all further lines of the peer must have their seals. A line with its seal proves the secret."""
        return self._incoming is not None

    def seal_outgoing(self, key: bytes) -> None:
        """Send all further lines with seals."""
        self._outgoing = Seal(key)

    def seal_incoming(self, key: bytes, *, proven: bool = False) -> None:
        """Accept no further line without its seal.

        proven: the peer has proved that it has the secret. Else its first line with a seal does: the join.
        """
        self._incoming = Seal(key)
        self._line_limit = KNOWN_PEER_LIMIT if proven else JOIN_LIMIT

    def send(self, *line: bytes, hashed: bytes | None = None) -> None:
        """Queue a line, in one part or several. If the connection has ended or is half-closed, drop the line.

        hashed: the digest of the line, if known. Then a long line is copied only once, together with its seal.
        """
        if self._transport is None or self._half_closed or self.closing:
            return
        if self._outgoing is not None:
            line = (self._outgoing.next(hashed or digest(b"".join(line))), *line)
        self._transport.write(b"".join(line))

    def close(self) -> None:
        """Write all queued lines, then end the connection. Read no further line."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End the connection at once, and drop the lines that are not written yet."""
        if self._transport is not None:
            self.reason = self.reason or reason
            self._transport.abort()

    def unheard_for(self) -> float:
        """Return how many seconds ago the peer was heard."""
        return time.monotonic() - self.heard_at

    def is_cut_off(self, every: float) -> bool:
        """Return whether nothing has arrived for MISSED_BEATS heartbeat intervals of `every` seconds."""
        return self.unheard_for() > MISSED_BEATS * every

    def time_out_if_cut_off(self, every: float) -> bool:
        """End the connection if the peer is cut off. Return whether the peer was cut off."""
        if cut_off := self.is_cut_off(every):
            self.time_out(round(self.unheard_for()))
        return cut_off

    def time_out(self, seconds: float) -> None:
        """End the connection because nothing has arrived for `seconds`."""
        self.timed_out = True
        self.abort(f"nothing was heard for {seconds:g} s")

    def half_close(self) -> None:
        """Write all queued lines, close the sending side, and continue to read until the peer ends the connection.

        A full close with unread data would send a reset, and the peer could lose the last lines. Lines that are sent
        afterwards, such as a heartbeat, are dropped.
        """
        if self._transport is None or self._transport.is_closing():
            return
        self._half_closed = True
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:  # TLS has no half-closed connections, but TCP has them, and seals show that no line is missing
                self._transport.get_extra_info("socket").shutdown(socket.SHUT_WR)
        except OSError:  # the peer has reset the connection, and the event loop does not know yet
            self.abort("reset")

    def _line(self, received: bytes) -> None:
        if len(received) > self._line_limit:
            self.abort(TOO_LONG)
            return
        line = self._incoming.open(received) if self._incoming is not None else received
        if line is None:
            self._end_forged()
            return
        if self.is_sealed:
            self.heard_at = time.monotonic()
            self._line_limit = KNOWN_PEER_LIMIT
        if line != _ALIVE:
            try:
                self.on_message(self, decode(line))
            except Malformed as error:
                self.abort(f"{MALFORMED}: {error}" if self.is_sealed else MALFORMED)

    def _end_forged(self) -> None:
        """End the connection because the peer did not send this line. The peer reconnects, as after a network fault."""
        self.forged = True
        if self._transport is not None:
            self._transport.abort()


def _set_tcp_options(connected: socket.socket | None) -> None:
    if connected is None:
        return
    for option, value in _TCP_OPTIONS:
        try:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:
            return  # an older kernel


async def close_gracefully(connections: Iterable[Connection], within: float) -> None:
    """Half-close all connections, so that every sent line arrives. Abort those that are still open after `within` s."""
    open_ones = [connection for connection in connections if not connection.ended.done()]
    for connection in open_ones:
        connection.half_close()
    if open_ones:
        await asyncio.wait([connection.ended for connection in open_ones], timeout=within)
    for connection in open_ones:
        connection.abort("not ended in time")


class Heartbeat:
    """Send a heartbeat on each connection. End a connection on which nothing has arrived for `silence` seconds.

    every: seconds between two heartbeats
    line: returns the line to send as the heartbeat
    on_cut_off: called at each heartbeat with each connection whose peer is cut off
    """

    def __init__(
        self,
        every: float,
        silence: float,
        connections: Callable[[], Iterable[Connection]],
        line: Callable[[], bytes] = lambda: ALIVE,
        on_cut_off: Callable[[Connection], None] = lambda connection: None,
    ) -> None:
        self._every = every
        self._silence = silence
        self._connections = connections
        self._line = line
        self._on_cut_off = on_cut_off
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
        # After a stop of this process (SIGSTOP, a frozen node), messages may have arrived that are not read yet.
        was_stopped = now - self._due > self._every
        line = self._line()
        hashed = digest(line)
        for connection in list(self._connections()):
            if was_stopped:
                connection.unsure_at = now
                connection.heard_at = max(connection.heard_at, now - self._silence + _GRACE_BEATS * self._every)
            if now - connection.heard_at > self._silence:
                connection.time_out(self._silence)
                continue
            connection.send(line, hashed=hashed)
            if connection.is_cut_off(self._every):
                connection.unsure_at = now
                self._on_cut_off(connection)
        self._schedule()
