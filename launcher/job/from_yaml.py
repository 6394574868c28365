"""A PaddleJob as paddle-operator takes it (batch.paddlepaddle.org/v1), as a gang. Its fields: docs/paddlejob.md."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from launcher.base.suggestion import meant
from launcher.job import pod_env, user_template
from launcher.job.findings import Fields, Found
from launcher.job.pod_template import GROUP_NAME, VOLCANO
from launcher.job.preflight import rehearse_all
from launcher.job.spec import PS, JobSpec, Json, PodGroupSpec, RoleSpec, SecretSpec, mode, name_problems
from launcher.model import BOTH, PSERVER, TRAINER

API = "batch.paddlepaddle.org/v1"
KIND = "PaddleJob"
TYPE_LABEL = "paddle-res-type"  # the operator's own, on the pods of a role

_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_METADATA = {"name", "namespace", "labels", "annotations"}
_OF_THE_SERVER = {
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink", "finalizers"),
}
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SPEC = {
    *("cleanPodPolicy", "schedulingPolicy", "intranet", "withGloo", "sampleSetRef", "elastic"),
    *("ps", "worker", "heter"),
}
_POLICY = {"minAvailable", "queue", "priorityClass", "minResources"}
_ROLE = {"replicas", "requests", "limits", "template"}
_CLEAN = ("Always", "Never", "OnFailure", "OnCompletion")
_INTRANET = ("PodIP", "Service", "Host")


@dataclass(frozen=True)
class Asked:
    """What the file cannot say: the image that brings the launcher along, if any, and what images run by themselves."""

    launcher: str | None
    entrypoint: tuple[str, ...] = ()


def job_spec(document: Json, others: Sequence[Json], asked: Asked, found: Found) -> JobSpec | None:
    """The job in one document, where `others` are the objects beside it; None when `found` has problems."""
    top = Fields(document, "", found)
    _say_strangers(top, _TOP)
    metadata, spec = top.mapping("metadata"), top.mapping("spec")
    if spec is None:
        if not top.has("spec"):
            found.problem("spec", "missing: expected the roles of the job: worker, and ps for parameter servers")
        return None
    name = _name(metadata, found)
    _say_strangers(spec, _SPEC | {"cleanPolicy", "tasks"})
    roles = _roles(spec, name or "", found, asked)
    described = JobSpec(
        name=name or "",
        namespace=metadata.text("namespace") if metadata else None,
        mode=mode(roles),
        roles=tuple(roles),
        gloo=_gloo(spec, roles, found),
        host_network=_intranet(spec, found),
        seconds_kept=_seconds_kept(spec, found),
        launcher=asked.launcher,
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations", but=(_APPLIED,)),
    )
    _say_what_is_not(spec, found)
    policy = _policy(spec, found)
    if found.problems or name is None:
        return None
    for problem in name_problems(name, [(role.job, role.replicas) for role in roles]):
        found.problem("metadata.name", problem)
    described = replace(described, group=_group(described, policy, others, found), secret=_secret(described, others))
    _say_of_pods(described, found)
    return None if found.problems else described


def _name(metadata: Fields | None, found: Found) -> str | None:
    if metadata is None:
        found.problem("metadata.name", "missing: expected the job's name")
        return None
    for field, guess in metadata.strangers(_METADATA | _OF_THE_SERVER):
        found.note(metadata.path(field), f"not taken over{guess}")
    name = metadata.text("name")
    if not metadata.has("name"):
        found.problem("metadata.name", "missing: expected the job's name, which the pods find each other by")
    return name


def _texts(metadata: Fields | None, name: str, but: Collection[str] = ()) -> dict[str, str]:
    """Labels or annotations: text as Kubernetes wants it."""
    fields = metadata.mapping(name) if metadata else None
    if fields is None:
        return {}
    return {key: fields.text(key) or "" for key in fields.values if key not in but}


def _roles(spec: Fields, name: str, found: Found, asked: Asked) -> list[RoleSpec]:
    worker, ps = spec.mapping("worker"), spec.mapping("ps")
    if spec.has("tasks"):
        found.problem(
            "spec.tasks", "belongs to a version of the operator that was never released: expected ps and worker"
        )
    elif not spec.has("worker"):
        found.problem("spec.worker", "missing: expected the pods that train")
    made = []
    if ps:
        made.append(_role(ps, PSERVER, "ps", name, found, asked))
    if worker:
        made.append(_role(worker, TRAINER if ps else BOTH, "worker", name, found, asked))
    return [role for role in made if role]


def _role(fields: Fields, kind: str, called: str, name: str, found: Found, asked: Asked) -> RoleSpec | None:
    _say_strangers(fields, _ROLE)
    replicas = fields.whole("replicas")
    if not fields.has("replicas"):
        found.problem(fields.path("replicas"), "missing: expected how many pods there are")
    elif replicas is not None and replicas < 1:
        advice = ": leave ps out for a job without parameter servers" if called == "ps" else ""
        found.problem(fields.path("replicas"), f"{replicas}: expected 1 or more{advice}")
    _say_bounds(fields, replicas, found)
    template = fields.mapping("template")
    if not fields.has("template"):
        found.problem(fields.path("template"), "missing: expected a pod template with the container that trains")
    read = user_template.read(template, found, asked.entrypoint) if template else None
    if read is None or replicas is None:
        return None
    labels = read.pod["metadata"].get("labels") or {}
    read.pod["metadata"]["labels"] = {TYPE_LABEL: called} | labels
    return RoleSpec(kind, f"{name}-{called}", replicas, read.pod, read.container, read.command)


def _say_bounds(fields: Fields, replicas: int | None, found: Found) -> None:
    for bound in ("requests", "limits"):
        value = fields.whole(bound)
        if value is not None and replicas is not None and value != replicas:
            found.note(
                fields.path(bound),
                f"{value}: the job has {replicas} pods (replicas) always: for another number change that and "
                "render it anew",
            )


def _gloo(spec: Fields, roles: Sequence[RoleSpec], found: Found) -> int:
    gloo = spec.whole("withGloo")
    if gloo is not None and gloo not in (0, 1, 2):
        found.problem("spec.withGloo", f"{gloo}: expected 0 for none, 1 for workers, 2 for servers as well")
    if gloo and roles and mode(roles) != PS:
        found.note("spec.withGloo", f"{gloo}: without ps there are no servers that gloo could be beside: leave it out")
    return gloo or 0


def _intranet(spec: Fields, found: Found) -> bool:
    """Whether the pods use the network of their nodes. All else is the same to the launcher: it tells addresses."""
    told = spec.text("intranet")
    if told is not None and told not in _INTRANET:
        found.problem("spec.intranet", f"{told!r}: expected one of {', '.join(_INTRANET)}{meant(told, _INTRANET)}")
    return told == "Host"


def _seconds_kept(spec: Fields, found: Found) -> int | None:
    policy, field = spec.text("cleanPodPolicy"), "spec.cleanPodPolicy"
    if spec.has("cleanPolicy"):
        said = "cleanPodPolicy counts, which is there too" if policy else "taken as that"
        found.note(
            "spec.cleanPolicy", f"the operator has no such field and ignores it: is cleanPodPolicy meant? {said}"
        )
        if policy is None:
            policy, field = spec.text("cleanPolicy"), "spec.cleanPolicy"
    if policy in ("OnFailure", "OnCompletion"):
        found.note(
            field,
            f"{policy}: Kubernetes removes an ended Job whatever its end was: pods and logs are kept, until "
            "`kubectl delete` (Always has them removed at once)",
        )
    elif policy is not None and policy not in _CLEAN:
        found.note(field, f"{policy!r}: no policy of the operator{meant(policy, _CLEAN)} Pods and logs are kept")
    return 0 if policy == "Always" else None


def _say_what_is_not(spec: Fields, found: Found) -> None:
    if spec.mapping("heter"):
        found.note(
            "spec.heter",
            "left out: no released Paddle has the servers that such workers need, and the launcher starts none",
        )
    if spec.whole("elastic"):
        found.note(
            "spec.elastic",
            f"{spec.values['elastic']}: the number of pods is fixed (replicas): a lost pod is waited for and the job "
            "goes on with as many as before",
        )
    if reference := spec.mapping("sampleSetRef"):
        found.note(
            "spec.sampleSetRef",
            f"{reference.values.get('name')}: SampleSets are mounted by the operator alone: mount the claim that holds "
            "the data in worker.template",
        )


def _policy(spec: Fields, found: Found) -> Json | None:
    """The schedulingPolicy as the specification of a PodGroup."""
    policy = spec.mapping("schedulingPolicy")
    if policy is None:
        return None
    _say_strangers(policy, _POLICY)
    resources = policy.mapping("minResources")
    told = {
        "minMember": policy.whole("minAvailable"),
        "queue": policy.text("queue"),
        "priorityClassName": policy.text("priorityClass"),
        "minResources": resources.values if resources else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _group(described: JobSpec, policy: Json | None, others: Sequence[Json], found: Found) -> PodGroupSpec | None:
    """The PodGroup of a job that Volcano schedules: all or none of the pods."""
    specs = [role.template["spec"] for role in described.roles]
    schedulers = {spec["schedulerName"] for spec in specs if spec.get("schedulerName")}
    if policy is None and VOLCANO not in schedulers:
        return None
    if different := sorted(schedulers - {VOLCANO}):
        found.note(
            "spec.*.template.spec.schedulerName",
            f"{', '.join(different)}: kept, but pods are scheduled all or none only where {VOLCANO} schedules them all",
        )
    annotations = [role.template["metadata"].get("annotations") or {} for role in described.roles]
    name = next((str(given[GROUP_NAME]) for given in annotations if GROUP_NAME in given), described.name)
    there = _beside(described, others, "PodGroup", name)
    if there is None and name == described.name:
        wanted = {"minMember": described.members} | (policy or {})
        _say_members(described, "spec.schedulingPolicy.minAvailable", wanted["minMember"], found)
        return PodGroupSpec(name, wanted)
    if policy is not None:
        found.note("spec.schedulingPolicy", f"not used: the pods are in a PodGroup of yours, {name}")
    if there is not None:
        _say_members(described, f"PodGroup {name}: spec.minMember", _fields(there, "spec").get("minMember"), found)
    return PodGroupSpec(name, None)


def _say_members(described: JobSpec, path: str, number: object, found: Found) -> None:
    if number != described.members:
        found.note(
            path, f"{number}: kept, but the job is whole with {described.members} pods only: expected that number"
        )


def _secret(described: JobSpec, others: Sequence[Json]) -> SecretSpec | None:
    """On a volume that the launcher knows of it makes one itself; else one of the file, or a new one."""
    fresh, given = pod_env.secret(described), pod_env.given_secret(described)
    there = fresh and _beside(described, others, "Secret", given) is not None
    return SecretSpec(given, None) if there else fresh


def _beside(described: JobSpec, others: Sequence[Json], kind: str, name: str) -> Json | None:
    """The object of the same file with that name; where namespaces are not told they are the same."""
    for other in others:
        metadata = _fields(other, "metadata")
        namespaces = {metadata.get("namespace"), described.namespace} - {None}
        if other.get("kind") == kind and metadata.get("name") == name and len(namespaces) < 2:
            return other
    return None


def _fields(other: Json, name: str) -> Json:
    """Those of an object that is not for this file to judge."""
    found = other.get(name)
    return found if isinstance(found, dict) else {}


def _say_of_pods(described: JobSpec, found: Found) -> None:
    rehearse_all(described, found, lambda role: f"{_container(role)}.")
    for role in described.roles:
        if described.on_nodes(role) and not pod_env.set_by_user(role, "CONF_PADDLE_NIC"):
            found.note(
                f"{_container(role)}.env",
                "CONF_PADDLE_NIC: unset, and on the nodes' own network there may be no eth0: set it to the device that "
                "has the nodes' address",
            )


def _container(role: RoleSpec) -> str:
    """The path of the container that trains or serves."""
    containers = role.template["spec"]["containers"]
    place = next(place for place, each in enumerate(containers) if each["name"] == role.container)
    return f"spec.{'ps' if role.kind == PSERVER else 'worker'}.template.spec.containers[{place}]"


def _say_strangers(fields: Fields, known: Collection[str]) -> None:
    for name, guess in fields.strangers(known):
        fields.found.note(fields.path(name), f"a {KIND} has no such field, and it is left out{guess}")
