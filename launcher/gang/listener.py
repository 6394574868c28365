"""Accept connections on the gang port, and refuse connections of peers that do not prove that they have the secret."""

from __future__ import annotations

import asyncio
import errno
import socket
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from launcher.base import shortage
from launcher.base.bounds import is_number
from launcher.errors import Exit, Failure
from launcher.gang import handshake
from launcher.gang.certificates import Certificates
from launcher.gang.connection import Connection
from launcher.gang.dialler import describe
from launcher.gang.events import Credentials, GangSettings
from launcher.gang.handshake import Nonces
from launcher.gang.protocol import VERSION, Malformed, Message, encode
from launcher.gang.refusals import RefusalLog

NO_HELLO = "no hello in time"
NO_JOIN = "a hello, but no join in time"
NO_TLS = "no TLS with a certificate of this job"
TOO_MANY = "too many connections without a join"
WRONG_PROOF = "wrong proof"
FAULT = "a fault of the launcher itself, please report it"
NO_DESCRIPTORS = "this process has no file descriptors left"
_SPARE_PENDING = 64  # connections without a join, in addition to one per member
_BURST = 100  # connections accepted in one iteration of the event loop
_LOOKS = 5  # at each connection without a join, within the time for its hello
_ACCEPT_PAUSE = 0.05  # after a failed accept, so that the event loop can close dropped connections
_BACKLOG = 4096
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)

OnJoin = Callable[[Connection, Message], None]


class Refusal(Exception):
    """A hello or a join is refused.

    reason: the name under which refusals are counted; if empty, the refusal is not counted
    text: the reason that is sent to the other side
    retry: the other side asks this launcher again
    """

    def __init__(self, reason: str, text: str, *, retry: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry = retry


def not_the_hub() -> Refusal:
    """Return the refusal by a launcher that is not the hub, or has not found its peers and its secret yet."""
    return Refusal("", "this launcher is not the hub, or does not know it yet", retry=True)


@dataclass
class _Pending:
    """A connection without a join: when it is dropped, and whether it was asked for its hello."""

    deadline: float
    challenged: bool = False


class Listener:
    """Exchange the proofs on each new connection, then call `on_join` with the connection and its next message.

    `on_join` takes the connection over, or raises Refusal. The number of connections without a join is limited. Above
    the limit, each new connection replaces the oldest of these. So idle connections cannot keep members out.

    credentials: until they are set, each hello is refused
    """

    def __init__(
        self, settings: GangSettings, on_join: OnJoin, refusals: RefusalLog, certificates: Certificates | None
    ) -> None:
        self.port = settings.port
        self.credentials: Credentials | None = None
        self._settings = settings
        self._on_join = on_join
        self._refusals = refusals
        self._certificates = certificates
        self._max_pending = _SPARE_PENDING + settings.size
        self._sockets: list[socket.socket] = []
        self._pending: dict[Connection, _Pending] = {}  # the oldest first
        self._accepting: dict[asyncio.Task[None], str] = {}  # before the TLS handshake: its peer, oldest first
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
        for task in list(self._accepting):
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
                accepted, (peer, *_) = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._free_descriptor(listening)
                return  # after any other error: the other side has ended the connection already
            accepted.setblocking(False)
            if self._certificates and len(self._accepting) >= self._max_pending:
                self._drop_accepting()
            task = loop.create_task(self._connect(accepted, peer))
            self._accepting[task] = peer
            task.add_done_callback(partial(self._accepted, accepted))

    async def _connect(self, accepted: socket.socket, peer: str) -> None:
        loop = asyncio.get_running_loop()
        tls = self._certificates.of_server(self._settings.hello_within) if self._certificates else {}
        try:
            await loop.connect_accepted_socket(
                lambda: Connection(self._on_message, self._on_ended, self._on_opened), accepted, **tls
            )
        except OSError as error:
            accepted.close()
            if tls:  # without TLS, the other side has ended the connection already
                self._refusals.add(NO_TLS, peer, describe(error))

    def _accepted(self, accepted: socket.socket, task: asyncio.Task[None]) -> None:
        self._accepting.pop(task, None)
        if task.cancelled():  # perhaps before it ran
            accepted.close()

    def _drop_accepting(self) -> None:
        oldest = next(iter(self._accepting))
        self._refusals.add(TOO_MANY, self._accepting.pop(oldest))
        oldest.cancel()

    def _free_descriptor(self, listening: socket.socket) -> None:
        """Drop the oldest connection without a join, and accept again once the event loop has closed it."""
        self._refusals.add(NO_DESCRIPTORS, "a connection")
        if self._pending:
            self._drop(next(iter(self._pending)), TOO_MANY)
        elif self._accepting:
            self._drop_accepting()
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
        self._pending[connection] = _Pending(time.monotonic() + self._settings.hello_within)
        self._schedule_look()

    def _on_message(self, connection: Connection, message: Message) -> None:
        try:
            if not connection.is_sealed:
                self._prove(connection, message)
                return
            self._on_join(connection, message)
        except Refusal as refused:
            if refused.reason:
                self._refusals.add(refused.reason, connection.peer, refused.text)
            connection.send(encode(handshake.refusal(refused.text, refused.retry)))
            connection.close()
            return  # with TLS, the peer may delay the end: until then, the connection counts as pending
        except Malformed:
            raise
        except Exception:
            if connection.is_sealed:
                raise
            self._refusals.add(FAULT, connection.peer, traceback.format_exc())
            connection.abort(FAULT)  # a peer without the secret must not be able to end this launcher
        del self._pending[connection]

    def _prove(self, connection: Connection, message: Message) -> None:
        """Answer a hello with this launcher's proof. The seal of the next line proves that the peer has the secret."""
        version = handshake.hello_version(message)
        if version != VERSION:
            raise Refusal(
                "another version",
                f"the hub uses version {VERSION} of the gang protocol, this member uses version "
                f"{version if is_number(version) else 'unknown'}: run the same image in all pods",
            )
        if self.credentials is None:
            raise not_the_hub()
        nonces = Nonces(handshake.new_nonce(), handshake.read_hello(message))
        proof = handshake.prove(self.credentials.secret, nonces)
        connection.send(encode(handshake.proof(nonces.hub, proof)))
        connection.seal_outgoing(proof.to_member)
        connection.seal_incoming(proof.to_hub)

    def _on_ended(self, connection: Connection) -> None:
        if not self._pending.pop(connection, None):
            return
        if connection.forged:
            differs = "its secret differs from the secret of this launcher: is it a pod of another job?"
            self._refusals.add(WRONG_PROOF, connection.peer, differs)
        elif connection.reason:
            self._refusals.add(connection.reason, connection.peer)

    def _drop(self, connection: Connection, reason: str) -> None:
        del self._pending[connection]
        if not connection.closing:  # else it was refused before
            self._refusals.add(reason, connection.peer)
        connection.abort(reason)

    def _schedule_look(self) -> None:
        """Run one timer for all connections without a join."""
        if self._timer is None and self._pending:
            every = self._settings.hello_within / _LOOKS
            self._timer = asyncio.get_running_loop().call_later(every, self._look_at_pending)

    def _look_at_pending(self) -> None:
        """Drop overdue connections. Ask for a hello once: launchers before version 10 wait for that."""
        self._timer = None
        now = time.monotonic()
        for connection, pending in list(self._pending.items()):
            if pending.deadline <= now:
                self._drop(connection, NO_JOIN if connection.is_sealed else NO_HELLO)
            elif not pending.challenged and not connection.is_sealed:
                pending.challenged = True
                connection.send(encode(handshake.challenge()))
        self._schedule_look()
