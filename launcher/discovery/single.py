"""A job of one asks nobody."""

from __future__ import annotations

from collections.abc import Collection

from launcher.discovery.finder import FinderSettings
from launcher.discovery.own_pod import own_member
from launcher.model import Member, Peers


class SingleFinder:
    """The only member is number 0 and the hub."""

    def __init__(self, settings: FinderSettings) -> None:
        self._settings = settings

    async def start(self) -> None:
        """Nothing to begin with."""

    async def identity(self) -> str | None:
        """What this member was told."""
        return self._settings.job_id

    async def find(self) -> Peers:
        """This member."""
        return Peers(own_member(self._settings, 0), None, self._settings.job_id, 0)

    def members(self) -> list[Member]:
        """This one."""
        return [own_member(self._settings, 0)]

    def missing(self, present: Collection[str]) -> str:
        """Nobody is."""
        return ""

    def other(self) -> tuple[str | None, str]:
        """There is none."""
        return None, ""

    async def ask(self, pod: str) -> str:
        """There is nobody to ask about."""
        return ""

    async def close(self) -> None:
        """Nothing runs."""


def make(settings: FinderSettings) -> SingleFinder:
    """This way of finding peers."""
    return SingleFinder(settings)
