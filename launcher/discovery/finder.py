"""Who is in the job: ways to find peers, chosen by name. A way is a module here with `make`, and a line below."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from launcher.base.host import SERVICE_ACCOUNT
from launcher.model import Member, Peers, Shape

WAYS = {
    "kubernetes": "launcher.discovery.kubernetes",
    "dns": "launcher.discovery.dns",
    "static": "launcher.discovery.static",
}


@dataclass(frozen=True)
class FinderSettings:
    """What finding peers needs to know. `rank` is a number given from outside, `env` is for a child process."""

    discovery: str
    role: str
    shape: Shape
    job_name: str | None
    namespace: str
    selector: str
    service: str | None
    peers: tuple[str, ...]
    gang_port: int
    pod_name: str | None
    pod_ip: str | None
    pod_uid: str | None
    host_name: str
    rank: int | None
    job_id: str | None
    training_address: str
    timeout: float
    deadline: str  # the variable that says so
    env: Mapping[str, str]
    service_account: str = SERVICE_ACCOUNT

    @property
    def size(self) -> int:
        """How many members the gang has."""
        return self.shape.size


class Finder(Protocol):
    """One way to find peers. `close()` is due once the member has joined; `ask` works after it, too."""

    async def start(self) -> None:
        """Begin with what takes long, to be ready for `find`."""

    async def identity(self) -> str | None:
        """The job's identity, before anybody else needs to be there. The same deadline and failures as of `find`.

        With roles: that of the own role's pods.
        """

    async def find(self) -> Peers:
        """Who is there, once enough is known to join; again to look again. Raises Failure: 75, 77 or 78.

        All calls together have one deadline. May be cancelled. Does not wait between calls: that is the caller's part.
        """

    def members(self) -> list[Member]:
        """Those who are known to be there after `find`: all, or only some where more was not needed to join."""

    def missing(self, present: Collection[str]) -> str:
        """Who is not there and why, as far as is known. `present` has pod names or uids of those who have joined."""

    def other(self) -> tuple[str | None, str]:
        """With roles: the other role's identity, and why that has failed for good, as far as both are known."""

    async def ask(self, pod: str) -> str:
        """What became of a peer, by its pod's name or uid: a fresh look of at most 5 s. Empty where nobody knows."""

    async def close(self) -> None:
        """End everything that runs in the background."""


def make_finder(settings: FinderSettings) -> Finder:
    """The way to find peers that the settings name. A job of one asks nobody."""
    way = "launcher.discovery.single" if settings.size == 1 else WAYS[settings.discovery]
    made: Finder = import_module(way).make(settings)
    return made
