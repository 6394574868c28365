"""How a job is, from its Jobs and pods as the cluster has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from launcher.base import kube_pods
from launcher.errors import Exit, Failure
from launcher.job.access import Access
from launcher.job.pod_template import JOB, ROLE
from launcher.job.spec import Json
from launcher.model import PSERVER, member_name

WAITING, RUNNING, COMPLETE, FAILED, SUSPENDED = "waiting", "running", "complete", "failed", "suspended"

SUBMITTED = 30.0  # seconds in which a submission lets its Jobs go
HALFWAY = "not submitted as a whole: delete it, and submit it again"

_CONSEQUENCES = (Exit.COMPLETE, Exit.PEER_FAILED, Exit.STOPPED)
_MESSAGE = re.compile(r"exit code ([0-9]+): (.*)")
_CODE = re.compile(r"exit code ([0-9]+)")
_ENDS = {"Complete": COMPLETE, "SuccessCriteriaMet": COMPLETE, "Failed": FAILED, "FailureTarget": FAILED}


@dataclass(frozen=True)
class MemberState:
    """One pod of the job, the newest with its number; `pod` is empty where there is none."""

    role: str
    rank: int
    pod: str
    phase: str
    since: str = ""
    exit_code: int | None = None
    what: str = ""  # what it waits for, or how it ended
    container: str = ""  # the one that trains or serves

    @property
    def name(self) -> str:
        """For people: `rank 1`, `trainer 1`, `pserver 0`."""
        return member_name(self.role, self.rank)

    @property
    def trains(self) -> bool:
        """Whether it is more than a server."""
        return self.role != PSERVER


@dataclass(frozen=True)
class JobState:
    """A job as a whole. `exit_code` and `cause` are there once it has ended; a Job that still ends has not `ended`."""

    name: str
    namespace: str
    phase: str
    members: tuple[MemberState, ...]
    exit_code: int | None = None
    cause: str = ""
    ended: bool = False


@dataclass
class Seen:
    """Pods by their uids, also those that Kubernetes has deleted since: of a failed Job it keeps hardly any."""

    pods: dict[str, Json] = field(default_factory=dict)

    def add(self, pods: Iterable[Json]) -> list[Json]:
        """All that were ever there; a pod keeps how it ended."""
        for pod in pods:
            self.pods[pod["metadata"]["uid"]] = pod
        return list(self.pods.values())

    def end(self, last: JobState) -> JobState:
        """How a job ended whose Jobs are not there any more, as those are that Kubernetes removes at their end."""
        codes = [member.exit_code for member in last.members]
        if all(code == Exit.COMPLETE for code in codes if code is not None) and None in codes:
            raise Failure(Exit.NO_INPUT, f"{last.name} was deleted while it was waited for")
        if not any(codes):
            return replace(last, phase=COMPLETE, exit_code=int(Exit.COMPLETE), ended=True)
        code, cause = _first_cause(self.pods.values(), [])
        return replace(last, phase=FAILED, exit_code=code, cause=cause, ended=True)


def look(access: Access, name: str, seen: Seen | None = None) -> JobState:
    """The job's state now; a Failure where there is no such job."""
    jobs = access.list("Job", f"{JOB}={name}")
    if not jobs:
        raise no_such_job(access, name)
    there = access.list("Pod", f"{JOB}={name}")
    return of(name, access.namespace, jobs, seen.add(there) if seen else there)


def no_such_job(access: Access, name: str) -> Failure:
    """With where to look for it."""
    return Failure(
        Exit.NO_INPUT,
        f"{name}: there is no such job in namespace {access.namespace}: `kubectl get jobs -A -l {JOB}` has all",
    )


def of(name: str, namespace: str, jobs: Sequence[Json], pods: Sequence[Json]) -> JobState:
    """The state, from objects: trainers first, each role in the order of its ranks."""
    newest = _newest(pods)
    members = [
        _member(_role(job), rank, newest.get((job["metadata"]["name"], rank)))
        for job in sorted(jobs, key=lambda job: _role(job) == PSERVER)
        for rank in range(job["spec"].get("completions") or 1)
    ]
    conditions = [condition for job in jobs for condition in _conditions(job)]
    phase = _phase(jobs, conditions, members)
    made = JobState(name, namespace, phase, tuple(members), ended=all(_has_ended(job) for job in jobs))
    if phase == COMPLETE:
        return replace(made, exit_code=int(Exit.COMPLETE))
    if phase == FAILED:
        code, cause = _first_cause(pods, conditions)
        return replace(made, exit_code=code, cause=cause)
    return made


def _newest(pods: Iterable[Json]) -> dict[tuple[str, int], Json]:
    """Of each number of each Job the pod that was made last."""
    found: dict[tuple[str, int], Json] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        number, owner = kube_pods.number(pod), kube_pods.owner(pod)
        if number is not None:
            found[str(owner.get("name")), number] = pod
    return found


def _role(job: Json) -> str:
    return str(job["metadata"]["labels"].get(ROLE))


def _member(role: str, rank: int, pod: Json | None) -> MemberState:
    if pod is None:
        return MemberState(role, rank, "", WAITING, what="has no pod")
    name, container = pod["metadata"]["name"], kube_pods.own_container_spec(pod)["name"]
    ended = _terminated(pod)
    if ended:
        code = ended.get("exitCode")
        phase = COMPLETE if code == 0 else FAILED
        what = _first_line(ended.get("message")) or kube_pods.became(pod)
        return MemberState(role, rank, name, phase, ended.get("finishedAt") or "", code, what, container)
    if (pod.get("status") or {}).get("phase") == "Failed":  # evicted before its container had started, say
        return MemberState(role, rank, name, FAILED, what=kube_pods.became(pod), container=container)
    running = (kube_pods.own_container(pod).get("state") or {}).get("running")
    if running is not None:
        what = "is being deleted" if pod["metadata"].get("deletionTimestamp") else ""
        return MemberState(role, rank, name, RUNNING, running.get("startedAt") or "", what=what, container=container)
    created = pod["metadata"].get("creationTimestamp") or ""
    return MemberState(role, rank, name, WAITING, created, what=kube_pods.waits_for(pod), container=container)


def _terminated(pod: Json) -> Json | None:
    ended: Json | None = (kube_pods.own_container(pod).get("state") or {}).get("terminated")
    return ended


def _conditions(job: Json) -> list[Json]:
    return [each for each in (job.get("status") or {}).get("conditions") or [] if each.get("status") == "True"]


def _has_ended(job: Json) -> bool:
    return any(condition["type"] in ("Complete", "Failed") for condition in _conditions(job))


def _phase(jobs: Sequence[Json], conditions: Sequence[Json], members: Sequence[MemberState]) -> str:
    ends = {_ENDS[condition["type"]] for condition in conditions if condition["type"] in _ENDS}
    if FAILED in ends:
        return FAILED
    if all(any(condition["type"] in _ENDS for condition in _conditions(job)) for job in jobs):
        return COMPLETE
    if any(job["spec"].get("suspend") for job in jobs):
        return SUSPENDED
    return WAITING if any(member.phase == WAITING for member in members) else RUNNING


def _first_cause(pods: Iterable[Json], conditions: Sequence[Json]) -> tuple[int, str]:
    """Code and words of the pod that is no other's consequence; else what a consequence or Kubernetes says of it."""
    newest = _newest(pods).values()
    ended = sorted(filter(None, map(_terminated, newest)), key=lambda end: str(end.get("finishedAt")))
    causes = [end for end in ended if end.get("exitCode") not in _CONSEQUENCES]
    # These may be said because of another one, and times are in whole seconds.
    causes.sort(key=lambda end: end.get("exitCode") in (Exit.PEER_LOST, Exit.GIVEN_UP))
    for end in causes:
        return int(end["exitCode"]), _text(end)
    told = [each for each in conditions if _ENDS.get(each["type"]) == FAILED]
    said = "; ".join(dict.fromkeys(_said(condition) for condition in told))
    code = next((int(match[1]) for each in told if (match := _CODE.search(each.get("message") or ""))), None)
    for end in ended:
        if end.get("exitCode") == Exit.PEER_FAILED:
            return Exit.PEER_FAILED if code is None else code, _text(end)
    return Exit.PEER_FAILED if code is None else code, said


def _said(condition: Mapping[str, str]) -> str:
    return ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)


def _text(end: Json) -> str:
    line = _first_line(end.get("message"))
    match = _MESSAGE.fullmatch(line)
    return match[2] if match else line or f"exit code {end.get('exitCode')}: {end.get('reason')}"


def _first_line(message: str | None) -> str:
    return (message or "").strip().partition("\n")[0]
