"""Peers by the names that a headless Service gives to numbered pods: only the hub's is looked up. Needs no rights."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from itertools import chain, repeat
from time import CLOCK_BOOTTIME, clock_gettime, monotonic

from launcher.base.aio import bounded, off_loop
from launcher.base.host import sort_key
from launcher.config.parsers import BY_ROLE
from launcher.discovery.deadline import Deadline
from launcher.discovery.finder import FinderSettings
from launcher.discovery.own_pod import ordinal, own_member
from launcher.errors import Exit, Failure
from launcher.model import Member, Peers

_RESOLVER = "/etc/resolv.conf"
_FIRST = 1.2  # seconds of this process's life: until then come the names of pods that start together (a kubelet looks
# at its containers once a second), and a look-up that comes too early costs five or more
_PAUSES = (2.6, 2.6, 2.6, 5.2)  # seconds; a failure is cached for 5 s in many clusters, and the last pause stays


class DnsFinder:
    """Asks for `<name>-0.<service>`, seldom and by full name: failed look-ups are cached, and search lists are slow."""

    def __init__(self, settings: FinderSettings) -> None:
        self._settings = settings
        self._waiting = Deadline(settings.timeout, settings.deadline)
        self._started: float | None = None
        self._found = 0
        self._state = "the hub's name was not looked up yet"

    async def start(self) -> None:
        """Begin to count the time that names need to be there: from the creation of this process."""
        if self._started is None:
            self._started = monotonic() - process_age()

    async def identity(self) -> str | None:
        """What this member was told."""
        return self._settings.job_id

    async def find(self) -> Peers:
        """Number 0 is the hub and asks nobody; the others return when its name has an address."""
        await self.start()
        self._waiting.begin()
        rank = self._rank()
        me = own_member(self._settings, rank)
        if not rank:
            self._state = "`kubectl get pods -o wide` tells how the others' pods are"
        hub = await self._hub(rank) if rank else None
        return Peers(me, hub, self._settings.job_id, rank)

    def members(self) -> list[Member]:
        """Nobody: of the others only the hub was looked up, and it has not said who it is."""
        return []

    def missing(self, present: Collection[str]) -> str:
        """How the hub's name stands; of the others nothing is known here."""
        return self._state

    def other(self) -> tuple[str | None, str]:
        """Nobody tells before the join."""
        return None, ""

    async def ask(self, pod: str) -> str:
        """There is nobody to ask."""
        return ""

    async def close(self) -> None:
        """Nothing runs."""

    def _rank(self) -> int:
        settings, shape = self._settings, self._settings.shape
        of = shape.count(settings.role)
        number = ordinal(settings) if settings.rank is None else shape.number(settings.rank)
        if number is None or number >= of:
            found = "no number is known" if number is None else f"{number} is not a number from 0 to {of - 1}"
            raise Failure(
                Exit.CONFIG,
                f"this member's number: {found}. Names need one: use an Indexed Job or a StatefulSet of "
                f"{of} pods, set LAUNCHER_RANK, or use LAUNCHER_DISCOVERY=kubernetes",
            )
        return shape.rank(settings.role, number)

    async def _hub(self, rank: int) -> str:
        name = await off_loop(hub_name, self._settings, rank)
        assert self._started is not None
        await asyncio.sleep(max(0.0, self._started + _FIRST - monotonic()))
        pauses = chain(_PAUSES, repeat(_PAUSES[-1]))
        while not (found := await self._addresses(name)):
            await self._pause(next(pauses))
        self._found += 1
        # A pod that is replaced has two addresses for a while: whoever looks again tries the next one.
        return found[(self._found - 1) % len(found)]

    async def _addresses(self, name: str) -> list[str]:
        try:
            found = await bounded(off_loop(_look_up, name), max(0.05, self._waiting.left()))
        except (OSError, UnicodeError, asyncio.TimeoutError) as error:
            reason = getattr(error, "strerror", None) or str(error) or "no answer"
            self._state = f"the hub's name {name} has no address yet: {reason}"
            return []
        self._state = f"the hub's name {name} has the address {', '.join(found)}"
        return found

    async def _pause(self, seconds: float) -> None:
        until, never = monotonic() + seconds, asyncio.Event()
        while (left := until - monotonic()) > 0:
            self._waiting.check(self._state, self._advice())
            await self._waiting.pause(self._state, left, never)

    def _advice(self) -> str:
        _, service = _workload(self._settings, 0)
        return (
            f"Look whether pod 0 runs, whether the pods have `subdomain: {service}`, and whether a Service {service} "
            "with `clusterIP: None` and `publishNotReadyAddresses: true` selects them"
        )


def make(settings: FinderSettings) -> DnsFinder:
    """This way of finding peers."""
    return DnsFinder(settings)


def hub_name(settings: FinderSettings, rank: int) -> str:
    """The name of pod 0; with a final dot wherever the full name is known."""
    base, service = _workload(settings, rank)
    if not base or not service:
        raise Failure(Exit.CONFIG, "LAUNCHER_DISCOVERY=dns needs LAUNCHER_SERVICE, the name of the headless Service")
    name = f"{base}-0.{service}"
    if name.endswith("."):
        return name
    if ".svc." in service:
        return f"{name}."
    domain = _service_domain() if "." not in service else None
    return f"{name}.{domain}." if domain else name


def _workload(settings: FinderSettings, rank: int) -> tuple[str | None, str]:
    """The name of the Job or StatefulSet that the hub is of, and its Service. With roles both are told."""
    service = settings.service or ""
    if service.startswith(BY_ROLE):
        base, _, service = service.removeprefix(BY_ROLE).partition(".")
        return base, service
    suffix = f"-{rank}"
    host, pod = settings.host_name.partition(".")[0], settings.pod_name or ""
    names = (host if not pod or f"{pod}-".startswith(f"{host}-") else "", pod)  # on the node's network it is the node's
    return next((name[: -len(suffix)] for name in names if name.endswith(suffix)), settings.job_name), service


def process_age() -> float:
    """Seconds since this process was created, its program's loading included; 0 where the kernel does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            created = int(file.read().rpartition(b") ")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, clock_gettime(CLOCK_BOOTTIME) - created)


def _service_domain() -> str | None:
    """`<namespace>.svc.<cluster domain>`, as the kubelet writes it into the resolver's search list."""
    try:
        with open(_RESOLVER, encoding="utf-8", errors="replace") as file:
            words = [line.split() for line in file]
    except OSError:
        return None
    domains = [domain for line in words if line[:1] == ["search"] for domain in line[1:]]
    return next((domain.rstrip(".") for domain in domains if domain.split(".")[1:2] == ["svc"]), None)


def _look_up(name: str) -> list[str]:
    found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    return sorted(found, key=lambda address: sort_key(address.partition("%")[0]))
