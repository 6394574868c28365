"""The checks of `doctor` that need no pod: what the manifests say, and what the API server has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from launcher import config, paddle
from launcher.base import kube_pods
from launcher.base.kube import KINDS, KubeClient
from launcher.base.kube_errors import Denied, Refused
from launcher.config import VARIABLES
from launcher.doctor import mend, needs
from launcher.doctor.report import OK, UNKNOWN, WARNING, WRONG, Check
from launcher.doctor.settings import command_of, flags_of, job_config, named, values_of
from launcher.doctor.subject import Subject
from launcher.errors import FOR_GOOD, Exit, Failure
from launcher.job import recognition
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import Json
from launcher.model import COUNT_VARIABLE

_FIRST_WITH_POLICY = (1, 26)  # of Kubernetes
_IGNORED = (Exit.PEER_FAILED, Exit.STOPPED)


def check_all(client: KubeClient, subject: Subject) -> list[Check]:
    """Return the answers of all checks that need no pod. Raises Failure if the API server does not answer."""
    checks: list[Check] = []
    for check in (_variables, _pods, _policy, needs.service, needs.queue, needs.references, needs.claims, _accepted):
        checks += check(client, subject)
    return checks


def missing_namespace(client: KubeClient) -> list[Check]:
    """Return a check if there is no such namespace, else nothing."""
    try:
        found = client.read(f"/api/v1/namespaces/{client.namespace}")
    except Denied:  # most users may not read namespaces
        return []
    if found is not None:
        return []
    command = shlex.join(["kubectl", "create", "namespace", client.namespace])
    return [Check("namespace", WRONG, f"namespace {client.namespace} does not exist", (command,))]


def _variables(client: KubeClient, subject: Subject) -> Iterator[Check]:
    name = "variables"
    good = True
    for workload in subject.workloads:
        where = named(subject, workload)
        try:
            found = config.read(values_of(workload), {}, check_here=False)
            paddle.plan(found, flags_of(workload), command_of(workload), None, None)
        except Failure as failure:
            good = False
            for line in failure.message.splitlines():
                state = UNKNOWN if subject.unread and "unset" in line else WRONG
                yield Check(name, state, f"{where}{line}", _set(client, subject, workload, line))
            continue
        told = workload.value("JOB_NAMESPACE")
        if told and told != client.namespace:
            good = False
            asks = found.members > 1 and found.discovery.method == "kubernetes"
            text = f"{where}JOB_NAMESPACE is {told}, but the {workload.kind} is in namespace {client.namespace}"
            fix = mend.remove_variable(subject, workload, client.namespace, "JOB_NAMESPACE")
            yield Check(name, WRONG if asks else WARNING, f"{text}: remove the variable", fix)
        for warning in found.warnings:
            good = False
            yield Check(name, WARNING, f"{where}{warning}", _rename(subject, workload, warning))
    for source in subject.unread:
        yield Check(name, UNKNOWN, f"{source} is not read: its variables are not checked")
    if good:
        mode, leading = recognition.mode(subject.workloads), subject.leading
        count = sum(workload.members for workload in subject.workloads)
        yield Check(name, OK, f"mode {mode}, {count} {'pod' if count == 1 else 'pods'}, JOB_NAME {_shown(leading)}")


def _shown(workload: Workload) -> str:
    return workload.value("JOB_NAME") or "unset"


def _set(client: KubeClient, subject: Subject, workload: Workload, line: str) -> tuple[str, ...]:
    variable = line.partition(":")[0]
    known = {each.name for each in VARIABLES}
    if variable == "CONF_PADDLE_GRADIENT_NUM":
        return mend.set_variable(subject, workload, client.namespace, variable, str(workload.members))
    return mend.edit(subject, workload, f"set {variable} as above") if variable in known else ()


def _rename(subject: Subject, workload: Workload, warning: str) -> tuple[str, ...]:
    old, _, rest = warning.partition(" ")
    new = rest.rpartition("did you mean ")[2].rstrip("?")
    return mend.edit(subject, workload, f"rename {old} to {new}") if " " not in new else ()


def _pods(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The number of pods is the number that the launchers expect."""
    good = True
    for workload in subject.workloads:
        found = job_config(workload)
        if found is None:
            continue
        variable = COUNT_VARIABLE[found.role]
        wanted = found.shape.count(found.role)
        spec = workload.seen.get("spec") or {}
        where = f"{workload.kind} {workload.name}"
        if workload.kind == "StatefulSet":
            numbers = {"replicas": spec.get("replicas")}
        else:
            numbers = {name: spec.get(name) for name in ("parallelism", "completions")}
        numbers = {name: number for name, number in numbers.items() if number is not None} or {"completions": 1}
        wrong = {name: number for name, number in numbers.items() if number != wanted}
        if not wrong:
            continue
        good = False
        shown = " and ".join(f"{name} {number}" for name, number in wrong.items())
        text = f"{where} has {shown}, but {variable} is {wanted}: the launchers would wait for {wanted} pods"
        yield Check("pods", WRONG, text, _counts(client, subject, workload, numbers, variable, wanted))
    if good:
        total = sum(workload.members for workload in subject.workloads)
        yield Check("pods", OK, f"{total} in {' and '.join(f'{w.kind} {w.name}' for w in subject.workloads)}")


def _counts(
    client: KubeClient, subject: Subject, workload: Workload, numbers: Json, variable: str, wanted: int
) -> tuple[str, ...]:
    if not subject.file and workload.kind == "StatefulSet":
        return (mend.kubectl(client.namespace, "scale", f"statefulset/{workload.name}", f"--replicas={wanted}"),)
    if len(set(numbers.values())) == 1 and (count := next(iter(numbers.values()))):
        first = mend.set_variable(subject, workload, client.namespace, variable, str(count))
        return (*first, *mend.edit(subject, workload, f"or set {' and '.join(numbers)} to {wanted}"))
    return mend.edit(subject, workload, f"set {' and '.join(numbers)} to {wanted}")


def _policy(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The podFailurePolicy uses the exit codes of the launcher, and the variables agree with it."""
    name, good, said = "policy", True, "no podFailurePolicy: each failed pod counts for backoffLimit"
    for workload in subject.workloads:
        if workload.kind != "Job":
            said = "a StatefulSet needs none: Kubernetes starts its pods again"
            continue
        for text, change in _policy_problems(workload):
            good = False
            yield Check(name, WRONG, f"{named(subject, workload)}{text}", mend.edit(subject, workload, change))
        spec = workload.seen.get("spec") or {}
        if spec.get("podFailurePolicy"):
            said = "podFailurePolicy fits docs/exit-codes.md"
            if (version := _version(client)) and version < _FIRST_WITH_POLICY:
                good = False
                yield Check(
                    name,
                    WARNING,
                    f"Kubernetes {version[0]}.{version[1]} ignores podFailurePolicy: each failed pod counts",
                    mend.edit(subject, workload, f"set backoffLimit to {4 * workload.members}"),
                )
    if good:
        yield Check(name, OK, said)


def _policy_problems(workload: Workload) -> Iterator[tuple[str, str]]:
    spec = workload.seen.get("spec") or {}
    template = template_of(workload.seen)
    main = str(kube_pods.main_container(template).get("name"))
    policy, limit = spec.get("podFailurePolicy") or {}, spec.get("backoffLimit")
    told = workload.value("LAUNCHER_BACKOFF_LIMIT")
    if told and told.isdigit() and int(told) != (6 if limit is None else limit):
        shown = "6, the default," if limit is None else limit
        yield (
            f"LAUNCHER_BACKOFF_LIMIT is {told}, but backoffLimit is {shown}: the launchers count wrong",
            f"set both to the same number, such as backoffLimit: {told}",
        )
    has_policy = workload.value("LAUNCHER_FAILURE_POLICY") == "1"
    if has_policy and not policy:
        yield "LAUNCHER_FAILURE_POLICY is 1, but there is no podFailurePolicy", "remove LAUNCHER_FAILURE_POLICY"
    if not policy:
        return
    if not has_policy:
        yield "there is a podFailurePolicy, but LAUNCHER_FAILURE_POLICY is not 1", "set LAUNCHER_FAILURE_POLICY=1"
    if (template.get("spec") or {}).get("restartPolicy") != "Never":
        yield "a podFailurePolicy needs restartPolicy Never", "set restartPolicy: Never"
    codes: dict[str, set[int]] = {"FailJob": set(), "Ignore": set()}
    for rule in policy.get("rules") or []:
        on = rule.get("onExitCodes") or {}
        if (container := on.get("containerName")) not in (None, main):
            yield (
                f"podFailurePolicy names container {container}, but the launcher runs in container {main}",
                f"set containerName: {main}",
            )
        if on.get("operator") == "In":
            codes.setdefault(str(rule.get("action")), set()).update(on.get("values") or [])
    for action, wanted in (("FailJob", FOR_GOOD), ("Ignore", _IGNORED)):
        if missing := sorted(set(map(int, wanted)) - codes[action]):
            listed = ", ".join(map(str, missing))
            why = "no retry helps" if action == "FailJob" else "another pod is the cause"
            yield (
                f"podFailurePolicy has no {action} for {listed}, with which {why}",
                f"add {listed} to the values of {action}",
            )
    if counted := sorted(codes["FailJob"] & {*map(int, _IGNORED)}):
        listed = ", ".join(map(str, counted))
        yield (
            f"podFailurePolicy fails the Job with {listed}, of which another pod is the cause",
            f"use Ignore for {listed}",
        )


def _version(client: KubeClient) -> tuple[int, int] | None:
    found = client.read("/version") or {}
    major, minor = str(found.get("major")), str(found.get("minor")).rstrip("+")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _accepted(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The API server would accept the objects of the file. It stores none of them."""
    if not subject.file:
        return
    good = True
    accepted: list[str] = []
    for document in subject.documents:
        kind, name = str(document.get("kind")), document["metadata"]["name"]
        if kind not in KINDS or not KINDS[kind].namespaced:
            continue
        metadata = {**document["metadata"], "namespace": client.namespace}
        try:
            client.create({**document, "metadata": metadata}, dry_run=True)
            accepted.append(f"{kind} {name}")
        except Denied as denied:
            if _exists(client, kind, name):  # it is there, so it need not be created
                continue
            good = False
            yield Check("accepted", WRONG, f"you may not create {kind} {name}: {denied.fact}", _submitter(client))
        except Refused as refused:
            if refused.status == 409:
                if kind in ("Job", "StatefulSet"):
                    good = False
                    yield _taken(client, kind, name)
                continue
            good = False
            if "dry run" in refused.fact:  # an admission webhook that has effects
                yield Check("accepted", UNKNOWN, refused.fact)
            else:
                yield Check("accepted", WRONG, refused.fact)
    if good:
        listed = f"accepts {', '.join(accepted)}" if accepted else "has all objects of the file"
        yield Check("accepted", OK, f"the API server {listed} (dry run)")


def _taken(client: KubeClient, kind: str, name: str) -> Check:
    if kind == "StatefulSet":
        return Check("accepted", WARNING, f"StatefulSet {name} exists: `kubectl apply` would change it")
    text = f"Job {name} exists already, and the pods of a Job cannot be changed"
    return Check("accepted", WARNING, text, (mend.kubectl(client.namespace, "delete", "job", name),))


def _submitter(client: KubeClient) -> tuple[str, ...]:
    return (f"an admin: {mend.kubectl(client.namespace, 'apply', '-k', 'k8s/submitter')}, with your name in it",)


def _exists(client: KubeClient, kind: str, name: str) -> bool:
    try:
        return client.get(kind, name) is not None
    except Denied:
        return False
