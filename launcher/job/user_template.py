"""Check the pod template in a PaddleJob: which container trains, its command, and which fields are changed."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from launcher.job import sample_set
from launcher.job.findings import Fields, Findings
from launcher.job.image_commands import ImageCommands, Unknown
from launcher.job.pod_template import DEFAULT_CONTAINER, INJECT, INJECT_FOLDER, SECRET_VOLUME
from launcher.job.pull_secrets import PullSource
from launcher.job.quantities import too_little
from launcher.job.spec import Json

_MAIN_CONTAINER = "paddle"  # its name in the operator's own examples
_RESERVED = "reserved for the launcher: choose another"


@dataclass(frozen=True)
class UserTemplate:
    """A checked template, its main container and that container's command."""

    template: Json
    container: str
    command: tuple[str, ...]


def read_template(template: Fields, findings: Findings, images: ImageCommands) -> UserTemplate | None:
    """Return the template, or None if its fields have wrong types. Add all problems.

    images: for a container without `command`
    """
    before = len(findings.problems)
    metadata, pod = template.mapping("metadata"), template.mapping("spec")
    if pod is None:
        if not template.has("spec"):
            findings.add_problem(template.path("spec"), "missing: expected a pod spec with its containers")
        return None
    containers = list(pod.mappings("containers"))
    if not containers:
        findings.add_problem(pod.path("containers"), "expected at least one container")
        return None
    names = [_name(container, findings) for container in containers]
    _check_types(containers, pod, metadata, findings)
    has_right_types = len(findings.problems) == before
    _check_reserved(containers, pod, findings)
    _check_memory(containers, pod, findings)
    main = containers[_main_index(names, metadata)]
    command = _command(main, findings, images, _pull_source(pod))
    if not has_right_types:
        return None
    _note_changes(pod, findings)
    _note_other_containers(containers, main, findings)
    return UserTemplate(_without_host_names(template.values), str(main.values["name"]), tuple(command) or ("true",))


def _name(container: Fields, findings: Findings) -> str:
    name = container.text("name")
    if not container.has("name"):
        findings.add_problem(container.path("name"), "missing: expected the container's name")
    return name or ""


def _check_types(containers: list[Fields], pod: Fields, metadata: Fields | None, findings: Findings) -> None:
    """Check the types of the fields that this package reads. The API server checks all other fields."""
    pod.integer("terminationGracePeriodSeconds")
    for name in ("restartPolicy", "hostname", "subdomain", "schedulerName", "dnsPolicy"):
        pod.text(name)
    if metadata:
        for name in ("labels", "annotations"):
            metadata.mapping(name)
    for holder in (pod, *containers):
        security = holder.mapping("securityContext")
        if security:
            security.integer("runAsUser")
            security.mapping("capabilities")
    for container in containers:
        container.text("image")
        list(container.mappings("volumeMounts"))
        for port in container.mappings("ports"):
            port.integer("containerPort")
        for variable in container.mappings("env"):
            if not variable.text("name") and not variable.has("name"):
                findings.add_problem(variable.path("name"), "missing: expected the variable's name")
            variable.text("value")


def _check_reserved(containers: list[Fields], pod: Fields, findings: Findings) -> None:
    for container in [*containers, *pod.mappings("initContainers")]:
        if container.values.get("name") == INJECT:
            findings.add_problem(container.path("name"), f"{INJECT!r}: {_RESERVED}")
    for volume in pod.mappings("volumes"):
        if volume.values.get("name") in (INJECT, SECRET_VOLUME, sample_set.VOLUME):
            findings.add_problem(volume.path("name"), f"{volume.values['name']!r}: {_RESERVED}")
    for container in containers:
        for mount in container.mappings("volumeMounts"):
            if str(mount.values.get("mountPath")).rstrip("/") == INJECT_FOLDER:
                findings.add_problem(mount.path("mountPath"), f"{INJECT_FOLDER!r}: {_RESERVED}")


def _check_memory(containers: list[Fields], pod: Fields, findings: Findings) -> None:
    for container in [*containers, *pod.mappings("initContainers")]:
        resources = container.mapping("resources")
        for name in ("requests", "limits"):
            check_memory(resources.mapping(name) if resources else None, "memory", findings)
    for volume in pod.mappings("volumes"):
        folder = volume.mapping("emptyDir")
        if folder and folder.values.get("medium") == "Memory":
            check_memory(folder, "sizeLimit", findings)


def check_memory(fields: Fields | None, name: str, findings: Findings) -> None:
    """Add a problem if the field is too little memory for any program."""
    if fields and (problem := too_little(fields.values.get(name))):
        findings.add_problem(fields.path(name), problem)


def _main_index(names: list[str], metadata: Fields | None) -> int:
    """Return the index of the container that trains: kubectl's default container, else `paddle`, else the first."""
    annotations = metadata.mapping("annotations") if metadata else None
    for name in (annotations.values.get(DEFAULT_CONTAINER) if annotations else None, _MAIN_CONTAINER):
        if name in names:
            return names.index(name)
    return 0


def _command(container: Fields, findings: Findings, images: ImageCommands, source: PullSource) -> list[str]:
    """Return the command and its arguments, as Kubernetes runs them, or [] after adding a problem."""
    before = len(findings.problems)
    command, arguments = container.texts("command"), container.texts("args")
    if len(findings.problems) > before:
        return []
    if command:
        return [*command, *arguments]
    image = container.values.get("image") or ""
    if not isinstance(image, str):
        return []
    try:
        return images.words(image, arguments, source)
    except Unknown as reason:
        findings.add_problem(container.path("command"), str(reason))
        return []


def _pull_source(pod: Fields) -> PullSource:
    names = tuple(secret.text("name") or "" for secret in pod.mappings("imagePullSecrets"))
    return PullSource(tuple(filter(None, names)), pod.text("serviceAccountName") or "")


def _note_changes(pod: Fields, findings: Findings) -> None:
    policy = pod.text("restartPolicy")
    if policy not in (None, "Never"):
        findings.add_note(
            pod.path("restartPolicy"),
            f"{policy}: replaced by Never: the launcher restarts the program itself (LAUNCHER_MAX_RESTARTS), and the "
            "Job replaces failed pods",
        )
    for name in ("hostname", "subdomain"):
        if pod.has(name):
            findings.add_note(
                pod.path(name), f"{pod.values[name]}: replaced: the pods find each other by names that the job sets"
            )
    dns_policy = pod.values.get("dnsPolicy")
    if dns_policy == "Default" or (dns_policy == "ClusterFirst" and pod.values.get("hostNetwork")):
        findings.add_note(
            pod.path("dnsPolicy"),
            f"{dns_policy}: kept, but the pods need cluster DNS to find each other, and this policy does not use it: "
            "use ClusterFirst, or ClusterFirstWithHostNet with hostNetwork",
        )


def _note_other_containers(containers: list[Fields], main: Fields, findings: Findings) -> None:
    for other in containers:
        if other is not main:
            findings.add_note(
                other.path("name"),
                f"{other.values['name']}: kept, but the Job ends only after this container has ended, too: if this "
                "container never ends, move it to initContainers, with restartPolicy: Always",
            )


def _without_host_names(template: Json) -> Json:
    kept = {"metadata": {}} | {name: value for name, value in copy.deepcopy(template).items() if value is not None}
    for name in ("hostname", "subdomain"):
        kept["spec"].pop(name, None)
    return kept
