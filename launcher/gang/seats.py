"""What the hub knows about each member, and which rank each member gets when all have joined."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from launcher.base.host import address_order
from launcher.gang.connection import Connection
from launcher.gang.events import Credentials, GangSettings, JoinFailed, MissingMembers
from launcher.gang.handshake import MISSING_SHOWN, Join
from launcher.gang.listener import Refusal
from launcher.gang.protocol import Malformed
from launcher.model import COUNT_VARIABLE, TRAINS, Member, Shape, role_name, role_order


@dataclass(eq=False)
class Seat:
    """A place in the gang, and the member that holds it.

    The hub's own seat has no connection, since the hub and its own member are in one process.
    """

    member: Member
    incarnation: str
    connection: Connection | None = None
    connected_at: float = 0.0  # when the hub began to use this connection (monotonic)
    told_to_stop: bool = False  # the member got SIGTERM: its processes may use the whole grace period
    stopped: bool = False  # the member's processes have ended, and the member is leaving
    ended_at: float | None = None  # when its connection ended (monotonic); None while it is connected
    timed_out: bool = False  # its connection ended by silence: the member may still run behind a network cut
    lost: bool = False

    @property
    def rank(self) -> int:
        assert self.member.rank is not None
        return self.member.rank

    def is_cut_off(self, settings: GangSettings) -> bool:
        """Return whether nothing arrives from the member, although its connection has not ended."""
        return self.connection is not None and self.connection.is_cut_off(settings.heartbeat_every)

    def is_unreachable(self, settings: GangSettings) -> bool:
        """Return whether the member and its processes may still run on the other side of a network cut."""
        return not self.stopped and (self.timed_out or self.is_cut_off(settings))

    def is_ending(self, settings: GangSettings) -> bool:
        """Return whether the member has not yet sent `stopped`, and is connected and not cut off, or may reconnect.

        False for the hub's own member.
        """
        if self.connection is None:
            return self.ended_at is not None and not self.timed_out and self.remaining_run_time(settings) > 0
        return not self.stopped and not self.is_cut_off(settings)

    def remaining_run_time(self, settings: GangSettings) -> float:
        """Return for how many seconds at most a process of this member can still run. Assumes that the gang is over."""
        if self.stopped:
            return 0.0
        if self.ended_at is not None and not self.timed_out:
            end = self.ended_at + settings.reconnect_within  # dead, unless it reconnects
        else:
            # The member and the hub stopped hearing each other at the same time. So the member counts the hub as lost.
            heard_at = self.ended_at if self.connection is None else self.connection.heard_at
            end = (heard_at or time.monotonic()) + settings.silence + settings.ends_within
        return max(0.0, end - time.monotonic())


class Seats(list[Seat]):
    """The seats of all members in rank order, once the roster is complete; empty before."""

    @property
    def shape(self) -> Shape:
        """The number of members of the gang, by role. In an elastic job, GangSettings has only the largest number."""
        return Shape.of(seat.member for seat in self)


class RollCall:
    """Assign seats to members until all have joined, or until an elastic gang has enough members.

    full: gets all seats in rank order, or JoinFailed if this launcher turns out not to be the hub
    on_settled: called once no member has joined an elastic gang for a while
    """

    def __init__(self, credentials: Credentials, settings: GangSettings, on_settled: Callable[[], None]) -> None:
        self._me = credentials.me
        self._settings = settings
        self._numbered = credentials.me.rank is not None
        self.own = Seat(credentials.me, credentials.incarnation)
        self._held: dict[int | str, Seat] = {_key(credentials.me): self.own}
        self._missing = dict.fromkeys(range(settings.size)) if self._numbered else {}
        self._missing.pop(credentials.me.rank or 0, None)
        self.full: asyncio.Future[Seats] = asyncio.get_running_loop().create_future()
        self._on_settled = on_settled
        self._has_settled = False
        self._settling: asyncio.TimerHandle | None = None
        self._settle()

    @property
    def seats(self) -> Collection[Seat]:
        """The seats of all members that have joined."""
        return self._held.values()

    def missing(self) -> MissingMembers:
        return MissingMembers(len(self._held), self._settings.size, tuple(islice(self._missing, MISSING_SHOWN)))

    def admit(self, join: Join) -> Seat:
        """Assign a seat to a member, and return the seat. Raise Refusal if the member may not join.

        A restarted launcher takes the seat that the earlier launcher of the same pod had.
        """
        member = join.member
        if join.gang is not None:
            raise Refusal("another gang", "the earlier gang of this member does not exist any more")
        self._check_place(member)
        key = _key(member)
        holder = self._held.get(key)
        if holder and holder.incarnation != join.incarnation and not _same_pod(holder.member, member):
            place = f"address {key}" if member.rank is None else self._settings.shape.name(member.rank)
            raise Refusal(
                "a seat that is taken", f"{place} belongs to pod {holder.member.pod}, not to pod {member.pod}"
            )
        seat = self._held[key] = Seat(member, join.incarnation)
        self._missing.pop(member.rank or 0, None)
        self._settle()
        if holder and holder.connection:
            holder.connection.abort("replaced")
        return seat

    def has_room(self, member: Member) -> bool:
        """Return whether a complete gang has no member with this number, and could have one. Raise Refusal if not."""
        self._check_place(member)
        return _key(member) not in self._held

    def release(self, seat: Seat) -> None:
        """Free the seat of a member whose connection has ended."""
        key = _key(seat.member)
        if self._held.get(key) is seat:
            del self._held[key]
            if seat.member.rank is not None:
                self._missing = dict.fromkeys(sorted([*self._missing, seat.member.rank]))

    def complete(self) -> Seats | None:
        """If the gang can begin, assign the ranks and return all seats. Else, and in later calls, return None."""
        if self.full.done() or not self._can_begin():
            return None
        self.close()
        seats = Seats(sorted(self._held.values(), key=lambda seat: _order(seat.member)))
        if self._settings.elastic:
            seats = _with_kept_ranks(seats, self.own, self._settings.elastic.ranks)
        for rank, seat in enumerate(seats):
            seat.member = replace(seat.member, rank=rank)
        self.full.set_result(seats)
        return seats

    def close(self) -> None:
        """Stop the timer of an elastic gang."""
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _can_begin(self) -> bool:
        joined, elastic = len(self._held), self._settings.elastic
        if joined == self._settings.size:
            return True
        if elastic is None:
            return False
        joined_shape, wanted = Shape.of(seat.member for seat in self._held.values()), self._settings.shape
        others = [role for role in wanted.roles if role not in TRAINS]
        if joined_shape.trainers < elastic.least or any(joined_shape.count(r) < wanted.count(r) for r in others):
            return False
        return self._has_settled or (elastic.returning is not None and joined >= elastic.returning)

    def _settle(self) -> None:
        """Start the time in which no member may join before an elastic gang begins with fewer members."""
        self.close()
        if self._settings.elastic:
            self._has_settled = False
            self._settling = asyncio.get_running_loop().call_later(self._settings.elastic.settle, self._settled)

    def _settled(self) -> None:
        self._has_settled = True
        self._on_settled()

    def _check_place(self, member: Member) -> None:
        shape = self._settings.shape
        self._refuse_other_controllers(member)
        if (member.rank is not None) != self._numbered:
            these, those = ("a number", "no number") if self._numbered else ("no number", "a number")
            raise Refusal(
                "pods with and without numbers",
                f"the hub's pod has {these}, but pod {member.pod} has {those}: create all pods in the same way",
            )
        if member.rank is not None:
            if member.rank >= self._settings.size:
                raise Refusal(
                    "a rank out of range",
                    f"pod {member.pod} has rank {member.rank}, but there are only {self._settings.size} members: "
                    "is CONF_PADDLE_GRADIENT_NUM less than the number of pods?",
                )
            if member.role != shape.role(member.rank):
                must_be = f"rank {member.rank} must be a {role_name(shape.role(member.rank))}"
                raise Refusal("another role", f"{must_be}, but pod {member.pod} is not: check its LAUNCHER_ROLE")
        elif self._is_role_full(member):
            raise Refusal(
                "a role that is full",
                f"{shape.count(member.role)} {role_name(member.role)}s have joined already, so pod {member.pod} is one "
                f"too many: is {COUNT_VARIABLE[member.role]} less than the number of these pods?",
            )
        elif _order(member) < _order(self._me) and not self._settings.elastic:
            reason = f"pod {member.pod} has a lower address, {member.address}"
            if not self.full.done():
                self.full.set_exception(JoinFailed(f"this launcher is not the hub: {reason}"))
            raise Refusal("a lower address", f"{reason}, than this launcher: pod {member.pod} must be the hub")

    def _refuse_other_controllers(self, member: Member) -> None:
        """Refuse a pod if a pod of its role has joined with another controller. One of these pods is of an older job.

        Pods of an older job may still exist, and may even have this job's secret.
        """
        if not self._settings.pservers:
            return
        for seat in self._held.values():
            other = seat.member
            one_is_unknown = bool(other.controller) != bool(member.controller)
            if one_is_unknown or (other.role == member.role and other.controller != member.controller):
                raise Refusal(
                    "another job",
                    f"pod {other.pod}, which has joined, is controlled by {other.controller or 'an unknown object'}, "
                    f"but pod {member.pod} is controlled by {member.controller or 'an unknown object'}",
                )

    def _is_role_full(self, member: Member) -> bool:
        """Return whether all seats of the role are taken. False without roles: the gang is then complete anyway."""
        if not self._settings.pservers:
            return False
        others = [seat.member for seat in self._held.values() if seat.member.address != member.address]
        return sum(other.role == member.role for other in others) >= self._settings.shape.count(member.role)


def _key(member: Member) -> int | str:
    return member.address if member.rank is None else member.rank


def _with_kept_ranks(seats: Seats, hub: Seat, kept: Mapping[str, int]) -> Seats:
    """Return the seats in another order: each trainer that had a rank in the previous gang keeps it, if it exists.

    Trainers come first in `seats`. The hub, which is a trainer, gets rank 0.
    """
    trainers = [seat for seat in seats if seat.member.role in TRAINS]
    places: list[Seat | None] = [None] * len(trainers)
    places[0] = hub
    others = []
    for seat in trainers:
        if seat is hub:
            continue
        rank = kept.get(seat.member.uid)
        if rank is not None and rank < len(places) and places[rank] is None:
            places[rank] = seat
        else:
            others.append(seat)
    free = iter(others)
    return Seats([*(seat or next(free) for seat in places), *seats[len(trainers) :]])


def _order(member: Member) -> tuple[int, int, int]:
    """Return the sort key: the rank if members have numbers, else by role, trainers first, then by address."""
    if member.rank is not None:
        return 0, 0, member.rank
    try:
        return role_order(member.role), *address_order(member.address)
    except ValueError as error:
        raise Malformed("address") from error


def _same_pod(one: Member, other: Member) -> bool:
    """Return whether both members are launchers of one pod. If so, its container was restarted: one launcher is dead.

    A stalled volume may keep the sockets of a dead launcher open.
    """
    return one.uid != "" and one.uid == other.uid
