"""Which kinds of faults can be done in a place, and what is missing for the others."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Collection, Iterator, Mapping

from chaos.plan import KINDS, Plan


def left_out(kinds: Collection[str], elsewhere: str, needs: Mapping[str, str]) -> dict[str, str]:
    """Each kind that cannot be done, with why: not one of `kinds`, or without the program that it needs."""
    found = {program: shutil.which(program) for program in needs.values()}
    lacking = {kind: f"there is no {program} here" for kind, program in needs.items() if not found[program]}
    return {kind: elsewhere for kind in KINDS if kind not in kinds} | lacking


def told(left_out: Mapping[str, str]) -> Iterator[str]:
    """For people: a line for each reason."""
    for why in sorted(set(left_out.values())):
        yield f"left out: {', '.join(sorted(kind for kind in left_out if left_out[kind] == why))}: {why}"


def impossible(plan: Plan, left_out: Mapping[str, str]) -> list[str]:
    """The faults of a plan that cannot be done here, each with the reason."""
    return [f"{fault}: {left_out[fault.kind]}" for fault in plan.faults if fault.kind in left_out]


def named(text: str) -> tuple[str, ...]:
    """What --kinds says."""
    kinds = tuple(sorted({kind.strip() for kind in text.split(",")}))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"no such kind: {', '.join(unknown)}: there are {', '.join(sorted(KINDS))}")
    return kinds
