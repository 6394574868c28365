"""Invariants about causes: each launcher names one, it fits the faults, and the job failed only if it had to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from chaos import traces
from chaos.counting import history
from chaos.limits import DEATHS, HANGS, LOSSES, ON_VOLUME, SILENT, STALLS
from chaos.plan import LAUNCH, SILENCE, Fault
from chaos.rounds import Done, Story

_NEVER = ("Traceback", "please report it", "Exception in", "was never awaited")
_LAST = re.compile(r".*\] exit code (\d+): \S.*")
_MARGIN = 6.0  # seconds: a cut longer than LAUNCHER_SILENCE minus this may be too long
_LATE = 10**9  # nanoseconds: what happens at the same time as a fault may come before or after it
_TWICE = 2 * 60 + 10  # seconds: the shortest limit of LAUNCHER_STALL_TIMEOUT=auto, twice, and a restart
_MOST_ATTEMPTS = 5  # attempts that may fail in a row before the first pass

_CHILDREN = frozenset({"trainer", "pserver"})
_LOST: Mapping[str, frozenset[str]] = {
    "kill launcher": frozenset({"lost"}),
    "term launcher": frozenset({"stopped", "lost"}),  # lost: the signal came before the launcher handles signals
    "delete pod": frozenset({"stopped"}),
    "force delete pod": frozenset({"stopped", "lost"}),
}


def names_a_cause(story: Story) -> Iterator[str]:
    """Each launcher that was not killed has written why it ended, to standard error and to Kubernetes."""
    for word in _NEVER:
        if word in story.said:
            line = next(line for line in story.said.splitlines() if word in line)
            yield f"a launcher has logged {line!r}"
    for end in story.ends:
        if end.struck:
            continue
        last = _LAST.fullmatch(end.last)
        if not (last and int(last[1]) == end.code):
            yield f"{end.pod} ended with {end.code}, and its last line is {end.last!r}"
        if not re.match(rf"exit code {end.code}: \S", end.termination):
            yield f"{end.pod} ended with {end.code}, and its termination message is {end.termination[:200]!r}"
        elif "unknown" in end.termination.partition("\n")[0]:
            yield f"{end.pod} names no cause: {end.termination[:200]!r}"


def fits(story: Story) -> Iterator[str]:
    """Each first cause in job.json is a fault that was injected into that member."""
    for one in history(story):
        cause = one["first_cause"]
        if cause and not _was_done(story, cause["kind"], _number(story, cause)):
            whose = f"{cause['kind']!r} of rank {cause['rank']}"
            yield f"generation {one['number']} ended by {whose}, but no such fault was injected: {cause['what']}"


def names_a_hang(story: Story) -> Iterator[str]:
    """A trainer that hangs after two passes is named as a stall, within twice the limit."""
    if len(story.effective) != 1 or not (hangs := _of(story, HANGS)):
        return
    begun_at = hangs[0].at_clock
    saved = [stamp.at for stamp in traces.stamps(story.stamps) if stamp.word == "saved"]
    before = sum(at < begun_at - _LATE for at in saved)
    if before < 2 or sum(at < begun_at + _LATE for at in saved) == story.plan.passes:
        return  # before two passes are done and after the last one there is no limit
    if not any((one["first_cause"] or {}).get("kind") == "stalled" for one in history(story)):
        yield f"{hangs[0]}: no generation ended as stalled"
        return
    later = [run.first for run in traces.runs(story.stamps) if run.first > begun_at + _LATE]
    if later and min(later) - begun_at > _TWICE * 10**9:
        yield f"{hangs[0]}: the next generation began {(min(later) - begun_at) / 1e9:.0f} s later"


def _number(story: Story, cause: Mapping[str, Any]) -> int | None:
    """Return the number of the pod at fault. In an elastic job, ranks are other numbers."""
    if not story.plan.begins or cause["rank"] is None:
        rank: int | None = cause["rank"]
        return rank
    return int(cause["pod"].split("-")[1])


def _was_done(story: Story, kind: str, rank: int | None) -> bool:
    if not story.complete and kind == "stopped":  # a failed Job stops all its other pods
        return True
    if story.plan.begins and kind == "resized":  # also after a pod was replaced
        return True
    return any(_can_cause(fault, kind, rank) for fault in story.effective)


def _can_cause(fault: Fault, kind: str, rank: int | None) -> bool:
    """Return whether this fault can be recorded as this cause.

    If messages are lost or the volume fails, the failure of another member may be reported first.
    """
    if fault.kind in ON_VOLUME:
        return True
    if fault.kind in HANGS:
        return kind == "stalled"
    if fault.kind == "shrink":
        return kind in ("stopped", "lost")  # lost: the signal came before the launcher handles signals
    if fault.kind in SILENT:
        return kind == "lost" or kind in _CHILDREN
    kinds = {fault.kind.split()[1]} if fault.kind in DEATHS else _LOST.get(fault.kind, frozenset())
    return kind in kinds and rank in (None, *fault.ranks)


def survived(story: Story) -> Iterator[str]:
    """A job completes if its faults are no more than its settings allow."""
    if not story.complete and not list(excuses(story)):
        yield "the job has failed, and none of its faults is a sufficient reason: " + "; ".join(map(str, story.done))


def excuses(story: Story) -> Iterator[str]:
    """Yield the reasons for which this job may have failed."""
    plan, struck = story.plan, story.effective
    deaths = [fault for fault in struck if fault.kind in DEATHS | HANGS]
    losses = [fault for fault in struck if fault.kind in LOSSES]
    beyond_reach = [fault for fault in struck if fault.kind in SILENT]
    silent = [fault for fault in beyond_reach if (fault.lasts or 0) > SILENCE - _MARGIN]
    rejoins = plan.max_restarts > 0 and plan.rejoin_timeout > 0
    counted = max(0, len(deaths) - plan.max_restarts)
    counted += sum(1 if rejoins else 2 for fault in losses if fault.kind == "kill launcher" or not rejoins)
    counted += 0 if rejoins else plan.members * len(beyond_reach)  # each member may end for its own reason
    if counted > plan.backoff_limit:
        yield f"{counted} pods may have failed, and the Job replaces {plan.backoff_limit}"
    if (losses or silent) and rejoins and plan.rejoin_timeout < 30:
        yield "members wait only a short time for a new pod"
    if len(deaths) + len(losses) + len(silent) >= _MOST_ATTEMPTS:
        yield f"{_MOST_ATTEMPTS} attempts may have failed before a first pass"
    if any(not _progress(story, one, other) for one, other in pairwise(_of(story, DEATHS | HANGS | LOSSES))):
        yield "two failures without progress between them"
    yield from _excuses_of_volume(story, bool(deaths or losses or silent))


def _excuses_of_volume(story: Story, others: bool) -> Iterator[str]:
    for fault in story.effective:
        if fault.kind in ON_VOLUME and _is_too_much(fault, story.plan.volume_timeout, others):
            yield f"no pass can be saved and no attempt can begin: {fault}"


def _is_too_much(fault: Fault, patience: int, others: bool) -> bool:
    """Return whether a fault of the volume may end the job. A job that trains waits for the end of a stall."""
    if fault.kind not in STALLS or others or fault.since == LAUNCH:
        return True
    return (fault.lasts or 0) > patience - 2


def _of(story: Story, kinds: frozenset[str]) -> list[Done]:
    return [done for done in story.done if done.what and done.fault.kind in kinds]


def _progress(story: Story, one: Done, other: Done) -> bool:
    """Return whether a pass was saved between two faults."""
    saved = (stamp.at for stamp in traces.stamps(story.stamps) if stamp.word == "saved")
    return any(one.at_clock < at < other.at_clock for at in saved)
