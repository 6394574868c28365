"""Select the pods of a view that belong to the job, and decide whether they are enough to join.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from launcher.base.host import address_order
from launcher.base.kube_pods import ENDED, LEAVING, LIVE, Pod
from launcher.discovery.finder import LEADING, FinderSettings
from launcher.discovery.ranks import are_numbered, make_roster
from launcher.discovery.view import View
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.model import BOTH, COUNT_VARIABLE, TRAINS, Member, Peers, role_name


def choose_peers(view: View, settings: FinderSettings) -> Peers | None:
    """Return the peers, or None if the view does not show enough to join. Raises Failure if a number is not valid."""
    me = own_pod(view, settings)
    if me is None or not view.is_listed:
        return None
    _check_number(me, view.pods[me.uid].number, settings)
    pods = [pod for pod in pods_of_job(view, settings, me) if _has_place(pod)]
    numbered = are_numbered([_member(pod, settings) for pod in [*pods, me]])
    if settings.any_leads:
        return _with_lower(pods, me, settings)
    hub = _numbered_hub(pods, me) if numbered else _first_of_all(pods, settings)
    if hub is None or me not in pods:
        return None
    return Peers(
        me=_member(me, settings, me.uid),
        hub=None if hub == me.uid else view.pods[hub].address,
        identity=me.job,
        rank=me.number,
    )


def _with_lower(pods: list[Pod], me: Pod, settings: FinderSettings) -> Peers | None:
    """Return the peers of a member of an elastic job, with all trainers that come before it."""
    newest = newest_per_number(pods)
    if me not in newest:
        return None
    trainers = [_member(pod, settings) for pod in newest if pod.role in TRAINS and pod != me]
    own = _member(me, settings, me.uid)
    before = sorted((each for each in trainers if _place(each) < _place(own)), key=_place)
    lower = tuple(member.address for member in before[:LEADING])
    return Peers(me=own, hub=lower[0] if lower else None, identity=me.job, rank=me.number, lower=lower)


def _place(member: Member) -> tuple[bool, int, int]:
    """Return the sort key: trainers first, then by number, or by address without numbers."""
    return (member.role not in TRAINS, *(address_order(member.address) if member.rank is None else (0, member.rank)))


def present_members(view: View, settings: FinderSettings) -> list[Member]:
    """Return the members whose pods are live and have an address, one member per number."""
    return [_member(pod, settings, view.own) for pod in _present(view, settings)]


def all_run(view: View, settings: FinderSettings) -> bool:
    """Return whether the pods of all members run. When all pods run, the view is no longer needed."""
    pods = _present(view, settings)
    return len(pods) == settings.size and all(map(runs, pods))


def other_role_job(view: View, role: str) -> str | None:
    """Return the identity of the pods of another role, or None if the view has no such pods.

    If these pods have several identities, prefer those with live pods. Among these, take the newest.
    """
    jobs: dict[str, list[Pod]] = {}
    for pod in view.pods.values():
        if pod.role == role and pod.job:
            jobs.setdefault(pod.job, []).append(pod)

    def age(job: str) -> tuple[bool, str]:
        return any(pod.state == LIVE for pod in jobs[job]), min(pod.created for pod in jobs[job])

    return max(jobs, key=age, default=None)


def other_role_failure(view: View, settings: FinderSettings, role: str) -> str:
    """Return which pod of another role has failed for good, and how.

    Return "" if there is no such pod, or if all pods of that role are live.
    """
    me = own_pod(view, settings)
    pods = pods_of_job(view, settings, me) if me and view.is_listed else []
    others = [pod for pod in pods if pod.role == role]
    if sum(pod.state == LIVE for pod in others) >= settings.shape.count(role):
        return ""
    failed = [pod for pod in newest_per_number(others) if pod.state == ENDED and pod.exit_code in FOR_GOOD]
    return f"pod {failed[0].name} has ended: {failed[0].reason}" if failed else ""


def own_pod(view: View, settings: FinderSettings) -> Pod | None:
    """Return this pod, or None if it is not known yet.

    Unless this pod is being deleted, it counts as live, even if the API server does not show yet that it runs. If
    POD_IP is set, POD_IP is the address of this pod.
    """
    me = view.pods.get(view.own or "")
    if me is None:
        return None
    me = _with_rank(me, settings, settings.role)
    address = settings.pod_ip or me.address
    if me.number is not None:  # its number decides the rank, so any of its addresses will do
        address = address or settings.training_address
    return replace(me, address=address, state=LEAVING if me.state == LEAVING else LIVE, reason="")


def pods_of_job(view: View, settings: FinderSettings, me: Pod) -> list[Pod]:
    """Return the pods of this job, with `number` set to the rank in the gang.

    Leave out pods of an older job, pods of another revision of a StatefulSet, and pods whose number is too high.
    """
    jobs = {role: other_role_job(view, role) for role in settings.shape.roles} | {settings.role: me.job}
    found = []
    for pod in view.pods.values():
        role = settings.role if pod.uid == me.uid or settings.role == BOTH else pod.role
        if role not in jobs or pod.job != jobs[role]:
            continue
        if pod.number is None or pod.number < settings.shape.count(role):
            found.append(me if pod.uid == me.uid else _with_rank(pod, settings, role))
    return found


def runs(pod: Pod) -> bool:
    """Return whether the pod runs. A pod whose image cannot be pulled may have an address, but does not run."""
    return _has_place(pod) and not pod.reason


def newest_per_number(pods: Iterable[Pod]) -> list[Pod]:
    """Return the newest pod of each number, and all pods without a number. A live pod counts as the newest."""
    newest: dict[int | str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (_has_place(pod), pod.state == LIVE, pod.created, pod.uid)):
        newest[pod.uid if pod.number is None else pod.number] = pod
    return list(newest.values())


def by_role(pods: list[Pod], settings: FinderSettings) -> dict[str, tuple[list[Pod], int]]:
    """Return for each role: its pods, and how many pods the role should have."""
    shape = settings.shape
    return {role: ([pod for pod in pods if pod.role == role], shape.count(role)) for role in shape.roles}


def _with_rank(pod: Pod, settings: FinderSettings, role: str) -> Pod:
    """Return a copy of the pod, with the rank in the gang as `number`. In `pod`, `number` counts within the role."""
    return replace(pod, role=role, number=None if pod.number is None else settings.shape.rank(role, pod.number))


def _has_place(pod: Pod) -> bool:
    return pod.state == LIVE and bool(pod.address)


def _present(view: View, settings: FinderSettings) -> list[Pod]:
    me = own_pod(view, settings)
    return newest_per_number(pod for pod in pods_of_job(view, settings, me) if _has_place(pod)) if me else []


def _member(pod: Pod, settings: FinderSettings, own: str | None = None) -> Member:
    training = settings.training_address if pod.uid == own else ""
    return Member(pod.name, pod.uid, pod.address, training or pod.address, pod.number, pod.role)


def _check_number(me: Pod, number: int | None, settings: FinderSettings) -> None:
    count = settings.shape.count(settings.role)
    if number is None and settings.needs_numbers:
        raise Failure(
            Exit.CONFIG,
            f"pod {me.name} has no number, and an elastic job without a volume needs numbers (CONF_PADDLE_GRADIENT_NUM "
            "is LEAST:MOST): use an Indexed Job (`completionMode: Indexed`) or a StatefulSet, or set JOB_PATH",
        )
    if number is not None and number >= count:
        members = "members" if settings.role == BOTH else f"{role_name(settings.role)}s"
        raise Failure(
            Exit.CONFIG,
            f"pod {me.name} has number {number}, but the job has only {count} {members}, numbered from 0: "
            f"set {COUNT_VARIABLE[settings.role]} to the number of pods",
        )
    if settings.rank is not None and settings.rank != me.number:
        fact = (
            f"pod {me.name} has no number from Kubernetes"
            if number is None
            else f"Kubernetes gave pod {me.name} the number {number}, and the other members use that number"
        )
        raise Failure(
            Exit.CONFIG,
            f"LAUNCHER_RANK is {settings.shape.number(settings.rank)}, but {fact}: "
            "unset LAUNCHER_RANK, or use LAUNCHER_DISCOVERY=dns or static",
        )


def _numbered_hub(pods: list[Pod], me: Pod) -> str | None:
    newest = {pod.number: pod.uid for pod in newest_per_number(pods)}
    return newest.get(0) if newest.get(me.number) == me.uid else None


def _first_of_all(pods: list[Pod], settings: FinderSettings) -> str | None:
    if any(len(of_role) != count for of_role, count in by_role(pods, settings).values()):
        return None
    return make_roster([_member(pod, settings) for pod in pods]).members[0].uid
