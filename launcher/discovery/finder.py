"""The interface of all finders of peers, and the choice of a finder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module

from launcher.base.host import SERVICE_ACCOUNT, own_address
from launcher.errors import Exit, Failure
from launcher.model import Member, Peers, Shape

LEADING = 16  # the numbers from 0 on that may lead an elastic job: members do not look for all pods of a large job

FINDERS = {
    "kubernetes": ("launcher.discovery.kubernetes", "KubernetesFinder"),
    "dns": ("launcher.discovery.dns", "DnsFinder"),
    "static": ("launcher.discovery.static", "StaticFinder"),
}


@dataclass(frozen=True)
class FinderSettings:
    """The part of the configuration that a finder needs.

    shape: in an elastic job, with as many trainers as it may have
    needs_numbers: pods without numbers are an error
    any_leads: any trainer may be the hub: `Peers.lower` has those that come before this member
    rank: the rank over all roles, from LAUNCHER_RANK or JOB_COMPLETION_INDEX, or None
    timeout_variable: the name of the variable that sets `timeout`, for messages
    env: the environment for the finder's child processes
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
    needs_numbers: bool = False
    any_leads: bool = False

    @property
    def size(self) -> int:
        """The number of members of the gang."""
        return self.shape.size


class Finder(ABC):
    """Find the peers of a job.

    The caller must close the finder when this member has joined. The caller may still call `describe_peer` after that.
    """

    def __init__(self, settings: FinderSettings) -> None:
        self._settings = settings

    async def start(self) -> None:  # noqa: B027 (optional)
        """Start slow work in the background, so that `find` returns earlier."""

    async def identity(self) -> str | None:
        """Return the identity of the job, or None if the finder does not know it.

        With roles, return the identity of this role's pods. This call does not wait for other pods. It has the same
        deadline as `find`, and raises the same failures.
        """
        return self._settings.job_id

    @abstractmethod
    async def find(self) -> Peers:
        """Return the peers as soon as enough is known to join. Raises Failure (75, 77 or 78).

        Each call looks for the peers again. All calls share one deadline. The caller must pause between two calls, and
        may cancel a call.
        """

    def members(self) -> list[Member]:
        """Return the members that `find` has seen. These may be only some of the gang's members."""
        return []

    @abstractmethod
    def describe_missing(self, joined: Collection[str]) -> str:
        """Return a text: which members are missing and why.

        joined: pod names or uids of the members that have joined
        """

    def other_role(self, role: str) -> tuple[str | None, str]:
        """Return two values about another role.

        - the identity of that role's pods, or None if it is not known
        - why that role has failed for good, or "" if it has not
        """
        return None, ""

    async def describe_peer(self, pod: str) -> str:
        """Return how the pod of a peer ended, or "" if that is not known within 5 s.

        pod: the pod's name or uid
        """
        return ""

    async def close(self) -> None:  # noqa: B027 (optional)
        """End all background work."""

    def _own_member(self, rank: int, address: str | None = None) -> Member:
        settings = self._settings
        known = address or settings.pod_ip or settings.training_address or own_address()
        if not known:
            raise Failure(
                Exit.CONFIG, "this pod has no network address except loopback: set POD_IP (fieldRef status.podIP)"
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
    if settings.size == 1:
        return SingleFinder(settings)
    module, name = FINDERS[settings.discovery]
    made: Finder = getattr(import_module(module), name)(settings)
    return made
