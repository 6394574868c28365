"""Describe what the processes of all members do. Members that are at the same place in the program form a group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from launcher.model import MemberReport, ProcessState, Shape, role_order

_MAX_GROUPS = 8
MAX_NAMED = 8
_NO_ANSWER = "did not answer"
_QUIET = 5.0  # seconds without output that are worth a word


@dataclass
class Group:
    """Processes at one place.

    ranks: the members of these processes, each once
    frames: the innermost frames of these processes, and how many processes have each
    count: how many processes
    """

    role: str
    where: str
    ranks: list[int] = field(default_factory=list)
    quiet: list[float] = field(default_factory=list)
    frames: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def add(self, rank: int, state: ProcessState) -> None:
        if self.ranks[-1:] != [rank]:
            self.ranks.append(rank)
        self.quiet.append(state.quiet)
        self.frames[state.frame] += state.count
        self.count += state.count


def groups(reports: Mapping[int, MemberReport], shape: Shape) -> list[Group]:
    """Return the groups in the order of their roles, child processes last; large groups before small ones.

    Members without a process form groups by their phase. Members without an answer form the last group.
    """
    found: dict[tuple[str, str], Group] = {}
    silent = Group("", _NO_ANSWER)
    without: dict[str, Group] = {}
    for rank in range(shape.size):
        report = reports.get(rank)
        if report is None:
            silent.ranks.append(rank)
        elif not report.states:
            without.setdefault(report.phase, Group("", f"{report.phase}, without a process")).ranks.append(rank)
        for state in report.states if report else ():
            key = state.role, state.where
            found.setdefault(key, Group(*key)).add(rank, state)
    ordered = sorted(found.values(), key=lambda group: (role_order(group.role), -len(group.ranks)))
    return [*ordered, *without.values(), *([silent] if silent.ranks else [])]


def summary(reports: Mapping[int, MemberReport], shape: Shape) -> str:
    """Return one sentence, such as `3 of 4 in all_reduce, train.py:57 for 41 s; rank 2 in read, train.py:42`.

    The sentence is about the trainers. It is about the servers if no trainer runs.
    """
    every = groups(reports, shape)
    shown = [group for group in every if group.role == "trainer"] or [group for group in every if group.role]
    first_role = shown[0].role if shown else ""
    shown = [group for group in every if group.role in (first_role, "")]
    trains = shape.trainers if first_role == "trainer" else shape.size
    parts = [_part(group, trains, shape) for group in shown[:_MAX_GROUPS]]
    more = len(shown) - _MAX_GROUPS
    return "; ".join([*parts, *([f"and {more} more places"] if more > 0 else [])])


def few(ranks: list[int], names: Callable[[list[int]], str]) -> str:
    """Return the names of the first members, and the number of the others."""
    more = len(ranks) - MAX_NAMED
    return names(ranks[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def seconds(quiet: list[float]) -> str:
    """Return the range of these times."""
    low, high = f"{min(quiet):.0f}", f"{max(quiet):.0f}"
    return f"{low} s" if low == high else f"{low} to {high} s"


def _part(group: Group, members: int, shape: Shape) -> str:
    count = len(group.ranks)
    who = f"{count} of {members}" if count > 1 and count * 2 > members else few(group.ranks, shape.names)
    if not group.quiet:
        return f"{who} {group.where}" if group.where == _NO_ANSWER else f"{who}: {group.where}"
    quiet = f", no output for {seconds(group.quiet)}" if min(group.quiet) >= _QUIET else ""
    return f"{who} in {group.where}{quiet}"
