"""`doctor`: look at a job before it trains, and say for each question what is good, or what mends it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from launcher.base.kube import KubeClient
from launcher.base.kube_errors import Denied
from launcher.doctor import checks, facts, pod, settings
from launcher.doctor.place import Place
from launcher.doctor.report import Check
from launcher.doctor.subject import Subject, with_variables
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import Json

WITHIN = 180.0  # seconds


@dataclass(frozen=True)
class Options:
    """pod: whether to make a pod. within: how many seconds it may take."""

    pod: bool = True
    within: float = WITHIN


def examine(client: KubeClient, subject: Subject, options: Options) -> list[Check]:
    """Return the answers to all questions. Raises Failure if the cluster cannot be asked."""
    if missing := checks.missing_namespace(client):
        return missing
    subject = with_variables(subject, client)
    answers = checks.check_all(client, subject)
    if not options.pod:
        return answers + facts.unasked("not asked: --no-pod")
    several = len({_kind_of_pod(workload) for workload in subject.workloads}) > 1
    seen: set[str] = set()
    for workload in sorted(subject.workloads, key=lambda workload: not workload.trains):
        if _kind_of_pod(workload) in seen:
            continue
        seen.add(_kind_of_pod(workload))
        found = _visit(client, subject, workload, answers, options)
        answers += [_named(check, workload) for check in found] if several else found
    return answers


def _visit(
    client: KubeClient, subject: Subject, workload: Workload, checks: list[Check], options: Options
) -> list[Check]:
    namespace, name = client.namespace, pod.new_name()
    for claim in settings.claims_of(workload):
        if client.get("PersistentVolumeClaim", claim) is None:
            return facts.unasked(f"not asked: no pod can start without the claim {claim}")
    account = settings.account_of(workload)
    service = _service(client, workload)
    asked = facts.asked_of(workload, namespace, name, service[0] if service else "")
    job = pod.job_of(
        workload,
        name,
        asked,
        within=options.within,
        account=account == "default" or _exists(client, "ServiceAccount", account),
        service=service,
    )
    sys.stderr.write(
        f"doctor: makes a short-lived pod by Job {name} in namespace {namespace}\n"
        f"doctor: deletes it after {options.within:.0f} s at most (--no-pod makes none)\n"
    )
    sys.stderr.flush()
    found = pod.visit(client, job, options.within)
    place = Place(subject, workload, namespace, frozenset(_bound(subject)), service[0] if service else "")
    return facts.read(place, found, asked)


def _service(client: KubeClient, workload: Workload) -> tuple[str, Mapping[str, str]] | None:
    """Return the Service and its selector, if it exists and gives names to pods."""
    name = settings.service_of(workload)
    spec: Json = ((client.get("Service", name) if name else None) or {}).get("spec") or {}
    if spec.get("clusterIP") != "None" or not spec.get("selector"):
        return None
    return name, spec["selector"]


def _exists(client: KubeClient, kind: str, name: str) -> bool:
    """Return whether the object exists, also if it may not be read."""
    try:
        return client.get(kind, name) is not None
    except Denied:
        return True


def _kind_of_pod(workload: Workload) -> str:
    """Return what makes pods different for the checks. Pods of two roles with equal texts need only one pod."""
    spec = template_of(workload.seen).get("spec") or {}
    fields = ("nodeSelector", "tolerations", "volumes", "securityContext", "serviceAccountName", "hostNetwork")
    return repr([workload.image, workload.words[:1], *(spec.get(field) for field in fields)])


def _named(check: Check, workload: Workload) -> Check:
    return Check(f"{workload.name} {check.name}", check.state, check.what, check.mend)


def _bound(subject: Subject) -> set[str]:
    """Return the service accounts that a RoleBinding of the file lets read pods."""
    found = set()
    for binding in (each for each in subject.documents if each.get("kind") == "RoleBinding"):
        reference = binding.get("roleRef") or {}
        role = subject.document(str(reference.get("kind")), str(reference.get("name"))) or {}
        if _reads_pods(role):
            found |= {
                str(each.get("name")) for each in binding.get("subjects") or [] if each.get("kind") == "ServiceAccount"
            }
    return found


def _reads_pods(role: Json) -> bool:
    wanted = {"get", "list", "watch"}
    verbs = [
        set(rule.get("verbs") or [])
        for rule in role.get("rules") or []
        if {"pods", "*"} & set(rule.get("resources") or [])
    ]
    return any("*" in each or wanted <= each for each in verbs)
