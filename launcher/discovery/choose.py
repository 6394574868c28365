"""From the pods that are there to what joining needs, and in words to what is missing. Pure functions of a view."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from launcher.base.kube_pods import ENDED, LEAVING, LIVE, Pod
from launcher.discovery.finder import FinderSettings
from launcher.discovery.ranks import are_numbered, roster
from launcher.discovery.view import View
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.model import BOTH, OTHER_ROLE, PSERVER, TRAINER, Member, Peers

_SHOWN = 5  # pods that one message names


def choose(view: View, settings: FinderSettings) -> Peers | None:
    """Enough to join, or None: not yet."""
    me = _own(view, settings)
    if me is None or not view.listed:
        return None
    _check_number(me, view.pods[me.uid].number, settings)
    pods = [pod for pod in _of_the_job(view, settings, me) if _counts(pod)]
    numbered = are_numbered([_member(pod, settings) for pod in [*pods, me]])
    hub = _numbered_hub(pods, me) if numbered else _first_of_all(pods, settings)
    if hub is None or me not in pods:
        return None
    return Peers(
        me=_member(me, settings, me.uid),
        hub=None if hub == me.uid else view.pods[hub].address,
        identity=me.job,
        rank=me.number,
    )


def other_job(view: View, settings: FinderSettings) -> str | None:
    """What controls the pods of the other role: of several the newest that has live pods; an older one is leaving."""
    if settings.role == BOTH:
        return None
    jobs: dict[str, list[Pod]] = {}
    for pod in view.pods.values():
        if pod.role == OTHER_ROLE[settings.role] and pod.job:
            jobs.setdefault(pod.job, []).append(pod)

    def age(job: str) -> tuple[bool, str]:
        return any(pod.state == LIVE for pod in jobs[job]), min(pod.created for pod in jobs[job])

    return max(jobs, key=age, default=None)


def failed_for_good(view: View, settings: FinderSettings) -> str:
    """Whether a pod of the other role has ended so that no new attempt would mend it, in words."""
    me = _own(view, settings)
    everybody = _of_the_job(view, settings, me) if me and view.listed else []
    others = [pod for pod in everybody if pod.role != settings.role]
    if len([pod for pod in others if pod.state == LIVE]) >= settings.size - settings.shape.count(settings.role):
        return ""  # who ended so was replaced
    over = [pod for pod in _winners(others) if pod.state == ENDED and pod.code in FOR_GOOD]
    return f"pod {over[0].name} has ended: {over[0].why}" if over else ""


def there(view: View, settings: FinderSettings) -> list[Member]:
    """The members whose pods live and have an address, one for each number."""
    return [_member(pod, settings, view.me) for pod in _there(view, settings)]


def complete(view: View, settings: FinderSettings) -> bool:
    """Whether all N are there and run: nothing more to be learnt for joining."""
    pods = _there(view, settings)
    return len(pods) == settings.size and all(map(_runs, pods))


def missing(view: View, settings: FinderSettings, joined: Collection[str] | None = None) -> str:
    """Who is not there and why. `joined` has names or uids; without it running is enough, and how many is told."""
    me = _own(view, settings)
    if not view.listed or me is None:
        said = [_unknown(view, settings)]
    else:
        pods = _of_the_job(view, settings, me)

        def is_there(pod: Pod) -> bool:
            return _runs(pod) if joined is None else pod == me or pod.name in joined or pod.uid in joined

        if me.number is not None:
            said = _by_number(pods, me, settings, is_there, view.whole)
        else:
            said = _by_count(pods, settings, is_there)
        if not view.whole and not said:
            said = [f"the hub's pod {pod.name} ({pod.address}) is there" for pod in pods if pod.number == 0]
        if view.whole and joined is None:
            said.insert(0, f"{sum(map(_runs, _winners(pods)))} of {settings.size}")
    return "; ".join(part for part in [*_shortened(said), view.trouble] if part)


def _own(view: View, settings: FinderSettings) -> Pod | None:
    """The own pod. It runs, whatever the API server has heard so far, and may know its address before it."""
    me = view.pods.get(view.me or "")
    if me is None:
        return None
    me = _placed(me, settings, settings.role)
    address = settings.pod_ip or me.address
    if me.number is not None:  # then the address orders nothing, and the device's will do
        address = address or settings.training_address
    return replace(me, address=address, state=LEAVING if me.state == LEAVING else LIVE, why="")


def _of_the_job(view: View, settings: FinderSettings, me: Pod) -> list[Pod]:
    """The pods of this very job: not those of an older one of the same name, nor of another revision."""
    jobs = {settings.role: me.job}
    if settings.role != BOTH:
        jobs[OTHER_ROLE[settings.role]] = other_job(view, settings)
    found = []
    for pod in view.pods.values():
        role = settings.role if pod.uid == me.uid or settings.role == BOTH else pod.role
        if role not in jobs or pod.job != jobs[role]:
            continue
        if pod.number is None or pod.number < settings.shape.count(role):
            found.append(me if pod.uid == me.uid else _placed(pod, settings, role))
    return found


def _placed(pod: Pod, settings: FinderSettings, role: str) -> Pod:
    """With the rank in the gang as its number: a pod's own counts within its role."""
    return replace(pod, role=role, number=None if pod.number is None else settings.shape.rank(role, pod.number))


def _said_number(number: int, settings: FinderSettings) -> str:
    role, within = settings.shape.role(number), settings.shape.number(number)
    return f"number {within}" if role == BOTH else f"number {within} of the {role}s"


def _counts(pod: Pod) -> bool:
    return pod.state == LIVE and bool(pod.address)


def _runs(pod: Pod) -> bool:
    """A pod whose image cannot be pulled may have an address."""
    return _counts(pod) and not pod.why


def _there(view: View, settings: FinderSettings) -> list[Pod]:
    me = _own(view, settings)
    return _winners(pod for pod in _of_the_job(view, settings, me) if _counts(pod)) if me else []


def _member(pod: Pod, settings: FinderSettings, me: str | None = None) -> Member:
    training = settings.training_address if pod.uid == me else ""
    return Member(pod.name, pod.uid, pod.address, training or pod.address, pod.number, pod.role)


def _check_number(me: Pod, number: int | None, settings: FinderSettings) -> None:
    count = settings.shape.count(settings.role)
    if number is not None and number >= count:
        members = "members" if settings.role == BOTH else f"{settings.role}s"
        variable = "LAUNCHER_PSERVERS" if settings.role == PSERVER else "CONF_PADDLE_GRADIENT_NUM"
        raise Failure(
            Exit.CONFIG,
            f"pod {me.name} has number {number}, but the job has {count} {members}: "
            f"make {variable} equal to the number of pods",
        )
    if settings.rank is not None and settings.rank != me.number:
        has = "no number" if number is None else f"number {number}"
        raise Failure(
            Exit.CONFIG,
            f"LAUNCHER_RANK is {settings.shape.number(settings.rank)}, but for Kubernetes pod {me.name} has {has}, "
            "which all others go by: leave LAUNCHER_RANK out, or use LAUNCHER_DISCOVERY=dns or static",
        )


def _winners(pods: Iterable[Pod]) -> list[Pod]:
    """Of several live pods with one number the newest: it replaces the others. Pods without number all stay."""
    newest: dict[int | str, Pod] = {}
    for pod in sorted(pods, key=lambda pod: (_counts(pod), pod.state == LIVE, pod.created, pod.uid)):
        newest[pod.uid if pod.number is None else pod.number] = pod
    return list(newest.values())


def _numbered_hub(pods: list[Pod], me: Pod) -> str | None:
    winners = {pod.number: pod.uid for pod in _winners(pods)}
    return winners.get(0) if winners.get(me.number) == me.uid else None


def _first_of_all(pods: list[Pod], settings: FinderSettings) -> str | None:
    if any(len(of_role) != count for of_role, count in _by_role(pods, settings).values()):
        return None
    return roster([_member(pod, settings) for pod in pods]).members[0].uid


def _by_role(pods: list[Pod], settings: FinderSettings) -> dict[str, tuple[list[Pod], int]]:
    """The pods of each role, and how many there should be."""
    roles = [BOTH] if settings.role == BOTH else [TRAINER, PSERVER]
    return {role: ([pod for pod in pods if pod.role == role], settings.shape.count(role)) for role in roles}


def _unknown(view: View, settings: FinderSettings) -> str:
    where = f"{settings.selector} in namespace {settings.namespace}"
    if not view.listed:
        return "" if view.trouble else "the API server has not answered yet"
    if not view.pods:
        return f"no pod matches {where}: JOB_NAME or LAUNCHER_SELECTOR, and JOB_NAMESPACE, must fit the pods' labels"
    return (
        f"none of the {len(view.pods)} pods that match {where} is known to be this one "
        f"(POD_UID {settings.pod_uid or 'unset'}, POD_NAME {settings.pod_name or 'unset'}, "
        f"host name {settings.host_name}): set POD_NAME (fieldRef metadata.name)"
    )


def _by_number(
    pods: list[Pod], me: Pod, settings: FinderSettings, is_there: Callable[[Pod], bool], whole: bool
) -> list[str]:
    known = {pod.number: pod for pod in _winners(pods)}
    newer = known[me.number]
    if newer.uid != me.uid:
        own = _said_number(me.number or 0, settings)
        return [f"pod {newer.name} is newer and has this pod's {own}: this one is being replaced"]
    older = [pod for pod in pods if pod.state == LIVE and pod != known[pod.number]]
    said = [
        f"{known[pod.number].name} replaces {pod.name}, which still runs as {_said_number(pod.number or 0, settings)}"
        for pod in older
    ]
    for number in range(settings.size if whole else 1):
        pod = known.get(number)
        if pod is None:
            said.append(f"there is no pod with {_said_number(number, settings)}")
        elif not is_there(pod):
            said.append(_why(pod))
    return said


def _by_count(pods: list[Pod], settings: FinderSettings, is_there: Callable[[Pod], bool]) -> list[str]:
    live = _by_role([pod for pod in pods if pod.state == LIVE], settings)
    for role, (found, count) in live.items():
        if len(found) > count:
            names = ", ".join(sorted(pod.name for pod in found)[: count + _SHOWN])
            expected = f"pods for N={count}" if role == BOTH else f"pods for {count} {role}s"
            return [f"{len(found)} live {expected}, one may be about to be replaced: {names}"]
    said = [_why(pod) for pod in sorted(pods, key=lambda pod: (pod.state != LIVE, pod.name)) if not is_there(pod)]
    for role, (found, count) in live.items():
        if unborn := count - len(found):
            said.append(f"{unborn} more{'' if role == BOTH else f' {role}s'} must still be created")
    return said


def _why(pod: Pod) -> str:
    if pod.state == LEAVING:
        return f"{pod.name} is being deleted"
    if pod.state == ENDED:
        return f"{pod.name} has ended" + (f": {pod.why}" if pod.why else "")
    if pod.why:
        return f"{pod.name} is {pod.why}"
    return f"{pod.name} ({pod.address}) has not joined yet" if pod.address else f"{pod.name} has no address yet"


def _shortened(said: list[str]) -> list[str]:
    shown = said[: _SHOWN + 1]
    return shown + ([f"and {len(said) - len(shown)} more"] if len(said) > len(shown) else [])
