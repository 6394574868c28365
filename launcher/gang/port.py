"""The gang port of this launcher, and all its other connections to the gang except the link to the hub."""

from __future__ import annotations

from collections.abc import Callable

from launcher.gang.certificates import Certificates
from launcher.gang.events import Credentials, GangSettings
from launcher.gang.listener import Listener, OnJoin
from launcher.gang.neighbour import NeighbourCheck, problem
from launcher.gang.protocol import Message
from launcher.gang.refusals import RefusalLog
from launcher.model import Roster


class GangPort:
    """Listen, answer each peer that has the secret, and check the next member of the roster."""

    def __init__(self, settings: GangSettings, on_join: OnJoin) -> None:
        self._settings = settings
        self.refusals = RefusalLog()
        self.certificates = Certificates(settings.tls_folder) if settings.tls_folder else None
        self._listener = Listener(settings, on_join, self.refusals, self.certificates)
        self._neighbour: NeighbourCheck | None = None

    @property
    def number(self) -> int:
        return self._listener.port

    async def open(self) -> None:
        """Listen, unless this is the only member. Raise Failure if the port is taken or a certificate is not valid."""
        if self._settings.size == 1:
            return
        if self.certificates:
            await self.certificates.open()
        self._listener.open()

    def answer(self, credentials: Credentials) -> None:
        """Answer peers that have this secret, from now on."""
        self._listener.credentials = credentials

    def check_next(self, credentials: Credentials, roster: Roster, rank: int, send: Callable[[Message], None]) -> None:
        """Check whether this member, which has this rank, can reach the next one. `send`: sends to the hub."""
        self._neighbour = NeighbourCheck(self._settings, credentials, roster, rank, self.certificates, send)

    async def reaches(self, address: str) -> bool:
        """Return whether a launcher with the secret answers at this address."""
        if self._listener.credentials is None:
            return False
        return (
            await problem((address, self._settings.port), self._listener.credentials.secret, self.certificates) is None
        )

    def check_no_more(self) -> None:
        if self._neighbour:
            self._neighbour.stop()

    def close(self) -> None:
        self.check_no_more()
        if self.certificates:
            self.certificates.close()
        self._listener.close()
        self.refusals.close()
