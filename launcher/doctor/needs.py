"""The checks of `doctor` for what a job needs in the cluster: Service, queue, Secrets, ConfigMaps, claims."""

from __future__ import annotations

import time
from collections.abc import Iterator

from launcher.base import kube_pods
from launcher.base.kube import KubeClient
from launcher.base.kube_errors import ApiError, Denied
from launcher.doctor import mend
from launcher.doctor.report import OK, UNKNOWN, WARNING, WRONG, Check
from launcher.doctor.settings import account_of, claims_of, job_config, named, service_of
from launcher.doctor.subject import Subject
from launcher.job import kueue
from launcher.job.pod_template import VOLCANO
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import Json
from launcher.model import BOTH, TRAINER

_BIND_SECONDS, _POLL_SECONDS = 5.0, 0.5  # to wait for a claim about which there is no event yet
_MINIMUM = "scheduling.volcano.sh/group-min-member"
_PODGROUPS = "/apis/scheduling.volcano.sh/v1beta1"


def service(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The headless Service exists, and the pods get names from it."""
    if not any(_needs_names(workload) for workload in subject.workloads):
        yield Check("service", OK, "not needed: the pods do not use DNS names to find each other")
        return
    for workload in subject.workloads:
        if name := service_of(workload):
            yield _one_service(client, subject, workload, name)


def _needs_names(workload: Workload) -> bool:
    found = job_config(workload)
    return bool(service_of(workload)) and (found is None or (found.discovery.method == "dns" and found.members > 1))


def _one_service(client: KubeClient, subject: Subject, workload: Workload, name: str) -> Check:
    pod = template_of(workload.seen)
    spec = workload.seen.get("spec") or {}
    subdomain = spec.get("serviceName") if workload.kind == "StatefulSet" else (pod.get("spec") or {}).get("subdomain")
    labels = pod["metadata"].get("labels") or {}
    where, namespace = named(subject, workload), client.namespace
    if subdomain != name:
        key = "serviceName" if workload.kind == "StatefulSet" else "subdomain, in the pod's spec,"
        text = f"{where}LAUNCHER_SERVICE is {name}, but the pods get names from {subdomain or 'no Service'}"
        return Check("service", WRONG, text, mend.edit(subject, workload, f"set {key} to {name}"))
    found = subject.document("Service", name) or client.get("Service", name)
    selector = dict(labels) or {"job-name": workload.name}
    if found is None:
        made = mend.headless_service(namespace, name, selector)
        return Check("service", WRONG, f"{where}Service {name} does not exist", (mend.apply(namespace, made),))
    spec = found.get("spec") or {}
    made_by_kubernetes = {"job-name": workload.name, "batch.kubernetes.io/job-name": workload.name}
    selects = {**made_by_kubernetes, **labels}
    has = spec.get("selector") or {}
    wrong = []
    if spec.get("clusterIP") != "None":
        wrong.append("is not headless (clusterIP: None)")
    if not spec.get("publishNotReadyAddresses"):
        wrong.append("has no publishNotReadyAddresses: true")
    if not has or any(selects.get(key) != value for key, value in has.items()):
        wrong.append("does not select the pods")
    if not wrong:
        return Check("service", OK, f"Service {name} is headless and selects the pods")
    text = f"{where}Service {name} {', and '.join(wrong)}"
    if subject.has("Service", name):
        made = mend.headless_service(namespace, name, selector)["spec"]
        return Check("service", WRONG, text, mend.edit(subject, workload, f"give Service {name} the spec {made}"))
    if spec.get("clusterIP") != "None":
        replace = mend.apply(namespace, mend.headless_service(namespace, name, selector))
        return Check("service", WRONG, text, (replace.replace(" apply -f -", " replace --force -f -"),))
    change: Json = {"publishNotReadyAddresses": True}
    if "does not select the pods" in wrong:
        change["selector"] = dict.fromkeys(has) | selector
    return Check("service", WRONG, text, (mend.patch(namespace, "Service", name, {"spec": change}),))


def queue(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """Volcano or Kueue is there if the job asks for it."""
    said = []
    for workload in subject.workloads:
        spec = template_of(workload.seen).get("spec") or {}
        metadata = workload.seen["metadata"]
        if spec.get("schedulerName") == VOLCANO:
            if problem := _volcano(client, subject, workload, metadata.get("annotations") or {}):
                yield problem
            else:
                said.append("Volcano is installed")
        if queue := kueue.queue_of(workload.seen):
            problem, text = _kueue(client, queue)
            for wrong in (
                [problem] if problem else _partial_admission(subject, workload, metadata.get("annotations") or {})
            ):
                text = ""
                yield wrong
            said.append(text)
    if said and all(said):
        yield Check("queue", OK, "; ".join(dict.fromkeys(said)))


def _volcano(client: KubeClient, subject: Subject, workload: Workload, annotations: Json) -> Check | None:
    if client.read(_PODGROUPS) is None:
        helm = "helm repo add volcano-sh https://volcano-sh.github.io/helm-charts && helm install volcano "
        helm += "volcano-sh/volcano -n volcano-system --create-namespace"
        text = f"{named(subject, workload)}schedulerName is volcano, but the cluster has no Volcano: no pod would start"
        return Check("queue", WRONG, text, (helm, *mend.edit(subject, workload, "or remove schedulerName")))
    total = sum(each.members for each in subject.workloads)
    minimum, least = annotations.get(_MINIMUM), _least(workload)
    if minimum is not None and minimum not in map(str, range(least, workload.members + 1)):
        needed = "" if least == workload.members else f" and {least} are enough"
        text = f"{named(subject, workload)}{_MINIMUM} is {minimum}, but there are {workload.members} pods{needed}"
        return Check("queue", WRONG, text, mend.edit(subject, workload, f'set it to "{least}"'))
    if minimum is None and not subject.is_paddlejob and total > 1:
        text = f"{named(subject, workload)}Volcano has no minimum: it may start a part of the pods"
        return Check("queue", WARNING, text, mend.edit(subject, workload, f'add the annotation {_MINIMUM}: "{least}"'))
    return None


def _least(workload: Workload) -> int:
    """Return without how many pods of the Job or StatefulSet the job cannot train."""
    found = job_config(workload)
    is_elastic = found is not None and found.is_elastic and found.role in (BOTH, TRAINER)
    return min(found.least, workload.members) if found and is_elastic else workload.members


def _partial_admission(subject: Subject, workload: Workload, annotations: Json) -> Iterator[Check]:
    """Kueue may start a Job with fewer pods: with as many as an elastic job needs."""
    minimum, least = annotations.get(kueue.MIN_PARALLELISM), _least(workload)
    if minimum is None:
        return
    where = named(subject, workload)
    if least == workload.members:
        text = f"{where}{kueue.MIN_PARALLELISM} is {minimum}, but the job needs all {least} pods"
        yield Check("queue", WRONG, text, mend.edit(subject, workload, "remove this annotation"))
    elif minimum not in map(str, range(least, workload.members)):
        text = f"{where}{kueue.MIN_PARALLELISM} is {minimum}, but the job needs {least} of its {workload.members} pods"
        yield Check("queue", WRONG, text, mend.edit(subject, workload, f'set it to "{least}"'))
    elif annotations.get(kueue.EQUAL_COMPLETIONS) != "true":
        text = f"{where}Kueue would change parallelism only, and the Job would start a pod again after the end"
        fix = mend.edit(subject, workload, f'add the annotation {kueue.EQUAL_COMPLETIONS}: "true"')
        yield Check("queue", WRONG, text, fix)


def _kueue(client: KubeClient, queue: str) -> tuple[Check | None, str]:
    group = client.read(kueue.API)
    if group is None:
        text = f"the Job asks for the queue {queue} of Kueue, but the cluster has no Kueue: the Job would start at once"
        helm = "helm install kueue oci://registry.k8s.io/kueue/charts/kueue -n kueue-system --create-namespace"
        return Check("queue", WRONG, text, (helm, f"or remove the label {kueue.QUEUE}")), ""
    version = (group.get("preferredVersion") or {}).get("groupVersion") or "kueue.x-k8s.io/v1beta1"
    try:
        found = client.read(f"/apis/{version}/namespaces/{client.namespace}/localqueues/{queue}")
    except Denied as denied:
        return Check("queue", UNKNOWN, f"LocalQueue {queue}: you may not read it: {denied.fact}"), ""
    if found is None:
        made = {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": queue, "namespace": client.namespace},
            "spec": {"clusterQueue": "CLUSTER_QUEUE"},
        }
        text = f"namespace {client.namespace} has no LocalQueue {queue}: the Job would wait for ever"
        return Check("queue", WRONG, text, (f"{mend.apply(client.namespace, made)}  # CLUSTER_QUEUE: its name",)), ""
    return None, f"Kueue has the LocalQueue {queue}"


def references(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The Secrets, ConfigMaps and the service account that the pods name exist."""
    wanted = dict.fromkeys(each for workload in subject.workloads for each in _references_of(workload))
    if not wanted:
        return
    good = True
    for kind, name in wanted:
        if subject.has(kind, name):
            continue
        try:
            if client.get(kind, name) is not None:
                continue
            good = False
            yield Check("objects", WRONG, f"{kind} {name} does not exist", (_creation(client.namespace, kind, name),))
        except Denied as denied:
            good = False
            yield Check("objects", UNKNOWN, f"{kind} {name}: you may not read it: {denied.fact}")
    if good:
        yield Check("objects", OK, ", ".join(f"{kind} {name}" for kind, name in wanted))


def _references_of(workload: Workload) -> Iterator[tuple[str, str]]:
    pod = template_of(workload.seen).get("spec") or {}
    main = kube_pods.main_container(template_of(workload.seen))
    if (account := account_of(workload)) != "default":
        yield "ServiceAccount", account
    for secret in pod.get("imagePullSecrets") or []:
        if secret.get("name"):
            yield "Secret", secret["name"]
    for volume in pod.get("volumes") or []:
        secret, settings = volume.get("secret") or {}, volume.get("configMap") or {}
        if secret.get("secretName") and not secret.get("optional"):
            yield "Secret", secret["secretName"]
        if settings.get("name") and not settings.get("optional"):
            yield "ConfigMap", settings["name"]
    for entry in main.get("env") or []:
        for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
            reference = (entry.get("valueFrom") or {}).get(key) or {}
            if reference.get("name") and not reference.get("optional"):
                yield kind, reference["name"]
    for source in main.get("envFrom") or []:
        for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
            reference = source.get(key) or {}
            if reference.get("name") and not reference.get("optional"):
                yield kind, reference["name"]


def _creation(namespace: str, kind: str, name: str) -> str:
    if kind == "Secret":
        return mend.kubectl(namespace, "create", "secret", "generic", name, "--from-file=KEY=FILE")
    if kind == "ConfigMap":
        return mend.kubectl(namespace, "create", "configmap", name, "--from-file=KEY=FILE")
    return mend.kubectl(namespace, "create", "serviceaccount", name)


def claims(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The claims exist and are bound, and all pods can mount them."""
    names = dict.fromkeys(name for workload in subject.workloads for name in claims_of(workload))
    total = sum(workload.members for workload in subject.workloads)
    for name in names:
        yield _claim(client, subject, name, total, time.monotonic() + _BIND_SECONDS)


def _claim(client: KubeClient, subject: Subject, name: str, total: int, until: float) -> Check:
    namespace = client.namespace
    found = client.get("PersistentVolumeClaim", name)
    if found is None:
        if subject.has("PersistentVolumeClaim", name):
            text = f"claim {name} is in {subject.file}, but not in the cluster yet: its data cannot be checked"
            return Check("claim", WARNING, text, (mend.kubectl(namespace, "apply", "-f", subject.file),))
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
        made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        another = f"or a claim on NFS, EFS or CephFS: change k8s/volumes, then {mend.kubectl(namespace, 'apply')} -k it"
        return Check("claim", WRONG, f"claim {name} does not exist", (mend.apply(namespace, made), another))
    phase = (found.get("status") or {}).get("phase") or "Pending"
    modes = (found.get("status") or {}).get("accessModes") or (found.get("spec") or {}).get("accessModes") or []
    storage = (found.get("spec") or {}).get("storageClassName")
    if phase != "Bound":
        reason, waits = _why_unbound(client, found)
        if not reason and time.monotonic() < until:  # it may have been created just now
            time.sleep(_POLL_SECONDS)
            return _claim(client, subject, name, total, until)
        if waits:
            return Check("claim", WARNING, f"claim {name} is not bound yet: {reason}")
        shown = f"storage class {storage}" if storage else "no storage class"
        text = f"claim {name} is {phase}, not Bound ({shown}){f': {reason}' if reason else ''}"
        return Check(
            "claim", WRONG, text, (mend.kubectl(namespace, "describe", "pvc", name), "kubectl get storageclass")
        )
    if total > 1 and not {"ReadWriteMany", "ReadOnlyMany"} & set(modes):
        text = f"claim {name} is {' and '.join(modes)}: the {total} pods can use it only if one node runs them all"
        return Check("claim", WARNING, text, ("use a claim with ReadWriteMany: k8s/volumes has some",))
    return Check("claim", OK, f"claim {name} is Bound, {' and '.join(modes)}")


def _why_unbound(client: KubeClient, claim: Json) -> tuple[str, bool]:
    """Return the newest event about the claim, and whether the claim only waits for the first pod."""
    try:
        events = client.events(str(claim["metadata"].get("uid")))
    except ApiError:
        return "", False
    newest = max(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime")), default={})
    text = " ".join(str(newest.get("message") or "").split())
    return text, newest.get("reason") in ("WaitForFirstConsumer", "WaitForPodScheduled")
