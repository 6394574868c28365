"""Check whether this member can reach the next member of the roster. `protocol.py` explains why."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from launcher.base import shortage
from launcher.base.aio import wait_within
from launcher.gang import messages
from launcher.gang.certificates import Certificates
from launcher.gang.dialler import Dialler, Inbox, Refused, describe
from launcher.gang.events import Credentials, GangSettings
from launcher.gang.protocol import Malformed, Message
from launcher.model import Roster

_WITHIN = 5.0  # seconds for one check


class NeighbourCheck:
    """Check the next member at regular intervals, until `stop`.

    The last member checks nothing: the hub, to which it has a link, is its neighbour.

    send: sends a message to the hub
    """

    def __init__(
        self,
        settings: GangSettings,
        credentials: Credentials,
        roster: Roster,
        rank: int,
        certificates: Certificates | None,
        send: Callable[[Message], None],
    ) -> None:
        self._settings = settings
        self._secret = credentials.secret
        self._rank = rank + 1
        self._certificates = certificates
        self._send = send
        self._checking: asyncio.Task[None] | None = None
        if self._rank < len(roster.members) and settings.port:
            self._place = roster.members[self._rank].address, settings.port
            self._checking = asyncio.get_running_loop().create_task(self._check())

    def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()

    async def _check(self) -> None:
        every = self._settings.check_every
        reached_at = time.monotonic()
        await asyncio.sleep(os.urandom(1)[0] / 255 * every)  # so that not all members check at the same time
        while True:
            began_at = time.monotonic()
            if (why := await problem(self._place, self._secret, self._certificates)) is None:
                reached_at = time.monotonic()
            elif (age := time.monotonic() - reached_at) >= self._settings.silence:
                self._send(messages.unreached(self._rank, age, why))
            await asyncio.sleep(max(began_at + every - time.monotonic(), 0))


async def problem(place: tuple[str, int], secret: bytes | None, certificates: Certificates | None) -> str | None:
    """Return why another member cannot be reached, or None if it can be reached and has the secret.

    Also return None if this pod lacks the resources to find out.
    """
    dialler, inbox = Dialler(place, certificates), Inbox()
    try:
        await wait_within(dialler.open(inbox, secret, _WITHIN, _WITHIN), _WITHIN)
    except (Refused, OSError, asyncio.TimeoutError, Malformed) as error:
        return None if shortage.explain(error) else describe(error)
    finally:
        dialler.abort("the check is done")
    return None
