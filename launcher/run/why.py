"""Explain what a running job does, or what it waits for, to a user who asks: `paddle-launcher why`."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.base import referral
from launcher.gang import Gang
from launcher.gang.grouping import Group, few, groups, seconds, summary
from launcher.model import Roster, Shape, role_name
from launcher.run.node import Node

_MAX_GROUPS = 20
_ANSWER_WITHIN = 4.0  # seconds for the answers of all members; more in large gangs


async def explain(node: Node, gang: Gang) -> str:
    """Return a text: where the processes of all members are. The text of a member that is not the hub names the hub."""
    roster = node.roster
    if roster is None or node.rank is None:
        return _describe_join(gang)
    if node.rank != 0:
        return referral.to_hub(roster.members[0].pod)
    if node.snapshot().phase == "ending":  # no member answers any more
        return f"{_head(node)}; all processes are being ended, and the log of each pod says why"
    reports = await gang.survey(_ANSWER_WITHIN)
    head = _head(node)
    if reports is None:  # this gang has ended, and perhaps the next one is being formed
        if node.snapshot().phase != "gathering":
            return head
        joins = _describe_join(gang)
        return joins if referral.is_referral(joins) else f"{head}; {joins}"
    found = groups(reports, node.shape)
    lines = [f"{head}, {node.shape.size} members", *_describe_newcomers(gang), summary(reports, node.shape)]
    if advice := _advise(found, node.shape, roster):
        lines.append(advice)
    for group in found[:_MAX_GROUPS]:
        lines += ["", *_describe(group, node.shape, roster)]
    if len(found) > _MAX_GROUPS:
        lines += ["", f"and {len(found) - _MAX_GROUPS} more places"]
    return "\n".join(lines)


def _head(node: Node) -> str:
    now = node.snapshot()
    return f"{node.job or 'this job'}: generation {now.generation or 0}, {now.phase} since {now.since}"


def _describe_join(gang: Gang) -> str:
    missing = gang.missing()
    if missing is None:
        return "looking for the other pods"
    if missing.runs:
        return referral.of_newcomer(str(missing))
    count, _, who = str(missing).partition("; ")
    return "; ".join(filter(None, [f"waiting for the other pods: {count} have joined", who]))


def _describe_newcomers(gang: Gang) -> list[str]:
    count = gang.newcomers()
    return [f"{count} more {'waits' if count == 1 else 'wait'} until the running pass is saved"] if count else []


def _advise(found: Sequence[Group], shape: Shape, roster: Roster) -> str:
    """Return which trainers are at another place than most trainers, or ""."""
    trainers = [group for group in found if group.role == "trainer"]
    if len(trainers) < 2 or 2 * len(trainers[0].ranks) <= shape.trainers:
        return ""
    others = sorted({rank for group in trainers[1:] for rank in group.ranks})
    return f"Look first at {_names(others, shape, roster)}: the other trainers may wait for it"


def _describe(group: Group, shape: Shape, roster: Roster) -> list[str]:
    if not group.role:
        return [f"{_names(group.ranks, shape, roster)}: {group.where}"]
    count = group.count
    lines = [
        f"{count} {role_name(group.role) if count == 1 else _plural(group.role)} in {group.where}",
        f"    {_names(group.ranks, shape, roster)}; last output {seconds(group.quiet)} ago",
    ]
    frame, with_frame = group.frames.most_common(1)[0]
    if frame not in ("", group.where):
        some = "" if with_frame == count else f", {with_frame} of them"
        lines.append(f"    innermost frame{some}: {frame}")
    return lines


def _plural(role: str) -> str:
    name = role_name(role)
    return name.replace("child", "children", 1) if name.startswith("child ") else f"{name}s"


def _names(ranks: list[int], shape: Shape, roster: Roster) -> str:
    if len(ranks) == 1:
        return f"{shape.name(ranks[0])} (pod {roster.members[ranks[0]].pod})"
    return few(ranks, shape.names)
