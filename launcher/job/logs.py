"""The log of one member, whole and in order, over cuts of the connection."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator

from launcher.base import kube_pods
from launcher.errors import Exit, Failure
from launcher.job.access import Access, Refused
from launcher.job.outage import Patience
from launcher.job.state import HALFWAY, SUBMITTED, SUSPENDED, WAITING, JobState, MemberState, look
from launcher.model import PSERVER

_POLL = 1.0
_AWAY = 60.0  # seconds that the API server may be away
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT")  # a node that is out of inotify watches says so without one


def lines(access: Access, job: str, rank: int, *, role: str, follow: bool) -> Iterator[str]:
    """What the member has printed, a line each. With `follow` it may still have to start, and is heard to its end."""
    member = _started(access, job, rank, role, wait=follow)
    newest, patience = b"", Patience(_AWAY)
    while True:
        # The API server goes on from a whole second only: what was had of it is known by its time, and left out.
        had, query = newest, {"timestamps": "true"} | ({"sinceTime": newest.decode()} if newest else {})
        try:
            for line in access.log(member.pod, member.container, query, follow=follow):
                patience.answered()
                stamp, _, text = line.partition(b" ")
                if not _STAMP.match(stamp):
                    yield line.decode(errors="replace")
                elif stamp > had:
                    newest = stamp
                    yield text.decode(errors="replace")
            if not follow or not _runs(access, member):
                return
            patience.answered()
        except Refused as refused:
            raise Failure(Exit.NO_INPUT, f"{member.name} ({member.pod}) of {job}: {refused.message}") from None
        except Failure as failure:
            if not follow:
                raise
            patience.bear(failure)
        time.sleep(_POLL)


def _started(access: Access, job: str, rank: int, role: str, *, wait: bool) -> MemberState:
    """Once it has; whoever waits is told for what, on standard error."""
    patience, told = Patience(_AWAY), ""
    begun = time.monotonic()
    while True:
        try:
            state = look(access, job)
        except Failure as failure:
            patience.bear(failure)
            time.sleep(_POLL)
            continue
        patience.answered()
        member = _member(state, rank, role)
        if member.phase != WAITING:
            return member
        why = _why(state, member)
        left = state.phase == SUSPENDED and time.monotonic() - begun > SUBMITTED
        if not wait or left or state.exit_code is not None:
            raise Failure(Exit.NO_INPUT, f"{member.name} of {job} has no log: {why}")
        if why != told:
            print(f"{member.name} of {job} has no log yet: {why}", file=sys.stderr, flush=True)
            told = why
        time.sleep(_POLL)


def _member(state: JobState, rank: int, role: str) -> MemberState:
    serves = role == PSERVER
    found = [member for member in state.members if (member.role == PSERVER) is serves]
    if not 0 <= rank < len(found):
        called = "servers" if serves else "trainers"
        raise Failure(Exit.USAGE, f"{state.name} has {len(found)} {called}: expected one of 0 to {len(found) - 1}")
    return found[rank]


def _why(state: JobState, member: MemberState) -> str:
    if state.exit_code:
        return f"Kubernetes deletes most pods of a failed Job; exit code {state.exit_code}: {state.cause}"
    if state.phase == SUSPENDED:
        return f"the job is {HALFWAY}"
    return member.what or "its container is being created"


def _runs(access: Access, member: MemberState) -> bool:
    pod = access.get("Pod", member.pod)
    return pod is not None and "running" in (kube_pods.own_container(pod).get("state") or {})
