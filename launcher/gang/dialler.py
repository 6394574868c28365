"""Connect to another launcher, by an address or a host name, and exchange the proofs that both have the secret."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

from launcher.base.aio import run_in_thread, wait_within
from launcher.base.host import host_port, parse_address
from launcher.gang import handshake
from launcher.gang.certificates import Certificates
from launcher.gang.connection import Connection
from launcher.gang.protocol import Malformed, Message, encode

log = logging.getLogger(__name__)

Inbox = asyncio.Queue[Message | None]  # None: the connection has ended
_Target = tuple[int, Any]  # address family and socket address


class Refused(Exception):
    """The other launcher has refused this member, or is not a launcher of this job or gang."""

    def __init__(self, reason: str, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class Dialler:
    """Make connections to one launcher. After the first welcome, connect only to the address that sent the welcome.

    pending: the connection of a handshake that is not complete
    """

    def __init__(self, place: tuple[str, int], certificates: Certificates | None) -> None:
        self.place = host_port(*place)
        self.pending: Connection | None = None
        self._to = place
        self._certificates = certificates
        self._dialled: _Target | None = None  # the address of the latest connection
        self._target: _Target | None = None  # the address that has sent a welcome

    async def open(self, inbox: Inbox, secret: bytes | None, connect_within: float, answer_within: float) -> Connection:
        """Return a connection on which both sides have proved that they have the secret.

        Raise Refused, Malformed, OSError or asyncio.TimeoutError. Each address has a part of `connect_within` seconds.
        """
        connection = await self._connect(inbox, connect_within)
        try:
            await self._prove(connection, inbox, secret, answer_within)
        except ConnectionError:
            if connection.reason:
                raise Malformed(connection.reason) from None
            doubt = ": does it accept this pod's certificate?" if self._certificates else ""
            raise connection.error or ConnectionError(f"the other side ended the connection{doubt}") from None
        return connection

    def welcomed(self, address: str) -> None:
        """Stop owning the connection: the handshake is complete. `address`: the address of the hub in the roster."""
        self.pending = None
        if self._target is None and not self._has_dialled(address):
            log.warning(f"the hub's address is {address}, but {self.place} answers: is there a proxy between them?")
        self._target = self._dialled

    def abort(self, reason: str) -> None:
        """End the connection of a handshake that is not complete, if there is one."""
        if self.pending is not None:
            self.pending.abort(reason)
            self.pending = None

    async def _prove(self, connection: Connection, inbox: Inbox, secret: bytes | None, within: float) -> None:
        nonce = handshake.new_nonce()
        connection.send(encode(handshake.hello(nonce)))
        message = await next_message(inbox, within)
        if message["word"] == "challenge":  # sent before the hello arrived
            message = await next_message(inbox, within)
        if message["word"] == "again":
            raise Refused(*handshake.read_refusal(message))
        proof = handshake.read_proof(message, secret, nonce)
        if proof is None:
            reason = f"the secret of this member differs from the secret of {self.place}: is it a pod of another job?"
            connection.send(encode(handshake.refusal("wrong proof")))  # no name: it may be any program
            raise Refused(reason, retry=False)
        if not inbox.empty():
            await next_message(inbox, within)  # raises ConnectionError if the connection has ended
            raise Malformed("a message after the proof")  # it has no seal, so the other launcher has not sent it
        connection.seal_outgoing(proof.to_hub)
        connection.seal_incoming(proof.to_member, proven=True)

    async def _connect(self, inbox: Inbox, within: float) -> Connection:
        """Connect to the first address that answers."""
        targets = [self._target] if self._target else await wait_within(self._resolve(), within)
        failure: Exception = OSError("no address")
        for target in targets:
            try:
                connection = await wait_within(self._dial(target, inbox), within / len(targets))
            except (OSError, asyncio.TimeoutError) as error:
                failure = error
            else:
                self._dialled = target
                return connection
        raise failure

    async def _dial(self, target: _Target, inbox: Inbox) -> Connection:
        family, address = target
        loop = asyncio.get_running_loop()
        dialled = socket.socket(family, socket.SOCK_STREAM)
        self.pending = None
        tls = self._certificates.of_client() if self._certificates else {}
        try:
            dialled.setblocking(False)
            await loop.sock_connect(dialled, address)
            _, connection = await loop.create_connection(lambda: self._make_pending(inbox), sock=dialled, **tls)
        except ConnectionError as error:
            dialled.close()
            if not tls or self.pending is None:  # the port is closed, or this launcher has ended the connection
                raise
            raise ConnectionError(_tls_fails("the other side ended the connection")) from error
        except BaseException:
            dialled.close()
            raise
        return connection

    def _make_pending(self, inbox: Inbox) -> Connection:
        """Keep the new connection, so that `abort` can end it if anything interrupts the handshake."""
        self.pending = Connection(lambda _, message: inbox.put_nowait(message), lambda _: inbox.put_nowait(None))
        return self.pending

    def _has_dialled(self, address: str) -> bool:
        """Return False if the latest connection was made to another address. Loopback addresses are not compared."""
        dialled = parse_address(self._dialled[1][0].partition("%")[0]) if self._dialled else None
        known = parse_address(address)
        if dialled is None or known is None or dialled.is_loopback or dialled.version != known.version:
            return True
        return dialled == known

    async def _resolve(self) -> list[_Target]:
        host, port = self._to
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:  # a host name, not an address
            found = await run_in_thread(_look_up, host, port)
        return [(family, address) for family, _, _, _, address in found]


async def next_message(inbox: Inbox, within: float | None) -> Message:
    """Return the next message. Raise ConnectionError if the connection has ended."""
    message = await (inbox.get() if within is None else wait_within(inbox.get(), within))
    if message is None:
        raise ConnectionError("the other side ended the connection")
    return message


def describe(error: Exception) -> str:
    """Return why a connection could not be made, as a part of a sentence."""
    if isinstance(error, Refused):
        return error.reason
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, Malformed):
        return "another program, or a launcher of another version, answers there"
    if tls := getattr(error, "reason", None):  # of an ssl.SSLError, whose number is none of errno
        return _tls_fails(getattr(error, "verify_message", "") or tls)
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number and number > 0 else str(error)


def _tls_fails(why: str) -> str:
    return f"TLS fails ({why}): do all pods have LAUNCHER_TLS_DIR?"


def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
