"""The state of a job and its members, from its Jobs and pods in the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from launcher.base import kube_pods
from launcher.base.host import address_order
from launcher.errors import Exit, Failure
from launcher.job import kueue
from launcher.job.spec import Json
from launcher.model import TRAINS, member_name, role_order

WAITING, RUNNING, COMPLETE, FAILED, SUSPENDED = "waiting", "running", "complete", "failed", "suspended"
RETRIES = "retries"  # all pods have failed, and Kubernetes makes new ones
GONE = "gone"  # a member of a job that has ended, and whose pod was deleted

SUBMIT_SECONDS = 30.0  # within this time, a submission releases its suspended Jobs
HALF_SUBMITTED = "only a part of the job was submitted: delete the job, then submit it again"

_MOST_TAIL = 10  # lines
_CONSEQUENCES = (Exit.COMPLETE, Exit.PEER_FAILED, Exit.STOPPED)
_MESSAGE = re.compile(r"exit code ([0-9]+): (.*)")
_EXIT_CODE = re.compile(r"exit code ([0-9]+)")
_DELETED = "Kubernetes has deleted its pod"
_ENDS = {"Complete": COMPLETE, "SuccessCriteriaMet": COMPLETE, "Failed": FAILED, "FailureTarget": FAILED}


@dataclass(frozen=True)
class MemberState:
    """The state of one member, from its newest pod. `pod` is empty if the member has no pod."""

    role: str
    rank: int
    pod: str
    phase: str
    since: str = ""
    exit_code: int | None = None
    what: str = ""  # what the member waits for, or how it ended
    container: str = ""  # the container that trains or serves

    @property
    def name(self) -> str:
        """`rank 1`, or with roles `trainer 1`, `pserver 0` or `heter worker 0`."""
        return member_name(self.role, self.rank)

    @property
    def trains(self) -> bool:
        return self.role in TRAINS


@dataclass(frozen=True)
class JobState:
    """The state of a job. `exit_code` and `cause`: set once its end is known. `ended`: all of its Jobs have ended.

    tail: the last lines of the process that failed first
    submitted: whether `submit` has made it
    queue: the queue in which Kueue holds the suspended job, or ""
    """

    name: str
    namespace: str
    phase: str
    members: tuple[MemberState, ...]
    exit_code: int | None = None
    cause: str = ""
    ended: bool = False
    tail: tuple[str, ...] = ()
    submitted: bool = True
    queue: str = ""

    @property
    def is_half_submitted(self) -> bool:
        """Whether only a part of it was submitted, if it stays so for SUBMIT_SECONDS."""
        return self.submitted and self.phase == SUSPENDED and not self.queue and self.exit_code is None


@dataclass(frozen=True)
class Part:
    """A Job or StatefulSet of a job: the object of the API, the role of its pods, and how many members it has."""

    seen: Json
    role: str
    members: int


@dataclass
class PodHistory:
    """All pods that a job has had, by uid. Kubernetes deletes most pods of a failed Job."""

    pods: dict[str, Json] = field(default_factory=dict)

    def add(self, pods: Iterable[Json]) -> list[Json]:
        """Add pods, and return all pods that are known."""
        for pod in pods:
            self.pods[pod["metadata"]["uid"]] = pod
        return list(self.pods.values())

    def end_of_removed(self, last: JobState) -> JobState:
        """Return the final state of a job whose Jobs are gone. A TTL may remove Jobs as soon as they end.

        Raises Failure if the job was deleted before it ended.
        """
        codes = [member.exit_code for member in last.members]
        if all(code == Exit.COMPLETE for code in codes if code is not None) and None in codes:
            raise Failure(Exit.NO_INPUT, f"{last.name} was deleted before it ended")
        if not any(codes):
            return replace(last, phase=COMPLETE, exit_code=int(Exit.COMPLETE), ended=True)
        code, cause = _first_cause(self.pods.values(), [])
        return replace(last, phase=FAILED, exit_code=code, cause=cause, ended=True, tail=_tail(self.pods.values()))


def state_of(name: str, namespace: str, parts: Sequence[Part], pods: Sequence[Json], *, submitted: bool) -> JobState:
    """Return the state of a job from its Jobs or StatefulSets, and their pods."""
    newest = _newest(pods)
    parts = sorted(parts, key=lambda part: role_order(part.role))
    members = [_member(part.role, rank, pod) for part in parts for rank, pod in enumerate(_pods_by_rank(part, newest))]
    jobs = [part.seen for part in parts]
    conditions = [condition for job in jobs for condition in conditions_of(job)]
    phase = _phase(jobs, conditions, members)
    if phase in (COMPLETE, FAILED):
        members = [member if member.pod else replace(member, phase=GONE, what=_DELETED) for member in members]
    queue = kueue.holding_queue(jobs) if phase == SUSPENDED else ""
    if queue:
        members = [member if member.pod else replace(member, what=f"in queue {queue} of Kueue") for member in members]
    ended = all(_has_ended(job) for job in jobs)
    state = JobState(name, namespace, phase, tuple(members), ended=ended, submitted=submitted, queue=queue)
    if phase == COMPLETE:
        return replace(state, exit_code=int(Exit.COMPLETE))
    if phase == FAILED:
        code, cause = _first_cause(pods, conditions)
        return replace(state, exit_code=code, cause=cause, tail=_tail(pods))
    return state


def _newest(pods: Iterable[Json]) -> dict[tuple[str, int | str], Json]:
    """Return the newest pod for each index of each Job or StatefulSet. Pods without an index: all, by their names."""
    newest: dict[tuple[str, int | str], Json] = {}
    for pod in sorted(pods, key=_created):
        index, owner = kube_pods.pod_number(pod), kube_pods.controller_reference(pod)
        newest[str(owner.get("name")), pod["metadata"]["name"] if index is None else index] = pod
    return newest


def _pods_by_rank(part: Part, newest: Mapping[tuple[str, int | str], Json]) -> list[Json | None]:
    """Return the pod of each member, or None. Pods without an index have the order of their addresses, as in `run`."""
    own = {key: pod for (owner, key), pod in newest.items() if owner == part.seen["metadata"]["name"]}
    if any(isinstance(key, int) for key in own):
        return [own.get(rank) for rank in range(part.members)]
    last = sorted(own.values(), key=lambda pod: (end_of(pod) is None, _created(pod)))[-part.members :]
    found: list[Json | None] = [*sorted(last, key=_address)]
    return found + [None] * (part.members - len(found))


def _created(pod: Json) -> str:
    return str(pod["metadata"].get("creationTimestamp"))


def _address(pod: Json) -> tuple[int, int, int]:
    address = (pod.get("status") or {}).get("podIP")
    return (0, *address_order(address)) if address else (1, 0, 0)


def _member(role: str, rank: int, pod: Json | None) -> MemberState:
    if pod is None:
        return MemberState(role, rank, "", WAITING, what="has no pod")
    name, container = pod["metadata"]["name"], kube_pods.main_container(pod)["name"]
    terminated = end_of(pod)
    if terminated:
        code = terminated.get("exitCode")
        phase = COMPLETE if code == 0 else FAILED
        what = _first_line(terminated.get("message")) or kube_pods.describe_end(pod)
        return MemberState(role, rank, name, phase, terminated.get("finishedAt") or "", code, what, container)
    if (pod.get("status") or {}).get("phase") == "Failed":  # such as a pod that was evicted before it started
        return MemberState(role, rank, name, FAILED, what=kube_pods.describe_end(pod), container=container)
    running = (kube_pods.main_container_status(pod).get("state") or {}).get("running")
    if running is not None:
        what = "is being deleted" if pod["metadata"].get("deletionTimestamp") else ""
        return MemberState(role, rank, name, RUNNING, running.get("startedAt") or "", what=what, container=container)
    created = pod["metadata"].get("creationTimestamp") or ""
    return MemberState(role, rank, name, WAITING, created, what=kube_pods.describe_wait(pod), container=container)


def end_of(pod: Json) -> Json | None:
    """Return how the main container has ended, as the API shows it, or None."""
    terminated: Json | None = (kube_pods.main_container_status(pod).get("state") or {}).get("terminated")
    return terminated


def conditions_of(job: Json) -> list[Json]:
    """Return the conditions whose status is True."""
    return [each for each in (job.get("status") or {}).get("conditions") or [] if each.get("status") == "True"]


def _has_ended(job: Json) -> bool:
    return any(condition["type"] in ("Complete", "Failed") for condition in conditions_of(job))


def end_phase(job: Json) -> str:
    """Return COMPLETE or FAILED if the end of the Job is known, else ""."""
    ends = {_ENDS[condition["type"]] for condition in conditions_of(job) if condition["type"] in _ENDS}
    return FAILED if FAILED in ends else COMPLETE if ends else ""


def _phase(jobs: Sequence[Json], conditions: Sequence[Json], members: Sequence[MemberState]) -> str:
    ends = {_ENDS[condition["type"]] for condition in conditions if condition["type"] in _ENDS}
    if FAILED in ends:
        return FAILED
    if all(any(condition["type"] in _ENDS for condition in conditions_of(job)) for job in jobs):
        return COMPLETE
    if any(job["spec"].get("suspend") for job in jobs):
        return SUSPENDED
    if members and all(member.phase == FAILED for member in members):
        return RETRIES
    return WAITING if any(member.phase == WAITING for member in members) else RUNNING


def _first_cause(pods: Iterable[Json], conditions: Sequence[Json]) -> tuple[int, str]:
    return first_cause(_ends(pods), conditions)


def _tail(pods: Iterable[Json]) -> tuple[str, ...]:
    """Return the last lines of the process that failed first, from the message of its pod."""
    end = next(iter(_causes(_ends(pods))), None)
    lines = str((end or {}).get("message") or "").strip().splitlines()[1:]
    return tuple(line for line in lines if line.strip())[-_MOST_TAIL:]


def _ends(pods: Iterable[Json]) -> list[Json]:
    return [end for end in map(end_of, _newest(pods).values()) if end]


def _causes(ends: Iterable[Json]) -> list[Json]:
    """Return the ends that are no consequence of another one, the first cause first."""
    causes = [end for end in ends if end.get("exitCode") not in _CONSEQUENCES]
    # Times are in whole seconds, so codes that may be the consequence of another failure come last.
    return sorted(
        causes, key=lambda end: (end.get("exitCode") in (Exit.PEER_LOST, Exit.GIVEN_UP), str(end.get("finishedAt")))
    )


def first_cause(ends: Iterable[Json], conditions: Sequence[Json]) -> tuple[int, str]:
    """Return exit code and reason of the first failure, which may be "".

    If the pod that failed first is gone, the other pods' messages and the Jobs' conditions name it.

    ends: how the main containers of the pods have ended, as the API shows it
    """
    ends = sorted(ends, key=lambda end: str(end.get("finishedAt")))
    for end in _causes(ends):
        return int(end["exitCode"]), _reason_of_end(end)
    failed = [condition for condition in conditions if _ENDS.get(condition["type"]) == FAILED]
    reasons = "; ".join(dict.fromkeys(map(_reason_of_condition, failed)))
    code = next((int(match[1]) for each in failed if (match := _EXIT_CODE.search(each.get("message") or ""))), None)
    for end in ends:
        if end.get("exitCode") == Exit.PEER_FAILED:
            return Exit.PEER_FAILED if code is None else code, _reason_of_end(end)
    return Exit.PEER_FAILED if code is None else code, reasons


def _reason_of_condition(condition: Mapping[str, str]) -> str:
    return ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)


def _reason_of_end(end: Json) -> str:
    line = _first_line(end.get("message"))
    match = _MESSAGE.fullmatch(line)
    return match[2] if match else line or f"exit code {end.get('exitCode')}: {end.get('reason')}"


def _first_line(message: str | None) -> str:
    return (message or "").strip().partition("\n")[0]
