"""Connect a member to its hub, by an address or a host name."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from launcher.base.aio import run_in_thread, wait_within
from launcher.gang.connection import Connection
from launcher.gang.protocol import Message

Inbox = asyncio.Queue[Message | None]  # None: the connection has ended
_Target = tuple[int, Any]  # address family and socket address


class Dialler:
    """Make connections to one hub. After the first welcome, connect only to the address that sent the welcome.

    pending: the connection of a handshake that is not complete
    """

    def __init__(self, hub: tuple[str, int]) -> None:
        self.pending: Connection | None = None
        self._hub = hub
        self._dialled: _Target | None = None  # the address of the latest connection
        self._target: _Target | None = None  # the address that has sent a welcome

    async def connect(self, inbox: Inbox, within: float) -> Connection:
        """Connect to the first address that answers. Each address has a part of `within` seconds."""
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

    def welcomed(self) -> None:
        """The handshake is complete: the caller uses the connection now."""
        self.pending = None
        self._target = self._dialled

    def abort(self, reason: str) -> None:
        """End the connection of a handshake that is not complete, if there is one."""
        if self.pending is not None:
            self.pending.abort(reason)
            self.pending = None

    async def _dial(self, target: _Target, inbox: Inbox) -> Connection:
        family, address = target
        loop = asyncio.get_running_loop()
        dialled = socket.socket(family, socket.SOCK_STREAM)
        self.pending = None
        try:
            dialled.setblocking(False)
            await loop.sock_connect(dialled, address)
            _, connection = await loop.create_connection(lambda: self._make_pending(inbox), sock=dialled)
        except BaseException:
            dialled.close()
            raise
        return connection

    def _make_pending(self, inbox: Inbox) -> Connection:
        """Keep the new connection, so that `abort` can end it if anything interrupts the handshake."""
        self.pending = Connection(lambda _, message: inbox.put_nowait(message), lambda _: inbox.put_nowait(None))
        return self.pending

    async def _resolve(self) -> list[_Target]:
        host, port = self._hub
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:  # a host name, not an address
            found = await run_in_thread(_look_up, host, port)
        return [(family, address) for family, _, _, _, address in found]


def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
