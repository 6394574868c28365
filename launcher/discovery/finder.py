"""The interface of all finders of peers, and the choice between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module

from launcher.base.host import SERVICE_ACCOUNT, own_address
from launcher.errors import Exit, Failure
from launcher.model import Member, Peers, Shape

FINDERS = {
    "kubernetes": ("launcher.discovery.kubernetes", "KubernetesFinder"),
    "dns": ("launcher.discovery.dns", "DnsFinder"),
    "static": ("launcher.discovery.static", "StaticFinder"),
}


@dataclass(frozen=True)
class FinderSettings:
    """What a finder needs of the configuration.

    rank: given by the user, where pods have no numbers of their own
    timeout_variable: the variable that sets `timeout`, for messages
    env: the environment of child processes
    """

    discovery: str
    role: str
    shape: Shape
    job_name: str | None
    namespace: str
    selector: str
    service: str | None
    peers: tuple[str, ...]
    pod_name: str | None
    pod_ip: str | None
    pod_uid: str | None
    host_name: str
    rank: int | None
    job_id: str | None
    training_address: str
    timeout: float
    timeout_variable: str
    env: Mapping[str, str]
    service_account: str = SERVICE_ACCOUNT

    @property
    def size(self) -> int:
        """The number of members of the gang."""
        return self.shape.size


class Finder(ABC):
    """Finds the peers of a job. Close it once this member has joined; `describe_peer` works after that, too."""

    def __init__(self, settings: FinderSettings) -> None:
        self._settings = settings

    async def start(self) -> None:  # noqa: B027 (optional)
        """Begin what takes long, so that `find` returns earlier."""

    async def identity(self) -> str | None:
        """Return the job's identity, with roles that of this role's pods; None if the finder does not know it.

        Does not wait for other pods. Has the deadline of `find`, and raises the same failures.
        """
        return self._settings.job_id

    @abstractmethod
    async def find(self) -> Peers:
        """Return the peers once enough is known to join; each call looks again. Raises Failure: 75, 77 or 78.

        All calls have one deadline together. The caller may cancel the call, and pauses between two calls.
        """

    def members(self) -> list[Member]:
        """Return the members that `find` has seen. It may need to see only some of them."""
        return []

    @abstractmethod
    def describe_missing(self, joined: Collection[str]) -> str:
        """Say which members are missing and why. `joined`: pod names or uids of the members that have joined."""

    def other_role(self) -> tuple[str | None, str]:
        """Return the identity of the other role's pods, if known, and why that role has failed for good, if it has."""
        return None, ""

    async def describe_peer(self, pod: str) -> str:
        """Look at a peer's pod again, for 5 s at most. Return what became of it; empty if that is not known.

        pod: its name or uid
        """
        return ""

    async def close(self) -> None:  # noqa: B027 (optional)
        """End what runs in the background."""

    def _own_member(self, rank: int, address: str | None = None) -> Member:
        settings = self._settings
        known = address or settings.pod_ip or settings.training_address or own_address()
        if not known:
            raise Failure(
                Exit.CONFIG, "this pod has no network address but loopback: set POD_IP (fieldRef status.podIP)"
            )
        name = settings.pod_name or settings.host_name
        return Member(name, settings.pod_uid or "", known, settings.training_address or known, rank, settings.role)


class SingleFinder(Finder):
    """The finder of a job with one member: there are no peers."""

    async def find(self) -> Peers:
        return Peers(self._own_member(0), None, self._settings.job_id, 0)

    def members(self) -> list[Member]:
        return [self._own_member(0)]

    def describe_missing(self, joined: Collection[str]) -> str:
        return ""


def make_finder(settings: FinderSettings) -> Finder:
    """Return the finder that the settings name."""
    if settings.size == 1:
        return SingleFinder(settings)
    module, name = FINDERS[settings.discovery]
    made: Finder = getattr(import_module(module), name)(settings)
    return made
