"""The connection of a member to its hub: join, wait for the welcome, reconnect if the connection ends or is cut off."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable

from launcher.gang import handshake, protocol
from launcher.gang.connection import MALFORMED, Connection, Heartbeat, close_gracefully
from launcher.gang.dialler import Dialler, Inbox, Refused, describe, next_message
from launcher.gang.events import Credentials, GangSettings, JoinFailed, MissingMembers
from launcher.gang.handshake import Welcome
from launcher.gang.port import GangPort
from launcher.gang.protocol import Malformed, Message
from launcher.gang.refusals import FORGED

_ANSWER_WITHIN = 2.0  # seconds, while joining: to connect, and for each answer
_RECONNECT_PAUSE = 0.05
_SECOND_CONNECTION = 0.8  # heartbeat intervals in which to connect: the next heartbeat can then try again


class Link:
    """Keep one connection to the hub.

    on_message: gets the messages of the hub after the welcome
    on_reconnected: called after each further welcome
    on_lost: called when the hub is lost for good, with the reason, the time (monotonic), and whether it was only silent
    parting_messages: returns the messages to send to the hub if the join is cancelled
    """

    def __init__(
        self,
        credentials: Credentials,
        settings: GangSettings,
        hub: tuple[str, int],
        port: GangPort,
        *,
        on_message: Callable[[Message], None],
        on_reconnected: Callable[[], None],
        on_lost: Callable[[str, float, bool], None],
        parting_messages: Callable[[], list[Message]],
    ) -> None:
        self.missing: MissingMembers | None = None
        self._credentials = credentials
        self._settings = settings
        self._refusals = port.refusals
        self._on_message = on_message
        self._on_reconnected = on_reconnected
        self._on_lost = on_lost
        self._parting_messages = parting_messages
        self._dialler = Dialler(hub, port.certificates)
        self._reached_at = time.monotonic()
        self._gang: str | None = None
        self._connection: Connection | None = None  # the connection in use, after its welcome
        self._ended_at: float | None = None  # when the connection ended; None while there is one
        self._unheard: Connection | None = None  # the connection on which the hub hears nothing
        self._unheard_since = self._unheard_at = -math.inf  # when the hub sent unheard: first in this series, last
        self._reconnecting: asyncio.Task[None] | None = None
        self._over = False
        self._heartbeat = Heartbeat(
            settings.heartbeat_every,
            settings.silence,
            lambda: [each for each in (self._dialler.pending, self._connection) if each and each.is_sealed],
            on_cut_off=self._on_cut_off,
        )

    # ---- joining -------------------------------------------------------------------------------------------------

    async def join(self) -> Welcome:
        """Return the welcome. Raise JoinFailed if the hub refuses this member or cannot be reached."""
        self._heartbeat.start()
        within = min(_ANSWER_WITHIN, self._settings.reach_within)
        while True:
            try:
                return await self._handshake(within, within)
            except Refused as refused:
                if not refused.retry or self._is_unreachable():
                    raise JoinFailed(refused.reason, leads=not refused.retry) from None
            except (OSError, asyncio.TimeoutError, Malformed) as error:
                if self._is_unreachable():
                    reason = f"the hub at {self._dialler.place} cannot be reached: {describe(error)}"
                    raise JoinFailed(reason, answers=False) from None
            await asyncio.sleep(pause())

    def _is_unreachable(self) -> bool:
        return time.monotonic() - self._reached_at >= self._settings.reach_within

    async def _handshake(self, connect_within: float, answer_within: float) -> Welcome:
        """Connect, join, wait for the welcome, and then use this connection. Return the welcome."""
        inbox: Inbox = asyncio.Queue()
        try:
            connection = await self._dialler.open(inbox, self._credentials.secret, connect_within, answer_within)
            if self._connection and not self._is_cut_off(self._connection):
                raise Refused("the hub was heard again on the earlier connection", retry=True)
            join = handshake.join(self._credentials, self._settings.shape, self._gang)
            connection.send(protocol.encode(join))
            try:
                welcome = await self._await_welcome(connection, inbox, answer_within)
            except asyncio.CancelledError:
                for message in self._parting_messages():  # the welcome may be on its way: the hub must learn of the end
                    connection.send(protocol.encode(message))
                await close_gracefully([connection], connect_within / 4)
                raise
            if self._gang not in (None, welcome.gang):
                raise Refused(f"{self._dialler.place} is the hub of another gang", retry=False)
        except BaseException:
            if self._dialler.pending is not None and self._dialler.pending.forged:
                self._refusals.add(FORGED, self._dialler.place)
            self._dialler.abort("not welcome")
            raise
        self._dialler.welcomed(welcome.roster.members[0].address)
        self._gang = welcome.gang
        self._use(connection, inbox)
        return welcome

    async def _await_welcome(self, connection: Connection, inbox: Inbox, within: float) -> Welcome:
        may_wait = self._gang is None  # a member that returns gets its answer at once
        message = await next_message(inbox, within + (handshake.WAITING_AFTER if may_wait else 0))
        while message["word"] == "waiting":
            self.missing = handshake.read_waiting(message)
            try:
                message = await next_message(inbox, None)
            finally:
                self._reached_at = connection.heard_at if connection.timed_out else time.monotonic()
        if message["word"] == "again":
            reason, retry = handshake.read_refusal(message)
            raise Refused(reason, retry)
        return handshake.read_welcome(message)

    def _use(self, connection: Connection, inbox: Inbox) -> None:
        """Use this connection in place of the earlier one. Handle the messages that arrived after the welcome first."""
        before, self._connection = self._connection, connection
        if before is not None:
            before.abort("replaced")
        self._ended_at = None
        connection.on_message = self._handle
        connection.on_ended = self._on_ended
        while not inbox.empty():
            message = inbox.get_nowait()
            if message is None:
                self._on_ended(connection)
                return
            try:
                self._handle(connection, message)
            except Malformed:
                connection.abort(MALFORMED)

    # ---- after the welcome ---------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def send(self, message: Message) -> None:
        """Send a message. Without a connection, drop the message: all reports are repeated after a reconnect."""
        if self._connection is not None:
            self._connection.send(protocol.encode(message))

    def time_out_if_cut_off(self) -> bool:
        """Return whether the hub is cut off. If so, end the connection, and call `on_lost` soon."""
        return self._connection is not None and self._connection.time_out_if_cut_off(self._settings.heartbeat_every)

    def leave(self) -> None:
        """After this call, no reconnect begins: this member needs nothing more from the hub."""
        self._over = True

    def _handle(self, connection: Connection, message: Message) -> None:
        if connection is not self._connection:
            return
        if message["word"] == "unheard":
            self._on_unheard(connection)
        else:
            self._on_message(message)

    def _on_unheard(self, connection: Connection) -> None:
        """Treat the connection as cut off if the hub sends unheard at two heartbeats in a row.

        One unheard is not enough: if the network has just come back, heartbeats of this member may be on their way.
        """
        now, every = time.monotonic(), self._settings.heartbeat_every
        if now - self._unheard_at > 2 * every:
            self._unheard_since = now
        self._unheard_at = now
        if now - self._unheard_since > every / 2:
            self._unheard = connection
            self._on_cut_off(connection)

    def _is_cut_off(self, connection: Connection) -> bool:
        """Return whether the hub or this member receives nothing on the connection."""
        return connection is self._unheard or connection.is_cut_off(self._settings.heartbeat_every)

    def _on_ended(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        ended_at = self._ended_at = connection.heard_at if connection.timed_out else time.monotonic()
        loop = asyncio.get_running_loop()
        if connection.forged:
            self._refusals.add(FORGED, self._dialler.place)
        if connection.reason:  # nothing was heard, or a message was malformed: do not reconnect
            if self._reconnecting is not None:
                self._reconnecting.cancel()
            loop.call_soon(self._on_lost, connection.reason, ended_at, connection.timed_out)
        else:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect(ended_at, self._reconnecting))

    def _on_cut_off(self, connection: Connection) -> None:
        """Open a second connection to the hub, unless this member is reconnecting already.

        After a network cut a new connection works at once. The first connection may recover much later.
        """
        is_idle = self._reconnecting is None or self._reconnecting.done()
        if connection is self._connection and not self._over and is_idle:
            self._reconnecting = asyncio.get_running_loop().create_task(self._open_second())

    async def _open_second(self) -> None:
        """Open a second connection. Keep the first connection until the welcome arrives on the second connection.

        If the second connection fails, the hub does not count as lost. After the TCP connect, wait for the welcome for
        up to `silence` seconds, for two reasons. A hub that is only stopped gets one more connection, not one at each
        heartbeat. And a hub that has read the hello may have replaced the first connection already.
        """
        try:
            await self._handshake(_SECOND_CONNECTION * self._settings.heartbeat_every, self._settings.silence)
        except (Refused, OSError, asyncio.TimeoutError, Malformed):
            return
        self._on_reconnected()

    async def _reconnect(self, ended_at: float, opening_second: asyncio.Task[None] | None) -> None:
        within = self._settings.reconnect_within
        reason = f"its connection ended, and it could not be reached again within {within:g} s"
        until = time.monotonic() + within
        if opening_second is not None:  # the hub may have replaced the first connection by the second one
            await _finish_within(within / 2, opening_second, self._dialler)
        while self._ended_at == ended_at and not self._over and (left := until - time.monotonic()) > 0:
            try:
                await self._handshake(min(left, within / 2), min(left, within / 2))
            except Refused as refused:
                if not refused.retry:
                    reason = f"its connection ended, and the reconnect failed: {refused.reason}"
                    break
            except (OSError, asyncio.TimeoutError, Malformed):
                pass
            else:
                self._on_reconnected()
                return
            await asyncio.sleep(_RECONNECT_PAUSE)
        if self._ended_at == ended_at:
            self._on_lost(reason, ended_at, False)

    # ---- the end -------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """End all connections at once."""
        self._over = True
        self._heartbeat.stop()
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._dialler.abort("dropped")
        if self._connection is not None:
            self._connection.abort("dropped")
            self._connection = None

    async def close(self, within: float) -> None:
        """Wait for a reconnect that has begun, so that all reports arrive, then end the connection gracefully."""
        if self._reconnecting is not None:
            await asyncio.wait([self._reconnecting], timeout=within / 2)
        self._over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            await close_gracefully([connection], within / 2)
        self.drop()


def pause() -> float:
    """Return 0.1 to 0.3 s at random, so that a thousand members do not connect at the same moment."""
    return 0.1 + os.urandom(1)[0] / 1280


async def _finish_within(within: float, opening_second: asyncio.Task[None], dialler: Dialler) -> None:
    try:
        await asyncio.wait([opening_second], timeout=within)
    finally:
        opening_second.cancel()
    dialler.abort("too late")
    await asyncio.wait([opening_second])
