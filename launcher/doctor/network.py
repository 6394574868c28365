"""What the pod of `doctor` found in its network: device, ports, names, rights at the API server."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.doctor import mend
from launcher.doctor.place import Place
from launcher.doctor.report import OK, WARNING, WRONG, Check
from launcher.doctor.settings import account_of, job_config
from launcher.job.spec import Json
from launcher.model import BOTH


def device(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    found = job_config(place.workload)
    if found is None:
        return
    devices = {str(name): list(addresses) for name, addresses in (facts.get("devices") or {}).items()}
    own, nic = str(facts.get("pod_ip") or ""), found.nic
    with_own = next((name for name, addresses in devices.items() if own in addresses), "")
    usable = [name for name, addresses in devices.items() if addresses and name != "lo"]
    better = with_own or next(iter(usable), "")
    if found.members == 1 and found.role == BOTH:
        yield Check("device", OK, f"not needed by one pod; devices: {', '.join(usable) or 'none'}")
    elif not devices.get(nic):
        there = "has no address" if nic in devices else "is not in the pod"
        text = f"CONF_PADDLE_NIC is {nic}, which {there}; devices there: {', '.join(usable) or 'none'}"
        fix = mend.set_variable(place.subject, place.workload, place.namespace, "CONF_PADDLE_NIC", better)
        yield Check("device", WRONG, text, fix if better else ())
    elif with_own and with_own != nic:
        text = f"CONF_PADDLE_NIC is {nic}, but the pod's address {own} is on {with_own}"
        yield Check("device", WARNING, text)
    else:
        yield Check("device", OK, f"{nic} has {devices[nic][0]}")


def ports(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    taken: Json = facts.get("taken") or {}
    if not asked["ports"]:
        yield Check("ports", OK, "none needed by one pod")
    elif taken:
        listed = ", ".join(f"{port} ({why})" for port, why in taken.items())
        free = _free_above(taken, asked["ports"])
        fix = mend.set_variable(place.subject, place.workload, place.namespace, "CONF_PADDLE_PORT", str(free))
        yield Check("ports", WRONG, f"not free in the pod: {listed}", fix)
    else:
        yield Check("ports", OK, f"free: {_ranges(asked['ports'])}")


def _free_above(taken: Json, wanted: list[int]) -> int:
    return min(max(map(int, taken)) + 100, 65535 - len(wanted))


def _ranges(ports: list[int]) -> str:
    shown: list[list[int]] = []
    for port in sorted(ports):
        if shown and port == shown[-1][1] + 1:
            shown[-1][1] = port
        else:
            shown.append([port, port])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in shown)


def names(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    found: Json = facts.get("found") or {}
    failed = {name: (said or {}).get("error") for name, said in found.items() if not (said or {}).get("addresses")}
    if "kubernetes.default" in failed:
        text = f"the pod cannot resolve kubernetes.default: {failed['kubernetes.default']}: cluster DNS does not answer"
        yield Check("names", WRONG, text, ("kubectl -n kube-system get pods -l k8s-app=kube-dns",))
    elif failed:
        name, why = next(iter(failed.items()))
        text = f"the pod's own name {name} does not resolve: {why}"
        command = mend.kubectl(
            place.namespace, "get", "endpointslices", "-l", f"kubernetes.io/service-name={place.service}"
        )
        yield Check("names", WRONG, text, (command,))
    elif asked["name"]:
        yield Check("names", OK, f"the pod's own name in Service {place.service} resolves")
    elif asked["dns"]:
        yield Check("names", OK, "cluster DNS answers; the Service does not exist yet, so no name in it was tried")
    else:
        yield Check("names", OK, "none needed: the pods do not use DNS names to find each other")


def rights(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    account = account_of(place.workload)
    if not facts.get("needed"):
        yield Check("rights", OK, "none needed: the pods do not ask the API server")
        return
    if not facts.get("token"):
        if place.subject.has("ServiceAccount", account):
            if account in place.bound:
                yield Check("rights", OK, f"the file makes service account {account}, and lets it read pods")
            else:
                text = f"the file makes service account {account}, but does not let it read pods"
                yield Check("rights", WRONG, text, mend.pods_reader(place.namespace, account))
            return
        text = f"the pods get no token of service account {account}, but find their peers by the API server"
        fix = mend.edit(place.subject, place.workload, "set automountServiceAccountToken: true in the pod's spec")
        yield Check("rights", WRONG, text, fix)
        return
    refused: Json = facts.get("refused") or {}
    denied = {verb: said for verb, said in refused.items() if str(said).startswith("HTTP 403")}
    if denied and account in place.bound:
        yield Check("rights", OK, f"the file lets service account {account} read pods")
    elif denied:
        text = f"service account {account} may not {', '.join(denied)} pods, by which the pods find each other"
        yield Check("rights", WRONG, text, mend.pods_reader(place.namespace, account))
    elif refused:
        verb, said = next(iter(refused.items()))
        yield Check("rights", WRONG, f"the API server cannot be asked from a pod: {verb}: {said}", _network(place))
    else:
        yield Check("rights", OK, f"service account {account} may list, watch and get pods")


def _network(place: Place) -> tuple[str, ...]:
    return (mend.kubectl(place.namespace, "get", "networkpolicies"),)
