"""The log of one member, complete and in order, even if the connection is cut."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import Refused
from launcher.errors import Exit, Failure
from launcher.job.lookup import read_state
from launcher.job.outage import OutageLimit
from launcher.job.state import GONE, HALF_SUBMITTED, SUBMIT_SECONDS, WAITING, JobState, MemberState
from launcher.model import BOTH, TRAINER, role_name

_POLL_SECONDS = 1.0
_OUTAGE_SECONDS = 60.0
_TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\dT")  # a node without free inotify watches adds a line without a timestamp


def read_log(client: KubeClient, job: str, rank: int, *, role: str, follow: bool) -> Iterator[str]:
    """Yield the lines that the member has printed.

    If `follow` is true, wait until the member has started, and yield lines until the member ends.
    """
    member = _started_member(client, job, rank, role, wait=follow)
    newest, outage = b"", OutageLimit(_OUTAGE_SECONDS)
    while True:
        # sinceTime counts in whole seconds, so lines that were read before are skipped by their exact time.
        known, query = newest, {"timestamps": "true"} | ({"sinceTime": newest.decode()} if newest else {})
        try:
            for line in client.log(member.pod, member.container, query, follow=follow):
                outage.answered()
                timestamp, _, text = line.partition(b" ")
                if not _TIMESTAMP.match(timestamp):
                    yield line.decode(errors="replace")
                elif timestamp > known:
                    newest = timestamp
                    yield text.decode(errors="replace")
            if not follow or not _is_running(client, member):
                return
            outage.answered()
        except Refused as refused:
            raise Failure(Exit.NO_INPUT, f"{member.name} ({member.pod}) of {job}: {refused.message}") from None
        except Failure as failure:
            if not follow:
                raise
            outage.bear(failure)
        time.sleep(_POLL_SECONDS)


def _started_member(client: KubeClient, job: str, rank: int, role: str, *, wait: bool) -> MemberState:
    """Wait until the member has started, and return its state. Print to standard error what the member waits for.

    Raises Failure if the member has not started and `wait` is false, or if it will never start.
    """
    outage, last_reason = OutageLimit(_OUTAGE_SECONDS), ""
    begun = time.monotonic()
    while True:
        try:
            state = read_state(client, job)
        except Failure as failure:
            outage.bear(failure)
            time.sleep(_POLL_SECONDS)
            continue
        outage.answered()
        member = _member(state, rank, role)
        if member.phase not in (WAITING, GONE):
            return member
        reason = _why_waiting(state, member)
        is_stuck = state.is_half_submitted and time.monotonic() - begun > SUBMIT_SECONDS
        if not wait or is_stuck or state.exit_code is not None:
            raise Failure(Exit.NO_INPUT, f"{member.name} of {job} has no log: {reason}")
        if reason != last_reason:
            print(f"{member.name} of {job} has no log yet: {reason}", file=sys.stderr, flush=True)
            last_reason = reason
        time.sleep(_POLL_SECONDS)


def _member(state: JobState, rank: int, role: str) -> MemberState:
    members = [member for member in state.members if (member.role if member.role != BOTH else TRAINER) == role]
    if 0 <= rank < len(members):
        return members[rank]
    kind = f"{role_name(role)}s"
    if not members:
        raise Failure(Exit.USAGE, f"{state.name} has no {kind}")
    raise Failure(Exit.USAGE, f"{state.name} has {len(members)} {kind}: expected a rank from 0 to {len(members) - 1}")


def _why_waiting(state: JobState, member: MemberState) -> str:
    if state.exit_code:
        return f"Kubernetes deletes most pods of a failed Job; exit code {state.exit_code}: {state.cause}"
    if state.is_half_submitted:
        return HALF_SUBMITTED
    return member.what or "its container is being created"


def _is_running(client: KubeClient, member: MemberState) -> bool:
    pod = client.get("Pod", member.pod)
    return pod is not None and "running" in (kube_pods.main_container_status(pod).get("state") or {})
