"""Accept connections on the gang port, refuse connections without a valid hello, and log the refusals."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable

from launcher.base import shortage
from launcher.errors import Exit, Failure
from launcher.gang.connection import Connection
from launcher.gang.events import GangSettings
from launcher.gang.handshake import challenge, new_nonce, refusal
from launcher.gang.protocol import Message, encode

log = logging.getLogger(__name__)

NO_HELLO = "no hello in time"
TOO_MANY = "too many connections without a hello"
NO_DESCRIPTORS = "this process has no file descriptors left"
_SPARE_PENDING = 64  # connections without a hello, in addition to one per member
_BURST = 100  # connections accepted in one iteration of the event loop
_ACCEPT_PAUSE = 0.05  # after a failed accept, so that the event loop can close dropped connections
_BACKLOG = 4096
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
_LOG_EVERY = 30.0

OnHello = Callable[[Connection, str, Message], None]


class Refusal(Exception):
    """A hello is refused.

    reason: the name under which refusals are counted; if empty, the refusal is not counted
    text: the reason that is sent to the other side
    retry: the other side asks this launcher again
    """

    def __init__(self, reason: str, text: str, *, retry: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry = retry


class RefusalLog:
    """Count refusals by reason. Log the first refusal of each reason at once, and every 30 s how many more came."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reason: str, peer: str, text: str = "") -> None:
        self.counts[reason] += 1
        if reason not in self._logged:
            self._logged[reason] = 1
            log.info(f"gang port: refused {peer}: {reason}" + (f" ({text})" if text else ""))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOG_EVERY, self._log)

    def close(self) -> None:
        """Log the refusals that are not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._log()

    def _log(self) -> None:
        self._timer = None
        for reason, count in self.counts.items():
            if more := count - self._logged[reason]:
                self._logged[reason] = count
                log.info(f"gang port: refused {more} more connections: {reason} ({count} in all)")


class Listener:
    """Sends a challenge on each new connection, then calls `on_hello` with connection, nonce and first message.

    `on_hello` takes the connection over, or raises Refusal. The number of connections without a hello is limited. Above
    the limit, each new connection replaces the oldest of these. So idle connections cannot keep members out.
    """

    def __init__(self, settings: GangSettings, on_hello: OnHello, refusals: RefusalLog) -> None:
        self.port = settings.port
        self._settings = settings
        self._on_hello = on_hello
        self._refusals = refusals
        self._max_pending = _SPARE_PENDING + settings.size
        self._sockets: list[socket.socket] = []
        self._pending: dict[Connection, tuple[str, float]] = {}  # nonce and deadline, the oldest first
        self._accepting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Listen. Raise Failure (CONFIG) if a port is taken."""
        addresses = self._settings.listen or ("0.0.0.0", "::")
        for address in addresses:
            try:
                self._sockets.append(self._bind(address))
            except OSError as error:
                if self._settings.listen is None and ":" in address and error.errno in _NO_IPV6:
                    continue
                self.close()
                if why := shortage.explain(error):
                    raise Failure(Exit.IO_FAILED, f"cannot listen on port {self.port} of {address}: {why}") from None
                raise Failure(
                    Exit.CONFIG,
                    f"LAUNCHER_GANG_PORT: cannot listen on port {self.port} of {address}: {error.strerror}: "
                    "end the program that uses this port, or set another port, the same on all members",
                ) from None
        for listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._accepting:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = list(self._pending)
        self._pending.clear()
        for connection in pending:
            connection.abort("closed")

    def _bind(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address, self.port))
            listening.listen(_BACKLOG)
        except BaseException:
            listening.close()
            raise
        self.port = listening.getsockname()[1]
        return listening

    def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BURST):
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._free_descriptor(listening)
                return  # after any other error: the other side has ended the connection already
            accepted.setblocking(False)
            task = loop.create_task(self._connect(accepted))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _connect(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: Connection(self._on_message, self._on_ended, self._on_opened), accepted
            )
        except OSError:
            accepted.close()  # the other side has ended the connection already

    def _free_descriptor(self, listening: socket.socket) -> None:
        """Drop the oldest connection without a hello, and accept again once the event loop has closed it."""
        self._refusals.add(NO_DESCRIPTORS, "a connection")
        if self._pending:
            self._drop(next(iter(self._pending)), TOO_MANY)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(_ACCEPT_PAUSE, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _on_opened(self, connection: Connection) -> None:
        if not self._sockets:
            connection.abort("closed")
            return
        if len(self._pending) >= self._max_pending:
            self._drop(next(iter(self._pending)), TOO_MANY)
        nonce = new_nonce()
        self._pending[connection] = nonce, time.monotonic() + self._settings.hello_within
        connection.send(encode(challenge(nonce)))
        self._schedule_timeout()

    def _on_message(self, connection: Connection, message: Message) -> None:
        nonce, _ = self._pending[connection]
        try:
            self._on_hello(connection, nonce, message)
        except Refusal as refused:
            del self._pending[connection]
            if refused.reason:
                self._refusals.add(refused.reason, connection.peer, refused.text)
            connection.send(encode(refusal(refused.text, refused.retry)))
            connection.close()
        else:
            del self._pending[connection]

    def _on_ended(self, connection: Connection) -> None:
        if self._pending.pop(connection, None) and connection.reason:
            self._refusals.add(connection.reason, connection.peer)

    def _drop(self, connection: Connection, reason: str) -> None:
        del self._pending[connection]
        self._refusals.add(reason, connection.peer)
        connection.abort(reason)

    def _schedule_timeout(self) -> None:
        """Run one timer, for the oldest connection without a hello."""
        if self._timer is None and self._pending:
            _, deadline = next(iter(self._pending.values()))
            self._timer = asyncio.get_running_loop().call_at(deadline, self._drop_overdue)

    def _drop_overdue(self) -> None:
        self._timer = None
        now = time.monotonic()
        for connection, (_, deadline) in list(self._pending.items()):
            if deadline > now:
                break
            self._drop(connection, NO_HELLO)
        self._schedule_timeout()
