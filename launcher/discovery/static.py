"""Find peers in LAUNCHER_PEERS, which lists the addresses or host names of all members in rank order."""

from __future__ import annotations

from collections.abc import Collection

from launcher.base.host import is_address, is_among, local_addresses, parse_address
from launcher.discovery.finder import LEADING, Finder
from launcher.errors import Exit, Failure
from launcher.model import BOTH, Member, Peers, role_name


class StaticFinder(Finder):
    """Find the peers in a list.

    This member's rank comes from LAUNCHER_RANK or JOB_COMPLETION_INDEX. If both are unset, the place of this host in
    the list is the rank.
    """

    async def find(self) -> Peers:
        settings = self._settings
        if len(settings.peers) != settings.size:
            raise Failure(
                Exit.CONFIG,
                f"LAUNCHER_PEERS has {len(settings.peers)} peers, but the job has {settings.size} members: "
                "list each member once",
            )
        rank = self._rank()
        lower = settings.peers[: min(rank, settings.shape.trainers, LEADING)] if settings.any_leads else ()
        return Peers(self._me(rank), settings.peers[0] if rank else None, settings.job_id, rank, tuple(lower))

    def members(self) -> list[Member]:
        """Return all members. For other members, use the peer address as training address, since no other is known."""
        own = self._rank()
        shape = self._settings.shape
        others = [
            Member(peer, "", peer, peer, rank, shape.role(rank)) for rank, peer in enumerate(self._settings.peers)
        ]
        return [self._me(own) if member.rank == own else member for member in others]

    def describe_missing(self, joined: Collection[str]) -> str:
        return f"the peers are {', '.join(self._settings.peers)}"

    def _me(self, rank: int) -> Member:
        peer = self._settings.peers[rank]
        return self._own_member(rank, peer if is_address(peer) else None)

    def _rank(self) -> int:
        size, given = self._settings.size, self._settings.rank
        rank = given if given is not None else self._own_rank()
        if rank >= size:
            raise Failure(
                Exit.CONFIG,
                f"LAUNCHER_RANK (or JOB_COMPLETION_INDEX) is {rank}, but there are only {size} peers: "
                f"set LAUNCHER_RANK to 0 to {size - 1}",
            )
        return rank

    def _own_rank(self) -> int:
        settings, shape, pod_ip = self._settings, self._settings.shape, self._settings.pod_ip
        first = shape.rank(settings.role, 0)
        peers = settings.peers[first : first + shape.count(settings.role)]
        found = [number for number, peer in enumerate(peers) if pod_ip and parse_address(peer) == parse_address(pod_ip)]
        found = found or [number for number, peer in enumerate(peers) if self._is_own(peer)]
        if len(found) == 1:
            return first + found[0]
        which = f"{len(found)} (numbers {', '.join(map(str, found))})" if found else "none"
        are = "are addresses" if found else "is an address"
        who = "peers" if settings.role == BOTH else f"{role_name(settings.role)}s"
        raise Failure(
            Exit.CONFIG,
            f"{which} of the {who} in LAUNCHER_PEERS ({', '.join(peers)}) {are} of this host: "
            f"set LAUNCHER_RANK to this member's place in the list, 0 to {len(peers) - 1}",
        )

    def _is_own(self, peer: str) -> bool:
        if is_address(peer):
            return is_among(peer, local_addresses())
        own = {self._settings.host_name, self._settings.pod_name}
        return peer in own or peer.split(".")[0] in own
