"""Which kinds of faults can be done in a place, and what is missing for the others."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping

from chaos.plan import KINDS, Plan


def left_out(elsewhere: Mapping[str, str], needs: Mapping[str, str]) -> dict[str, str]:
    """Why each kind that cannot be done is not: it belongs elsewhere, or the program that it needs is not here."""
    found = {program: shutil.which(program) for program in needs.values()}
    lacking = {kind: f"there is no {program} here" for kind, program in needs.items() if not found[program]}
    return {**elsewhere, **lacking}


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
