"""Convert a PaddleJob of paddle-operator (batch.paddlepaddle.org/v1) to a JobSpec. Its fields: docs/paddlejob.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from launcher.base.suggestion import meant
from launcher.job import elastic, pod_env, sample_set
from launcher.job.findings import Fields, Findings
from launcher.job.image_commands import ImageCommands
from launcher.job.pod_template import GROUP_NAME, VOLCANO
from launcher.job.preflight import check_pods
from launcher.job.spec import (
    ON_COMPLETION,
    ON_FAILURE,
    PS,
    JobSpec,
    Json,
    PodGroupSpec,
    RoleSpec,
    SecretSpec,
    mode,
    name_problems,
)
from launcher.job.user_template import check_memory, read_template
from launcher.model import BOTH, HETER, PSERVER, TRAINER, TRAINS

API = "batch.paddlepaddle.org/v1"
KIND = "PaddleJob"
TYPE_LABEL = "paddle-res-type"  # the operator's label for the pods of a role

_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}
_METADATA = {"name", "namespace", "labels", "annotations"}
_SET_BY_API_SERVER = {
    *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"),
    *("managedFields", "selfLink", "finalizers"),
}
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ROLES = ("ps", "worker", "heter")
_FIELD_OF_ROLE = {PSERVER: "ps", HETER: "heter"}  # all other roles: worker
_SPEC = {
    *("cleanPodPolicy", "schedulingPolicy", "intranet", "withGloo", "sampleSetRef", "elastic"),
    *_ROLES,
}
_SCHEDULING_POLICY = {"minAvailable", "queue", "priorityClass", "minResources"}
_ROLE = {"replicas", "requests", "limits", "template"}
_ALWAYS = "Always"
_CLEAN_POD_POLICIES = (_ALWAYS, "Never", ON_FAILURE, ON_COMPLETION)
_INTRANETS = ("PodIP", "Service", "Host")
_OLD_INTRANET = "serviceMode"  # the name of this field in the first versions of the operator


@dataclass(frozen=True)
class RenderOptions:
    """What a PaddleJob cannot say.

    launcher_image: the image from which the launcher is copied into the pods; None: nothing is copied
    images: what the job's images run
    until_end: whether the command runs until the job ends, and can delete the job then
    """

    launcher_image: str | None
    images: ImageCommands = dataclasses.field(default_factory=ImageCommands)
    until_end: bool = False


def to_job_spec(document: Json, others: Sequence[Json], options: RenderOptions, findings: Findings) -> JobSpec | None:
    """Return the JobSpec of one PaddleJob object, or None after adding problems to the findings.

    others: all objects in the file that are not PaddleJobs
    """
    top = Fields(document, "", findings)
    _note_unknown(top, _TOP)
    metadata, spec = top.mapping("metadata"), top.mapping("spec")
    if spec is None:
        if not top.has("spec"):
            findings.add_problem("spec", "missing: expected the roles of the job: worker, and ps for parameter servers")
        return None
    name = _name(metadata, findings)
    _note_unknown(spec, _SPEC | {"cleanPolicy", _OLD_INTRANET, "tasks"})
    valid_name = name if name and not name_problems(name, ()) else "job"  # so that all else can be checked
    namespace = metadata.text("namespace") if metadata else None
    options = replace(options, images=replace(options.images, namespace=namespace))
    roles = _roles(spec, valid_name, findings, options)
    samples = sample_set.read(spec, namespace, findings)
    if samples:
        roles = [sample_set.mounted(role, samples, findings) if role.role in TRAINS else role for role in roles]
    policy = _clean_pod_policy(spec, findings, options)
    sizes = elastic.read(spec, findings)
    job_spec = JobSpec(
        name=valid_name,
        namespace=namespace,
        mode=mode(roles, elastic=sizes is not None),
        roles=tuple(roles),
        gloo=_gloo(spec, roles, findings),
        host_network=_host_network(spec, findings),
        ttl_seconds=0 if policy == _ALWAYS else None,
        deleted=policy if policy in (ON_FAILURE, ON_COMPLETION) else None,
        sizes=sizes,
        launcher_image=options.launcher_image,
        labels=_texts(metadata, "labels"),
        annotations=_texts(metadata, "annotations", without=(_LAST_APPLIED,)),
    )
    scheduling = _scheduling_policy(spec, findings)
    if name is not None:
        for problem in name_problems(name, [(role.name, job_spec.most_of(role)) for role in roles]):
            findings.add_problem("metadata.name", problem)
    if not spec.has("worker") or len(roles) < sum(map(spec.has, _ROLES)):
        return None  # what is left of the job has another mode
    pod_group = _pod_group(job_spec, scheduling, others, findings)
    job_spec = replace(job_spec, pod_group=pod_group, secret=_secret(job_spec, others))
    _check_pods(job_spec, findings)
    return None if findings.problems else job_spec


def _name(metadata: Fields | None, findings: Findings) -> str | None:
    missing = "missing: expected the job's name"
    if metadata is None:
        findings.add_problem("metadata.name", missing)
        return None
    for field, suggestion in metadata.unknown(_METADATA | _SET_BY_API_SERVER):
        findings.add_note(metadata.path(field), f"ignored{suggestion}")
    name = metadata.text("name")
    if not metadata.has("name"):
        findings.add_problem("metadata.name", missing)
    return name


def _texts(metadata: Fields | None, name: str, without: Collection[str] = ()) -> dict[str, str]:
    """Return labels or annotations. Their values must be strings."""
    fields = metadata.mapping(name) if metadata else None
    if fields is None:
        return {}
    return {key: fields.text(key) or "" for key in fields.values if key not in without}


def _roles(spec: Fields, name: str, findings: Findings, options: RenderOptions) -> list[RoleSpec]:
    worker, ps, heter = (spec.mapping(name) for name in ("worker", "ps", "heter"))
    if spec.has("tasks"):
        findings.add_problem(
            "spec.tasks", "only an unreleased version of the operator has this field: use ps and worker"
        )
    elif not spec.has("worker"):
        findings.add_problem("spec.worker", "missing: expected the pods that train")
    roles = []
    if ps:
        roles.append(_role_spec(ps, PSERVER, "ps", name, findings, options))
    if worker:
        roles.append(_role_spec(worker, TRAINER if ps else BOTH, "worker", name, findings, options))
    if heter and ps:
        roles.append(_role_spec(heter, HETER, "heter", name, findings, options))
    elif heter:
        findings.add_problem("spec.heter", "expected ps, too: without parameter servers no heter worker can train")
    return [role_spec for role_spec in roles if role_spec]


def _role_spec(
    fields: Fields, role: str, field_name: str, job_name: str, findings: Findings, options: RenderOptions
) -> RoleSpec | None:
    _note_unknown(fields, _ROLE)
    replicas = fields.integer("replicas")
    if not fields.has("replicas"):
        findings.add_problem(fields.path("replicas"), "missing: expected the number of pods")
    elif replicas is not None and replicas < 1:
        without = {"ps": "parameter servers", "heter": "heter workers"}.get(field_name)
        advice = f": leave {field_name} out for a job without {without}" if without else ""
        findings.add_problem(fields.path("replicas"), f"{replicas}: expected 1 or more{advice}")
    template = fields.mapping("template")
    if not fields.has("template"):
        findings.add_problem(fields.path("template"), "missing: expected a pod template with the container that trains")
    checked = read_template(template, findings, options.images) if template else None
    if checked is None:
        return None
    replicas = max(replicas or 1, 1)
    metadata = checked.template["metadata"]
    metadata["labels"] = {TYPE_LABEL: field_name} | (metadata.get("labels") or {})
    return RoleSpec(role, f"{job_name}-{field_name}", replicas, checked.template, checked.container, checked.command)


def _gloo(spec: Fields, roles: Sequence[RoleSpec], findings: Findings) -> int:
    gloo = spec.integer("withGloo")
    if gloo is not None and gloo not in (0, 1, 2):
        findings.add_problem("spec.withGloo", f"{gloo}: expected 0 (no gloo), 1 (workers) or 2 (workers and servers)")
    elif gloo and roles and mode(roles) != PS:
        findings.add_note("spec.withGloo", f"{gloo}: ignored: without ps no server can host gloo: remove this field")
    return gloo or 0


def _host_network(spec: Fields, findings: Findings) -> bool:
    """Return whether intranet is Host. All other values have the same effect, since launchers exchange addresses."""
    name = "intranet"
    if spec.has(_OLD_INTRANET):
        if spec.has(name):
            findings.add_note(spec.path(_OLD_INTRANET), f"ignored: {name} is set, too, and has replaced this field")
        else:
            name = _OLD_INTRANET
    intranet = spec.text(name)
    if intranet is not None and intranet not in _INTRANETS:
        expected = f"expected one of {', '.join(_INTRANETS)}{meant(intranet, _INTRANETS)}"
        findings.add_problem(spec.path(name), f"{intranet!r}: {expected}")
    return intranet == "Host"


def _clean_pod_policy(spec: Fields, findings: Findings, options: RenderOptions) -> str | None:
    policy, field = spec.text("cleanPodPolicy"), "spec.cleanPodPolicy"
    if spec.has("cleanPolicy"):
        effect = "the launcher uses cleanPodPolicy" if policy else "the launcher uses its value as cleanPodPolicy"
        findings.add_note("spec.cleanPolicy", f"the operator has no such field and ignores it: {effect}")
        if policy is None:
            policy, field = spec.text("cleanPolicy"), "spec.cleanPolicy"
    if policy in (ON_FAILURE, ON_COMPLETION) and not options.until_end:
        findings.add_note(
            field,
            f"{policy}: pods and logs are kept until `paddle-launcher delete`: a Job cannot be deleted depending on "
            "how it ended: `submit --watch` deletes it then (Always deletes it in any case)",
        )
    elif policy is not None and policy not in _CLEAN_POD_POLICIES:
        findings.add_note(
            field,
            f"{policy!r}: pods and logs are kept: the operator has no such policy{meant(policy, _CLEAN_POD_POLICIES)}",
        )
    return policy


def _scheduling_policy(spec: Fields, findings: Findings) -> Json | None:
    """Return the schedulingPolicy as the spec of a PodGroup."""
    policy = spec.mapping("schedulingPolicy")
    if policy is None:
        return None
    _note_unknown(policy, _SCHEDULING_POLICY)
    resources = policy.mapping("minResources")
    check_memory(resources, "memory", findings)
    group = {
        "minMember": policy.integer("minAvailable"),
        "queue": policy.text("queue"),
        "priorityClassName": policy.text("priorityClass"),
        "minResources": resources.values if resources else None,
    }
    return {name: value for name, value in group.items() if value is not None}


def _pod_group(
    job_spec: JobSpec, policy: Json | None, others: Sequence[Json], findings: Findings
) -> PodGroupSpec | None:
    """Return the PodGroup of a job that Volcano schedules, else None."""
    pods = [role.template["spec"] for role in job_spec.roles]
    schedulers = {pod["schedulerName"] for pod in pods if pod.get("schedulerName")}
    if policy is None and VOLCANO not in schedulers:
        return None
    if different := sorted(schedulers - {VOLCANO}):
        findings.add_note(
            "spec.*.template.spec.schedulerName",
            f"{', '.join(different)}: kept, but gang scheduling (all pods or none) needs {VOLCANO} for all pods",
        )
    annotations = [role.template["metadata"].get("annotations") or {} for role in job_spec.roles]
    name = next((str(given[GROUP_NAME]) for given in annotations if GROUP_NAME in given), job_spec.name)
    existing = _find_other(job_spec, others, "PodGroup", name)
    if existing is None and name == job_spec.name:
        group = {"minMember": job_spec.least_pods} | (policy or {})
        _note_min_member(job_spec, "spec.schedulingPolicy.minAvailable", group["minMember"], findings)
        return PodGroupSpec(name, group)
    if policy is not None:
        findings.add_note("spec.schedulingPolicy", f"ignored: the pods belong to your own PodGroup {name}")
    if existing is not None:
        min_member = _mapping(existing, "spec").get("minMember")
        _note_min_member(job_spec, f"PodGroup {name}: spec.minMember", min_member, findings)
    return PodGroupSpec(name, None)


def _note_min_member(job_spec: JobSpec, path: str, number: object, findings: Findings) -> None:
    least, count = job_spec.least_pods, job_spec.pod_count
    if isinstance(number, int) and least <= number <= count:
        return
    if least == count:
        findings.add_note(path, f"{number}: kept, but the job has {count} pods and needs all: expected {count}")
    else:
        findings.add_note(path, f"{number}: kept, but the job needs {least} of its {count} pods: expected {least}")


def _secret(job_spec: JobSpec, others: Sequence[Json]) -> SecretSpec | None:
    """Return the Secret in the user's file, else a new Secret, or None if the job needs no Secret."""
    secret, name = pod_env.new_secret(job_spec), pod_env.user_secret_name(job_spec)
    if secret and _find_other(job_spec, others, "Secret", name) is not None:
        return SecretSpec(name, None)
    return secret


def _find_other(job_spec: JobSpec, others: Sequence[Json], kind: str, name: str) -> Json | None:
    """Return the object in the file with this kind and name, or None.

    An object without a namespace counts as in the job's namespace.
    """
    for other in others:
        metadata = _mapping(other, "metadata")
        namespaces = {metadata.get("namespace"), job_spec.namespace} - {None}
        if other.get("kind") == kind and metadata.get("name") == name and len(namespaces) < 2:
            return other
    return None


def _mapping(other: Json, name: str) -> Json:
    """Return the field `name`, or {} if it is no mapping: the API server then reports the mistake."""
    value = other.get(name)
    return value if isinstance(value, dict) else {}


def _check_pods(job_spec: JobSpec, findings: Findings) -> None:
    check_pods(job_spec, findings, _container_path)
    for role_spec in job_spec.roles:
        if job_spec.on_host_network(role_spec) and not pod_env.set_by_user(role_spec, "CONF_PADDLE_NIC"):
            findings.add_note(
                f"{_container_path(role_spec)}.env",
                "CONF_PADDLE_NIC: unset: nodes may not have its default, eth0: set it to the device that has the "
                "node's address",
            )


def _container_path(role_spec: RoleSpec) -> str:
    """Return the YAML path (`spec.worker...`) of the container that trains or serves."""
    containers = role_spec.template["spec"]["containers"]
    index = next(index for index, each in enumerate(containers) if each["name"] == role_spec.container)
    return f"spec.{_FIELD_OF_ROLE.get(role_spec.role, 'worker')}.template.spec.containers[{index}]"


def _note_unknown(fields: Fields, known: Collection[str]) -> None:
    for name, suggestion in fields.unknown(known):
        fields.findings.add_note(fields.path(name), f"ignored: a {KIND} has no such field{suggestion}")
