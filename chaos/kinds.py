"""Which kinds of faults are possible on a host, and what is missing for the other kinds."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator, Mapping

from chaos.plan import KINDS, Plan


def left_out(elsewhere: Mapping[str, str], needs: Mapping[str, str]) -> dict[str, str]:
    """Return the kinds that are not possible here, each with the reason.

    elsewhere: kinds that only another arena supports, with the reason
    needs: the program that each kind needs; if it is not installed, the kind is not possible
    """
    found = {program: shutil.which(program) for program in needs.values()}
    lacking = {kind: f"{program} is not installed" for kind, program in needs.items() if not found[program]}
    return {**elsewhere, **lacking}


def explained(left_out: Mapping[str, str]) -> Iterator[str]:
    """Yield one line per reason why kinds of faults are left out."""
    for reason in sorted(set(left_out.values())):
        yield f"left out: {', '.join(sorted(kind for kind in left_out if left_out[kind] == reason))}: {reason}"


def impossible(plan: Plan, left_out: Mapping[str, str]) -> list[str]:
    """Return the faults of a plan that are not possible here, each with the reason."""
    return [f"{fault}: {left_out[fault.kind]}" for fault in plan.faults if fault.kind in left_out]


def named(text: str) -> tuple[str, ...]:
    """Parse the value of --kinds."""
    kinds = tuple(sorted({kind.strip() for kind in text.split(",")}))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"unknown kinds: {', '.join(unknown)}; known are {', '.join(sorted(KINDS))}")
    return kinds
