"""Describe which members are missing in a view, and why. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from launcher.base.kube_pods import ENDED, LEAVING, LIVE, Pod
from launcher.discovery.finder import FinderSettings
from launcher.discovery.selection import by_role, newest_per_number, own_pod, pods_of_job, runs
from launcher.discovery.view import View
from launcher.model import BOTH, role_name

_SHOWN = 5  # how many missing pods a message names; it only counts the others


def describe_missing(view: View, settings: FinderSettings, joined: Collection[str] | None = None) -> str:
    """Return which members are missing and why.

    joined: names or uids of the pods that have joined. If it is None, a pod that runs is not missing. Then the text
        also says how many pods run, if the view has all pods.
    """
    me = own_pod(view, settings)
    if not view.is_listed or me is None:
        said = [_without_own_pod(view, settings)]
    else:
        pods = pods_of_job(view, settings, me)

        def is_here(pod: Pod) -> bool:
            return runs(pod) if joined is None else pod == me or pod.name in joined or pod.uid in joined

        if me.number is not None:
            said = _by_number(pods, me, settings, is_here, view.has_all)
        else:
            said = _by_count(pods, settings, is_here)
        if not view.has_all and not said:
            said = [f"the hub's pod {pod.name} ({pod.address}) exists" for pod in pods if pod.number == 0]
        if view.has_all and joined is None:
            said.insert(0, f"{sum(map(runs, newest_per_number(pods)))} of {settings.size}")
    return "; ".join(part for part in [*_shortened(said), view.trouble] if part)


def _without_own_pod(view: View, settings: FinderSettings) -> str:
    where = f"{settings.selector} in namespace {settings.namespace}"
    if not view.is_listed:
        return "" if view.trouble else "the API server has not answered yet"
    if not view.pods:
        return f"no pod matches {where}: check JOB_NAME or LAUNCHER_SELECTOR (the pods' labels), and JOB_NAMESPACE"
    return (
        f"none of the {len(view.pods)} pods that match {where} can be identified as this pod "
        f"(POD_UID {settings.pod_uid or 'unset'}, POD_NAME {settings.pod_name or 'unset'}, "
        f"host name {settings.host_name}): set POD_NAME (fieldRef metadata.name)"
    )


def _by_number(
    pods: list[Pod], me: Pod, settings: FinderSettings, is_here: Callable[[Pod], bool], has_all: bool
) -> list[str]:
    newest = {pod.number: pod for pod in newest_per_number(pods)}
    mine = newest[me.number]
    if mine.uid != me.uid:
        own = _number(me.number or 0, settings)
        return [f"pod {mine.name} is newer and has this pod's {own}: this pod is being replaced"]
    older = [pod for pod in pods if pod.state == LIVE and pod != newest[pod.number]]
    said = [
        f"{newest[pod.number].name} replaces {pod.name}, which still runs as {_number(pod.number or 0, settings)}"
        for pod in older
    ]
    for number in range(settings.size if has_all else 1):
        pod = newest.get(number)
        if pod is None:
            said.append(f"there is no pod with {_number(number, settings)}")
        elif not is_here(pod):
            said.append(_reason(pod))
    return said


def _by_count(pods: list[Pod], settings: FinderSettings, is_here: Callable[[Pod], bool]) -> list[str]:
    live = by_role([pod for pod in pods if pod.state == LIVE], settings)
    for role, (found, count) in live.items():
        if len(found) > count:
            names = ", ".join(sorted(pod.name for pod in found)[: count + _SHOWN])
            expected = f"pods for N={count}" if role == BOTH else f"pods for {count} {role_name(role)}s"
            return [f"{len(found)} live {expected}; one of the pods may be about to be replaced: {names}"]
    said = [_reason(pod) for pod in sorted(pods, key=lambda pod: (pod.state != LIVE, pod.name)) if not is_here(pod)]
    for role, (found, count) in live.items():
        if more := max(count - len(found), 0):
            pods_of_role = f"{'pod' if role == BOTH else role_name(role)}{'s' if more > 1 else ''}"
            said.append(f"{more} more {pods_of_role} must still be created")
    return said


def _number(number: int, settings: FinderSettings) -> str:
    role, within = settings.shape.role(number), settings.shape.number(number)
    return f"number {within}" if role == BOTH else f"number {within} of the {role_name(role)}s"


def _reason(pod: Pod) -> str:
    if pod.state == LEAVING:
        return f"{pod.name} is being deleted"
    if pod.state == ENDED:
        return f"{pod.name} has ended" + (f": {pod.reason}" if pod.reason else "")
    if pod.reason:
        return f"{pod.name} is {pod.reason}"
    return f"{pod.name} ({pod.address}) has not joined yet" if pod.address else f"{pod.name} has no address yet"


def _shortened(said: list[str]) -> list[str]:
    shown = said[: _SHOWN + 1]
    return shown + ([f"and {len(said) - len(shown)} more"] if len(said) > len(shown) else [])
