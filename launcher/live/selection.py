"""Which members are shown if a terminal has no room for all."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from launcher.live.view import PROBLEMS, TRAINING, MemberView

_DIFFERS = 0.2  # of the median of the speed


def choose(members: Sequence[MemberView], room: int) -> tuple[list[MemberView], list[MemberView]]:
    """Return the members that are shown in at most `room` lines, and all others, both in their order.

    Members that differ from the others come first: failed, in another phase, without a finite loss, or slower. One
    line is left for the summary of the others.
    """
    if len(members) <= room:
        return list(members), []
    usual = _usual_phase(members)
    median = _median_speed(members)
    order = {id(member): place for place, member in enumerate(members)}

    def rank_of(member: MemberView) -> tuple[int, float, int]:
        speed, loss = member.numbers.examples_per_second, member.numbers.loss
        place = order[id(member)]
        if member.phase in PROBLEMS:
            return 0, 0.0, place
        if loss is not None and not math.isfinite(loss):
            return 1, 0.0, place
        if member.phase != usual:
            return 2, 0.0, place
        if speed is not None and median and speed < (1 - _DIFFERS) * median:
            return 3, speed, place
        return 4, 0.0, place

    chosen = {id(member) for member in sorted(members, key=rank_of)[: max(0, room - 1)]}
    shown = [member for member in members if id(member) in chosen]
    return shown, [member for member in members if id(member) not in chosen]


def summary(members: Sequence[MemberView]) -> str:
    """Return one line about members: how many are in which phase, and how fast they train."""
    phases = ", ".join(f"{count} {phase}" for phase, count in Counter(each.phase for each in members).most_common())
    speeds = _speeds(members)
    if not speeds:
        return phases
    low, high = min(speeds), max(speeds)
    return f"{phases}; {low:,.0f} to {high:,.0f} examples/s each" if high >= 10 else phases


def _usual_phase(members: Sequence[MemberView]) -> str:
    return Counter(member.phase for member in members).most_common(1)[0][0]


def _median_speed(members: Sequence[MemberView]) -> float | None:
    speeds = _speeds(members)
    return statistics.median(speeds) if speeds else None


def _speeds(members: Sequence[MemberView]) -> list[float]:
    speeds = (each.numbers.examples_per_second for each in members if each.phase in TRAINING)
    return [speed for speed in speeds if speed is not None]
