"""What the most important processes of a member do: one state for each trainer and server, and for their children."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from launcher.model import ProcessState, role_order
from launcher.processes.place import Place, place_of
from launcher.processes.proc import read_entry

_MAX_STATES = 8
_CHILD_OF = "child of a "


@dataclass(frozen=True)
class Tree:
    """A trainer or server with all its descendants, and for how long it has printed nothing."""

    role: str
    pids: Sequence[int]
    quiet: float


def states(
    trees: Sequence[Tree], dumps: Mapping[int, str], in_kernel: Callable[[int], str]
) -> tuple[ProcessState, ...]:
    """Return the states of all processes at different places: trainers, servers, then their children.

    dumps: the Python stacks by pid
    in_kernel: returns the program and state of a process, or "". For trees without Python stacks
    """
    found = [state for tree in trees for state in _states_of(tree, dumps, in_kernel)]
    different: dict[tuple[str, str], ProcessState] = {}
    for state in found:
        known = different.setdefault((state.role, state.where), replace(state, count=0))
        different[state.role, state.where] = replace(
            known, count=known.count + 1, quiet=min(known.quiet, state.quiet), frame=known.frame or state.frame
        )
    return tuple(sorted(different.values(), key=lambda state: role_order(state.role)))[:_MAX_STATES]


def _states_of(tree: Tree, dumps: Mapping[int, str], in_kernel: Callable[[int], str]) -> list[ProcessState]:
    places = {pid: place for pid in tree.pids if (place := place_of(dumps.get(pid, ""), _folder(pid)))}
    if not places:
        where = next(filter(None, map(in_kernel, reversed(tree.pids))), "a place that is not known")
        return [ProcessState(tree.role, where, "", tree.quiet)]
    parents = {pid: entry.parent for pid in tree.pids if (entry := read_entry(pid))}
    return [
        ProcessState(
            _CHILD_OF + tree.role if _has_ancestor_at_work(pid, parents, places) else tree.role,
            place.where,
            place.frame,
            tree.quiet,
        )
        for pid, place in places.items()
        if not place.starts_others or len(places) == 1
    ]


def _has_ancestor_at_work(pid: int, parents: Mapping[int, int], places: Mapping[int, Place]) -> bool:
    parent = parents.get(pid)
    while parent is not None:
        if parent in places and not places[parent].starts_others:
            return True
        parent = parents.get(parent)
    return False


def _folder(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return "/"
