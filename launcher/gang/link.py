"""A member's connection to its hub: joins, waits for the welcome, and returns when it ends or is not heard any more."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

from launcher.base.aio import bounded, off_loop
from launcher.base.host import host_port
from launcher.gang import protocol
from launcher.gang.connection import MALFORMED, Connection, Heartbeat, settle
from launcher.gang.events import Credentials, GangSettings, LookAgain, Missing
from launcher.gang.protocol import Malformed, Message, Welcome

T = TypeVar("T")

_ANSWER_WITHIN = 2.0  # connecting, and each answer, while joining
_RETURN_PAUSE = 0.05
_CONNECT_BESIDE = 0.8  # of the time between two beats: each of them finds the attempt before it over

_Inbox = asyncio.Queue[Message | None]  # None is the end of the connection
_Target = tuple[int, Any]  # address family and socket address


class _Again(Exception):
    """The hub said no, or is not one."""

    def __init__(self, reason: str, retry: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry


class Link:
    """The one connection to the hub.

    `heard` gets what the hub says after the welcome, and `returned` is called when the hub has said welcome again.
    `lost` is told when the connection has ended for good: why, when, and whether by silence. `last_words` is asked for
    what the hub must hear when the joining is given up.
    """

    def __init__(
        self,
        papers: Credentials,
        settings: GangSettings,
        hub: tuple[str, int],
        *,
        heard: Callable[[Message], None],
        returned: Callable[[], None],
        lost: Callable[[str, float, bool], None],
        last_words: Callable[[], list[Message]],
    ) -> None:
        self.missing: Missing | None = None
        self._papers = papers
        self._settings = settings
        self._hub = hub
        self._heard = heard
        self._returned = returned
        self._lost = lost
        self._last_words = last_words
        self._dialled: _Target | None = None  # where the last connection went
        self._target: _Target | None = None  # where the hub of this gang is
        self._reached_at = time.monotonic()
        self._gang: str | None = None
        self._knocking: Connection | None = None  # before the welcome
        self._connection: Connection | None = None  # after it
        self._ended_at: float | None = None  # it has ended, and this member has not returned
        self._unheard: Connection | None = None  # on which the hub hears nothing
        self._unheard_since = self._unheard_at = -math.inf  # by the hub's words of late
        self._returning: asyncio.Task[None] | None = None
        self._over = False
        self._pulse = Heartbeat(
            settings.alive_every,
            settings.silence,
            lambda: filter(None, [self._knocking, self._connection]),
            cut_off=self._cut_off,
        )

    # ---- joining -------------------------------------------------------------------------------------------------

    async def join(self) -> Welcome:
        """Until the hub says welcome. LookAgain when it says no, or cannot be reached."""
        self._pulse.start()
        within = min(_ANSWER_WITHIN, self._settings.reach_within)
        while True:
            try:
                return await self._enter(within, within)
            except _Again as again:
                if not again.retry or self._unreached():
                    raise LookAgain(again.reason) from None
            except (OSError, asyncio.TimeoutError, Malformed) as error:
                if self._unreached():
                    raise LookAgain(f"the hub at {self._where()} cannot be reached: {_why(error)}") from None
            await asyncio.sleep(pause())

    def _unreached(self) -> bool:
        return time.monotonic() - self._reached_at >= self._settings.reach_within

    def _where(self) -> str:
        return host_port(*self._hub)

    async def _enter(self, within: float, answer_within: float) -> Welcome:
        """Connect, say hello, wait as long as the roster is not complete, and take the connection into use."""
        inbox: _Inbox = asyncio.Queue()
        try:
            connection = await self._connect(inbox, within)
            theirs = protocol.read_challenge(await _next(inbox, answer_within))
            if self._connection and not self._is_cut_off(self._connection):
                raise _Again("it was heard again on the connection before", retry=True)
            mine = protocol.new_nonce()
            connection.limit = protocol.KNOWN_LIMIT
            connection.send(
                protocol.encode(protocol.hello(self._papers, self._settings.shape, self._gang, theirs, mine))
            )
            try:
                welcome = await self._welcomed(connection, inbox, answer_within)
            except asyncio.CancelledError:
                for message in self._last_words():  # the welcome may be on its way: then this member is missed
                    connection.send(protocol.encode(message))
                await settle([connection], within / 4)
                raise
            if not protocol.proved(welcome, self._papers.secret, theirs, mine):
                raise _Again(f"{self._where()} could not prove that it has the job's secret", retry=False)
            if self._gang not in (None, welcome.gang):
                raise _Again(f"{self._where()} is the hub of another gang", retry=False)
        except BaseException:
            if self._knocking is not None:
                self._knocking.fail("not welcome")
            raise
        finally:
            self._knocking = None
        self._gang = welcome.gang
        self._use(connection, inbox)
        return welcome

    async def _welcomed(self, connection: Connection, inbox: _Inbox, within: float) -> Welcome:
        message = await _next(inbox, within)
        while message["word"] == "waiting":
            self.missing = protocol.read_waiting(message)
            try:
                message = await _next(inbox, None)
            finally:
                self._reached_at = connection.heard_at if connection.silent else time.monotonic()
        if message["word"] == "again":
            reason, retry = protocol.read_again(message)
            raise _Again(reason, retry)
        return protocol.read_welcome(message)

    async def _connect(self, inbox: _Inbox, within: float) -> Connection:
        """With a bound for each address: a dropped SYN must not hold it."""
        targets = [self._target] if self._target else await bounded(self._resolve(), within)
        failure: Exception = OSError("no address")
        for target in targets:
            try:
                connection = await bounded(self._dial(target, inbox), within / len(targets))
            except (OSError, asyncio.TimeoutError) as error:
                failure = error
            else:
                self._dialled = target
                return connection
        raise failure

    async def _dial(self, target: _Target, inbox: _Inbox) -> Connection:
        family, address = target
        loop = asyncio.get_running_loop()
        dialled = socket.socket(family, socket.SOCK_STREAM)
        self._knocking = None
        try:
            dialled.setblocking(False)
            await loop.sock_connect(dialled, address)
            _, connection = await loop.create_connection(lambda: self._knock(inbox), sock=dialled)
        except BaseException:
            dialled.close()
            raise
        return connection

    def _knock(self, inbox: _Inbox) -> Connection:
        """Known here from its first moment, so that whatever interrupts the joining can end it."""
        self._knocking = Connection(lambda _, said: inbox.put_nowait(said), lambda _: inbox.put_nowait(None))
        return self._knocking

    async def _resolve(self) -> list[_Target]:
        host, port = self._hub
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:  # a name
            found = await off_loop(_look_up, host, port)
        return [(family, address) for family, _, _, _, address in found]

    def _use(self, connection: Connection, inbox: _Inbox) -> None:
        """From here on messages go to `heard`, beginning with those that came behind the welcome."""
        before, self._connection = self._connection, connection
        if before is not None:
            before.fail("replaced")
        self._ended_at = None
        self._target = self._dialled
        connection.heard = self._hear
        connection.ended = self._ended
        while not inbox.empty():
            message = inbox.get_nowait()
            if message is None:
                self._ended(connection)
                return
            try:
                self._hear(connection, message)
            except Malformed:
                connection.fail(MALFORMED)

    # ---- after the welcome ---------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Lost without a connection: whoever returns says everything again."""
        if self._connection is not None:
            self._connection.send(protocol.encode(message))

    def give_up_if_cut_off(self) -> bool:
        """Whether the hub counts as lost from now on, since it says nothing; `lost` tells."""
        return self._connection is not None and self._connection.give_up_if_cut_off(self._settings.alive_every)

    def leave(self) -> None:
        """Nothing more is expected of the hub: when its connection ends, that is its end."""
        self._over = True

    def _hear(self, connection: Connection, message: Message) -> None:
        if connection is not self._connection:
            return
        if message["word"] == "unheard":
            self._told_unheard(connection)
        else:
            self._heard(message)

    def _told_unheard(self, connection: Connection) -> None:
        """Once is no news where the network has just come back: only a beat later what was said here has arrived."""
        now, every = time.monotonic(), self._settings.alive_every
        if now - self._unheard_at > 2 * every:
            self._unheard_since = now
        self._unheard_at = now
        if now - self._unheard_since > every / 2:
            self._unheard = connection
            self._cut_off(connection)

    def _is_cut_off(self, connection: Connection) -> bool:
        """Whether one of both sides hears nothing on it."""
        return connection is self._unheard or connection.is_cut_off(self._settings.alive_every)

    def _ended(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        ended_at = self._ended_at = connection.heard_at if connection.silent else time.monotonic()
        if connection.why:  # silence, or nonsense: there is nobody to return to
            if self._returning is not None:
                self._returning.cancel()
            asyncio.get_running_loop().call_soon(self._lost, connection.why, ended_at, connection.silent)
        else:
            self._returning = asyncio.get_running_loop().create_task(self._return(ended_at, self._returning))

    def _cut_off(self, connection: Connection) -> None:
        """At each beat. A new connection gets through as soon as the network does, an old one perhaps much later."""
        if connection is self._connection and not self._over and (self._returning is None or self._returning.done()):
            self._returning = asyncio.get_running_loop().create_task(self._dial_beside())

    async def _dial_beside(self) -> None:
        """The old connection stays in use until the welcome: whatever else comes says nothing about it.

        Once connected there is no hurry. A hub that is only stopped gets one more connection, and not one a beat; and
        one that has heard the hello may have given up the old connection for this one.
        """
        try:
            await self._enter(_CONNECT_BESIDE * self._settings.alive_every, self._settings.silence)
        except (_Again, OSError, asyncio.TimeoutError, Malformed):
            return
        self._returned()

    async def _return(self, ended_at: float, dialling: asyncio.Task[None] | None) -> None:
        within = self._settings.return_within
        why = f"its connection ended and it could not be reached again within {within:g} s"
        until = time.monotonic() + within
        if dialling is not None:  # perhaps the hub has ended the connection for that one
            await self._end_dialling(dialling, within / 2)
        while self._ended_at == ended_at and not self._over and (left := until - time.monotonic()) > 0:
            try:
                await self._enter(min(left, within / 2), min(left, within / 2))
            except _Again as again:
                if not again.retry:
                    why = f"its connection ended, and then: {again.reason}"
                    break
            except (OSError, asyncio.TimeoutError, Malformed):
                pass
            else:
                self._returned()
                return
            await asyncio.sleep(_RETURN_PAUSE)
        if self._ended_at == ended_at:
            self._lost(why, ended_at, False)

    async def _end_dialling(self, dialling: asyncio.Task[None], within: float) -> None:
        try:
            await asyncio.wait([dialling], timeout=within)
        finally:
            dialling.cancel()
        if self._knocking is not None:
            self._knocking.fail("too late")
        await asyncio.wait([dialling])

    # ---- the end -------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """End it at once."""
        self._over = True
        self._pulse.stop()
        if self._returning is not None:
            self._returning.cancel()
        for connection in (self._knocking, self._connection):
            if connection is not None:
                connection.fail("dropped")
        self._knocking = self._connection = None

    async def close(self, within: float) -> None:
        """Give a return that is under way its chance to say what is unsaid, then end the connection in order."""
        if self._returning is not None:
            await asyncio.wait([self._returning], timeout=within / 2)
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await settle([connection], within / 2)
        self.drop()


def pause() -> float:
    """0.1 to 0.3 s, so that a thousand members do not knock in step."""
    return 0.1 + os.urandom(1)[0] / 1280


async def _next(inbox: _Inbox, within: float | None) -> Message:
    message = await (inbox.get() if within is None else bounded(inbox.get(), within))
    if message is None:
        raise ConnectionError("it ended the connection")
    return message


def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _why(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "no answer in time"
    if isinstance(error, Malformed):
        return "what answers there is no launcher of this version"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number and number > 0 else str(error)
