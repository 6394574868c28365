"""Where a launcher listens: lets in who says hello in time, and keeps strangers from taking the room of members."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections.abc import Callable

from launcher.errors import Exit, Failure
from launcher.gang.connection import Connection
from launcher.gang.events import GangSettings
from launcher.gang.protocol import Message, again, challenge, encode, new_nonce
from launcher.gang.refusals import Refusal, RefusalLog

NO_HELLO = "no hello in time"
TOO_MANY = "too many connections without a hello"
NO_DESCRIPTORS = "this process has no file descriptors left"
_SPARE_VISITORS = 64
_BURST = 100  # accepted in one turn of the loop
_PAUSE = 0.05  # after a failed accept: for the loop to close what was dropped
_BACKLOG = 4096
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)

Greet = Callable[[Connection, str, Message], None]


class Listener:
    """Challenges everybody; `greet` gets the first message of each, and takes the connection over or raises Refusal."""

    def __init__(self, settings: GangSettings, greet: Greet, strangers: RefusalLog) -> None:
        self.port = settings.port
        self._settings = settings
        self._greet = greet
        self._strangers = strangers
        self._most = _SPARE_VISITORS + settings.size
        self._sockets: list[socket.socket] = []
        self._visitors: dict[Connection, tuple[str, float]] = {}  # nonce and deadline, the oldest first
        self._arriving: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Listen; a port that is taken is the user's to solve."""
        addresses = self._settings.listen or ("0.0.0.0", "::")
        for address in addresses:
            try:
                self._sockets.append(self._listener(address))
            except OSError as error:
                if self._settings.listen is None and ":" in address and error.errno in _NO_IPV6:
                    continue
                self.close()
                raise Failure(
                    Exit.CONFIG,
                    f"LAUNCHER_GANG_PORT: cannot listen on port {self.port} of {address}: {error.strerror}: "
                    "end what uses the port, or choose another one, the same for all members",
                ) from None
        for listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def close(self) -> None:
        loop = asyncio.get_running_loop()
        for listener in self._sockets:
            loop.remove_reader(listener)
            listener.close()
        self._sockets.clear()
        for task in self._arriving:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        visitors = list(self._visitors)
        self._visitors.clear()
        for visitor in visitors:
            visitor.fail("closed")

    def _listener(self, address: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address, self.port))
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        return listener

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BURST):
            try:
                arrived, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._make_room(listener)
                return  # otherwise the visitor has gone already
            arrived.setblocking(False)
            task = loop.create_task(self._let_in(arrived))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _let_in(self, arrived: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: Connection(self._heard, self._ended, self._opened), arrived)
        except OSError:
            arrived.close()  # it has gone already

    def _make_room(self, listener: socket.socket) -> None:
        """Without descriptors nobody can be accepted: the oldest stranger goes, and the loop gets time to close it."""
        self._strangers.refused(NO_DESCRIPTORS, "a connection")
        if self._visitors:
            self._drop(next(iter(self._visitors)), TOO_MANY)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        loop.call_later(_PAUSE, self._listen_again, listener)

    def _listen_again(self, listener: socket.socket) -> None:
        if listener in self._sockets:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _opened(self, visitor: Connection) -> None:
        if not self._sockets:
            visitor.fail("closed")
            return
        if len(self._visitors) >= self._most:
            self._drop(next(iter(self._visitors)), TOO_MANY)
        nonce = new_nonce()
        self._visitors[visitor] = nonce, time.monotonic() + self._settings.hello_within
        visitor.send(encode(challenge(nonce)))
        self._watch()

    def _heard(self, visitor: Connection, message: Message) -> None:
        nonce, _ = self._visitors[visitor]
        try:
            self._greet(visitor, nonce, message)
        except Refusal as refusal:
            del self._visitors[visitor]
            if refusal.reason:
                self._strangers.refused(refusal.reason, visitor.peer, refusal.text)
            visitor.send(encode(again(refusal.text, refusal.retry)))
            visitor.close()
        else:
            del self._visitors[visitor]

    def _ended(self, visitor: Connection) -> None:
        if self._visitors.pop(visitor, None) and visitor.why:
            self._strangers.refused(visitor.why, visitor.peer)

    def _drop(self, visitor: Connection, why: str) -> None:
        del self._visitors[visitor]
        self._strangers.refused(why, visitor.peer)
        visitor.fail(why)

    def _watch(self) -> None:
        """One timer, for the oldest visitor."""
        if self._timer is None and self._visitors:
            _, deadline = next(iter(self._visitors.values()))
            self._timer = asyncio.get_running_loop().call_at(deadline, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = time.monotonic()
        for visitor, (_, deadline) in list(self._visitors.items()):
            if deadline > now:
                break
            self._drop(visitor, NO_HELLO)
        self._watch()
