"""Find the hub by its DNS name, which comes from a headless Service.

Only numbered pods can use this. They need no RBAC permissions.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from itertools import chain, repeat
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

from launcher.base.aio import run_in_thread, wait_within
from launcher.base.host import address_order
from launcher.config.parsers import BY_ROLE
from launcher.discovery.deadline import Deadline
from launcher.discovery.finder import LEADING, Finder, FinderSettings
from launcher.errors import Exit, Failure
from launcher.model import Peers

_RESOLVER = "/etc/resolv.conf"
# Seconds from the start of this process to the first look-up. A kubelet checks its containers once a second. So the
# name of a pod that starts together with this pod may be missing for about a second. A look-up that comes too early
# costs 5 s or more, since DNS servers cache the failure.
_FIRST = 1.2
# The last pause repeats.
_PAUSES = (2.6, 2.6, 2.6, 5.2)  # seconds between look-ups; many clusters cache a failure for 5 s


class DnsFinder(Finder):
    """Find the hub by one name, `<name>-0.<service>`. Look up no other name.

    The pauses between look-ups are long, since DNS servers cache failures. The finder uses the full name, if it is
    known: for a shorter name, the resolver would have to try the domains of its search list.
    """

    def __init__(self, settings: FinderSettings) -> None:
        super().__init__(settings)
        self._deadline = Deadline(settings.timeout, settings.timeout_variable)
        self._started: float | None = None
        self._found = 0
        self._state = "the hub's name has not been looked up yet"

    async def start(self) -> None:
        """Record when this process was created. About a second after that, the pod's name appears in DNS."""
        if self._started is None:
            self._started = monotonic() - process_age()

    async def find(self) -> Peers:
        """Return the peers. The hub, rank 0, does not wait. All other members wait until the hub's address is known."""
        await self.start()
        self._deadline.start()
        rank = self._rank()
        me = self._own_member(rank)
        if not rank:
            self._state = "`kubectl get pods -o wide` shows the state of the other pods"
        if self._settings.any_leads:
            lower = await self._lower(rank)
            return Peers(me, lower[0] if lower else None, self._settings.job_id, rank, lower)
        hub = await self._hub(rank) if rank else None
        return Peers(me, hub, self._settings.job_id, rank)

    def describe_missing(self, joined: Collection[str]) -> str:
        """Return the state of the look-up of the hub's name, since this finder knows nothing about other members."""
        return self._state

    def _rank(self) -> int:
        settings, shape = self._settings, self._settings.shape
        count = shape.count(settings.role)
        number = _ordinal(settings) if settings.rank is None else shape.number(settings.rank)
        if number is None or number >= count:
            fact = (
                "this pod has no Job index, StatefulSet ordinal or LAUNCHER_RANK, but discovery by DNS needs one"
                if number is None
                else f"this member's number: {number} is not a number from 0 to {count - 1}"
            )
            raise Failure(
                Exit.CONFIG,
                f"{fact}: use an Indexed Job or a StatefulSet of {count} pods, set LAUNCHER_RANK, or use "
                "LAUNCHER_DISCOVERY=kubernetes",
            )
        return shape.rank(settings.role, number)

    async def _lower(self, rank: int) -> tuple[str, ...]:
        """Return the addresses of all trainers that come before this member, and whose names have an address."""
        if not rank:
            return ()
        self._deadline.check(self._state, self._advice())
        count = min(rank, self._settings.shape.trainers, LEADING)
        names = [await run_in_thread(hub_name, self._settings, rank, number) for number in range(count)]
        await self._until_first()
        if self._found:
            await asyncio.sleep(_PAUSES[0])
        self._found += 1
        found = await asyncio.gather(*(self._addresses(name) for name in names))
        return tuple(address for addresses in found for address in addresses)

    async def _until_first(self) -> None:
        assert self._started is not None
        await asyncio.sleep(max(0.0, self._started + _FIRST - monotonic()))

    async def _hub(self, rank: int) -> str:
        name = await run_in_thread(hub_name, self._settings, rank)
        await self._until_first()
        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        while not (found := await self._addresses(name)):
            await self._pause(next(pauses))
        self._found += 1
        # While the hub's pod is replaced, its name may have two addresses. Calls of `find` return them in turn.
        return found[(self._found - 1) % len(found)]

    async def _addresses(self, name: str) -> list[str]:
        try:
            found = await wait_within(run_in_thread(_look_up, name), max(0.05, self._deadline.seconds_left()))
        except (OSError, UnicodeError, asyncio.TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            self._state = f"the hub's name {name} has no address yet: {reason}"
            return []
        self._state = f"the hub's name {name} has the address {', '.join(found)}"
        return found

    async def _pause(self, seconds: float) -> None:
        until, never = monotonic() + seconds, asyncio.Event()
        while (left := until - monotonic()) > 0:
            self._deadline.report(self._state, self._advice())
            await self._deadline.pause(self._state, left, never)

    def _advice(self) -> str:
        _, service = _workload(self._settings, 0)
        return (
            f"Check whether pod 0 runs, whether the pods have `subdomain: {service}`, and whether a Service {service} "
            "with `clusterIP: None` and `publishNotReadyAddresses: true` selects the pods"
        )


def hub_name(settings: FinderSettings, rank: int, number: int = 0) -> str:
    """Return the DNS name of a pod that may lead. If the full name is known, return it with a dot at its end."""
    base, service = _workload(settings, rank)
    if not base or not service:
        raise Failure(Exit.CONFIG, "LAUNCHER_DISCOVERY=dns needs LAUNCHER_SERVICE, the name of the headless Service")
    name = f"{base}-{number}.{service}"
    if name.endswith("."):
        return name
    if ".svc." in service:
        return f"{name}."
    domain = _service_domain() if "." not in service else None
    return f"{name}.{domain}." if domain else name


def process_age() -> float:
    """Return the seconds since the creation of this process, or 0 if /proc does not show it."""
    try:
        with open("/proc/self/stat", "rb") as file:
            created = int(file.read().rpartition(b") ")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, clock_gettime(CLOCK_BOOTTIME) - created)


def _workload(settings: FinderSettings, rank: int) -> tuple[str | None, str]:
    """Return two names: that of the hub's Job or StatefulSet (None if unknown), and that of its headless Service.

    With roles, LAUNCHER_SERVICE contains both names.
    """
    service = settings.service or ""
    if service.startswith(BY_ROLE):
        base, _, service = service.removeprefix(BY_ROLE).partition(".")
        return base, service
    suffix = f"-{rank}"
    host, pod = settings.host_name.partition(".")[0], settings.pod_name or ""
    on_node_network = bool(pod) and not f"{pod}-".startswith(f"{host}-")  # with hostNetwork the host name is the node's
    names = ("" if on_node_network else host, pod)
    return next((name[: -len(suffix)] for name in names if name.endswith(suffix)), settings.job_name), service


def _ordinal(settings: FinderSettings) -> int | None:
    """Return the number at the end of the pod's name, or None if the name does not end with a number."""
    for name in (settings.pod_name or "", settings.host_name.partition(".")[0]):
        _, dash, digits = name.rpartition("-")
        if dash and digits.isascii() and digits.isdigit():
            return int(digits)
    return None


def _service_domain() -> str | None:
    """Return `<namespace>.svc.<cluster domain>` from the resolver's search list, or None if it is not there.

    The kubelet writes this list.
    """
    try:
        with open(_RESOLVER, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return None
    domains = [domain for line in words if line[:1] == ["search"] for domain in line[1:]]
    return next((domain.rstrip(".") for domain in domains if domain.split(".")[1:2] == ["svc"]), None)


def _look_up(name: str) -> list[str]:
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    return sorted(found, key=lambda address: address_order(address.partition("%")[0]))
