"""Who may take which place in the gang, until the roster is complete."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import islice

from launcher.base.host import sort_key
from launcher.gang.connection import Connection
from launcher.gang.events import Credentials, GangSettings, LookAgain, Missing
from launcher.gang.protocol import Hello, Malformed
from launcher.gang.refusals import Refusal
from launcher.model import PSERVER, Member

_MISSING_SHOWN = 20


@dataclass(eq=False)
class Seat:
    """A member's place. The hub's own has no connection: what it says and hears goes directly."""

    member: Member
    incarnation: str
    connection: Connection | None = None
    hub_nonce: str = ""
    nonce: str = ""
    told: bool = False  # to stop, by a signal: its children may use all of their grace
    stopped: bool = False  # its children are ended, it is leaving
    ended_at: float | None = None  # its connection has ended, and it has not returned
    silent: bool = False  # by silence: it may still be there, beyond a cut
    lost: bool = False

    @property
    def rank(self) -> int:
        assert self.member.rank is not None
        return self.member.rank


class RollCall:
    """Collects members. `full` gives all seats in rank order, or LookAgain where this launcher is not the hub."""

    def __init__(self, papers: Credentials, settings: GangSettings) -> None:
        self._me = papers.me
        self._settings = settings
        self._numbered = papers.me.rank is not None
        self.own = Seat(papers.me, papers.incarnation)
        self._waiting: dict[int | str, Seat] = {_key(papers.me): self.own}
        self._absent = dict.fromkeys(range(settings.size)) if self._numbered else {}
        self._absent.pop(papers.me.rank or 0, None)
        self.full: asyncio.Future[list[Seat]] = asyncio.get_running_loop().create_future()

    @property
    def seats(self) -> Collection[Seat]:
        """Those who are here."""
        return self._waiting.values()

    def missing(self) -> Missing:
        """Who is waited for."""
        return Missing(len(self._waiting), self._settings.size, tuple(islice(self._absent, _MISSING_SHOWN)))

    def admit(self, hello: Hello) -> Seat:
        """The seat of a member, which whoever held it for the same pod before has left; or Refusal."""
        member = hello.member
        if hello.gang is not None:
            raise Refusal("another gang", "the gang that this member was in is gone")
        self._check_place(member)
        key = _key(member)
        holder = self._waiting.get(key)
        if holder and holder.incarnation != hello.incarnation and not _same_pod(holder.member, member):
            place = f"address {key}" if member.rank is None else self._settings.shape.name(member.rank)
            raise Refusal("a place that is held", f"{place} is held by pod {holder.member.pod}, not by {member.pod}")
        seat = self._waiting[key] = Seat(member, hello.incarnation)
        self._absent.pop(member.rank or 0, None)
        if holder and holder.connection:
            holder.connection.fail("replaced")
        return seat

    def forget(self, seat: Seat) -> None:
        """Its connection has ended before the roster was complete."""
        key = _key(seat.member)
        if self._waiting.get(key) is seat:
            del self._waiting[key]
            if seat.member.rank is not None:
                self._absent = dict.fromkeys(sorted([*self._absent, seat.member.rank]))

    def complete(self) -> list[Seat] | None:
        """Ranks are given once all are here, and once only."""
        if len(self._waiting) < self._settings.size or self.full.done():
            return None
        seats = sorted(self._waiting.values(), key=lambda seat: _order(seat.member))
        for rank, seat in enumerate(seats):
            seat.member = replace(seat.member, rank=rank)
        self.full.set_result(seats)
        return seats

    def _check_place(self, member: Member) -> None:
        shape = self._settings.shape
        self._refuse_other_controllers(member)
        if (member.rank is not None) != self._numbered:
            these, those = ("a number", "none") if self._numbered else ("no number", "one")
            raise Refusal(
                "numbers", f"the hub's pod has {these}, pod {member.pod} has {those}: run all from one object"
            )
        if member.rank is not None:
            if member.rank >= self._settings.size:
                raise Refusal(
                    "a rank out of range",
                    f"pod {member.pod} has rank {member.rank}, but there are only {self._settings.size} members: "
                    "is CONF_PADDLE_GRADIENT_NUM less than the number of pods?",
                )
            if member.role != shape.role(member.rank):
                raise Refusal("another role", f"pod {member.pod} is no {shape.role(member.rank)}: see LAUNCHER_ROLE")
        elif self._is_full(member):
            raise Refusal(
                "a role that is full", f"there are {shape.count(member.role)} members of the role {member.role} already"
            )
        elif _order(member) < _order(self._me):
            reason = f"pod {member.pod} has a lower address, {member.address}"
            if not self.full.done():
                self.full.set_exception(LookAgain(f"not the hub: {reason}"))
            raise Refusal("a lower address", f"{reason}, than this launcher: it is the hub")

    def _refuse_other_controllers(self, member: Member) -> None:
        """Pods of an older job of the other role may still be there, and even know the secret of this job's folder."""
        if not self._settings.pservers:
            return
        for seat in self._waiting.values():
            other = seat.member
            one_is_unknown = bool(other.controller) != bool(member.controller)
            if one_is_unknown or (other.role == member.role and other.controller != member.controller):
                raise Refusal(
                    "another job",
                    f"pod {other.pod}, which has joined, is controlled by {other.controller or 'nobody known'}, "
                    f"pod {member.pod} by {member.controller or 'nobody known'}",
                )

    def _is_full(self, member: Member) -> bool:
        """Without roles the gang begins when it is full."""
        if not self._settings.pservers:
            return False
        others = [seat.member for seat in self._waiting.values() if seat.member.address != member.address]
        return sum(other.role == member.role for other in others) >= self._settings.shape.count(member.role)


def _key(member: Member) -> int | str:
    return member.address if member.rank is None else member.rank


def _order(member: Member) -> tuple[bool, int, int]:
    """By rank, where there are numbers; else by address, and trainers first."""
    if member.rank is not None:
        return False, 0, member.rank
    try:
        return member.role == PSERVER, *sort_key(member.address)
    except ValueError as error:
        raise Malformed("address") from error


def _same_pod(one: Member, other: Member) -> bool:
    """A container that started again: its predecessor is dead, even if a stalled volume holds its sockets open."""
    return one.uid != "" and one.uid == other.uid
