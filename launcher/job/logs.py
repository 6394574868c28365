"""The log of one member, whole and in order, over cuts of the connection."""

from __future__ import annotations

import time
from collections.abc import Iterator

from launcher.errors import Exit, Failure
from launcher.job.access import Access, Refused, Unreachable
from launcher.job.state import SUSPENDED, WAITING, JobState, MemberState, look
from launcher.peers import explain
from launcher.roles import PSERVER

_POLL = 1.0
_PATIENCE = 60.0  # seconds that the API server may be away


def lines(access: Access, job: str, rank: int, *, role: str, follow: bool) -> Iterator[str]:
    """What the member has printed, a line each. With `follow` it may still have to start, and is heard to its end."""
    member = _started(access, job, rank, role, wait=follow)
    newest, away = b"", 0.0
    while True:
        # The API server goes on from a whole second only: what was had of it is known by its time, and left out.
        had, query = newest, {"sinceTime": newest.decode()} if newest else {}
        try:
            for line in access.log(member.pod, member.container, follow=follow, timestamps="true", **query):
                stamp, _, text = line.partition(b" ")
                if stamp > had:
                    newest, away = stamp, 0.0
                    yield text.decode(errors="replace")
            if not follow or not _runs(access, member):
                return
        except Unreachable:
            if not follow or away > _PATIENCE:
                raise
        except Refused as refused:
            raise Failure(Exit.NO_INPUT, f"{member.name} ({member.pod}) of {job}: {refused.message}") from None
        away += _POLL
        time.sleep(_POLL)


def _started(access: Access, job: str, rank: int, role: str, *, wait: bool) -> MemberState:
    while True:
        state = look(access, job)
        member = _member(state, rank, role)
        if member.phase not in (WAITING, SUSPENDED):
            return member
        if not wait or state.exit_code is not None:
            raise Failure(Exit.NO_INPUT, f"{member.name} of {job} has no log yet: {_why(state, member)}")
        time.sleep(_POLL)


def _member(state: JobState, rank: int, role: str) -> MemberState:
    serves = role == PSERVER
    found = [member for member in state.members if (member.role == PSERVER) is serves]
    if not 0 <= rank < len(found):
        called = "servers" if serves else "trainers"
        raise Failure(Exit.USAGE, f"{state.name} has {len(found)} {called}: expected one of 0 to {len(found) - 1}")
    return found[rank]


def _why(state: JobState, member: MemberState) -> str:
    if state.phase == SUSPENDED:
        return "the job is not submitted as a whole: delete it, and submit it again"
    return member.what or "its container is being created"


def _runs(access: Access, member: MemberState) -> bool:
    pod = access.get("Pod", member.pod)
    return pod is not None and "running" in (explain.own_container(pod).get("state") or {})
