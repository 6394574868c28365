"""Assign ranks to members.

The rank of a member is the number of its pod. If pods have no numbers, the numeric order of addresses decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from launcher.base.host import address_order
from launcher.errors import Exit, Failure
from launcher.model import Member, Roster, Shape, role_order


def are_numbered(members: Collection[Member]) -> bool:
    """Return whether all members have numbers. Raises Failure if only some of the members have a number."""
    without = sorted(member.pod for member in members if member.rank is None)
    if without and len(without) != len(members):
        raise Failure(
            Exit.CONFIG,
            f"some pods of this job have a number, other pods have no number ({_some(without)}): "
            "create all pods by Indexed Jobs or StatefulSets, or all pods by plain Jobs",
        )
    return not without


def make_roster(members: Collection[Member]) -> Roster:
    """Return the roster. Raises Failure if two pods have the same number or address, or if a number is missing."""
    if not are_numbered(members):
        in_order = sorted(members, key=lambda member: (role_order(member.role), address_order(member.address)))
        _check_unique("address", [member.address for member in members])
        return Roster(tuple(replace(member, rank=rank) for rank, member in enumerate(in_order)))
    ranks = [member.rank for member in members if member.rank is not None]
    _check_unique("number", ranks)
    if sorted(ranks) != list(range(len(ranks))):
        raise Failure(
            Exit.CONFIG, f"the pods of this job have the numbers {_some(sorted(ranks))}: expected 0 to {len(ranks) - 1}"
        )
    return Roster(tuple(sorted(members, key=lambda member: -1 if member.rank is None else member.rank)))


def restore_roster(members: Collection[Member], kept: Mapping[str, int], shape: Shape) -> Roster:
    """Return the roster of members without numbers, for a job that has had a gang before.

    Members of the earlier gang keep their ranks. New members get the vacant ranks of their role, in the order of their
    addresses.

    kept: the ranks in the earlier gang, by pod uid
    """
    ranks = {member.uid: kept[member.uid] for member in members if member.uid in kept}
    vacant = [rank for rank in range(shape.size) if rank not in ranks.values()]
    for member in sorted(members, key=lambda member: address_order(member.address)):
        if member.uid not in ranks:
            ranks[member.uid] = next(rank for rank in vacant if shape.role(rank) == member.role)
            vacant.remove(ranks[member.uid])
    return make_roster([replace(member, rank=ranks[member.uid]) for member in members])


def joint_identity(roster: Roster) -> str:
    """Return the identity of a job with roles: the identities of their pods, joined by `+`, trainers first.

    Equal identities are there only once.
    """
    return "+".join(dict.fromkeys(member.controller for member in roster.members))


def _check_unique(what: str, values: Collection[str | int]) -> None:
    repeated = [str(value) for value, times in Counter(values).items() if times > 1]
    if repeated:
        raise Failure(Exit.CONFIG, f"two pods of this job have the same {what}: {_some(repeated)}")


def _some(values: Collection[str | int]) -> str:
    shown = [str(value) for value in values][:10]
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")
