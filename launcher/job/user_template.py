"""A user's podTemplateSpec: which container trains and what it runs, and what of the template a gang cannot keep."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from launcher.job.findings import Fields, Found
from launcher.job.pod_template import BROUGHT, BROUGHT_TO, DEFAULT_CONTAINER, SECRET_VOLUME
from launcher.job.spec import Json

TRAINS = "paddle"  # the name of the container that trains, by the operator's own examples


@dataclass(frozen=True)
class Template:
    """What a role needs to know of its template."""

    pod: Json
    container: str
    command: tuple[str, ...]


def read(template: Fields, found: Found, entrypoint: tuple[str, ...]) -> Template | None:
    """None where something is wrong; `entrypoint` is for containers without a command."""
    before = len(found.problems)
    metadata, spec = template.mapping("metadata"), template.mapping("spec")
    if spec is None:
        if not template.has("spec"):
            found.problem(template.path("spec"), "missing: expected a pod's specification with its containers")
        return None
    containers = list(spec.each("containers"))
    if not containers:
        found.problem(spec.path("containers"), "expected a container")
        return None
    names = [_name(container, found) for container in containers]
    _check_types(containers, spec, metadata, found)
    _check_clashes(containers, spec, found)
    if len(found.problems) > before:
        return None
    main = containers[_main(names, metadata)]
    words = _command(main, found, entrypoint)
    if not words:
        return None
    _say_what_changes(spec, found)
    _say_of_others(containers, main, found)
    return Template(_kept(template.values), str(main.values["name"]), tuple(words))


def _name(container: Fields, found: Found) -> str:
    name = container.text("name")
    if not container.has("name"):
        found.problem(container.path("name"), "missing: expected the container's name")
    return name or ""


def _check_types(containers: list[Fields], spec: Fields, metadata: Fields | None, found: Found) -> None:
    """Of those fields that are looked at later: all others are for the API server to judge."""
    spec.whole("terminationGracePeriodSeconds")
    spec.mapping("securityContext")
    for name in ("restartPolicy", "hostname", "subdomain", "schedulerName", "dnsPolicy"):
        spec.text(name)
    if metadata:
        for name in ("labels", "annotations"):
            metadata.mapping(name)
    for container in containers:
        list(container.each("volumeMounts"))
        list(container.each("ports"))
        for variable in container.each("env"):
            if not variable.text("name") and not variable.has("name"):
                found.problem(variable.path("name"), "missing: expected the variable's name")
            variable.text("value")


def _check_clashes(containers: list[Fields], spec: Fields, found: Found) -> None:
    """Names and places that the launcher needs for itself."""
    ours = "the launcher needs this for itself: choose another"
    for entry in [*containers, *spec.each("initContainers")]:
        if entry.values.get("name") == BROUGHT:
            found.problem(entry.path("name"), f"{BROUGHT!r}: {ours}")
    for entry in spec.each("volumes"):
        if entry.values.get("name") in (BROUGHT, SECRET_VOLUME):
            found.problem(entry.path("name"), f"{entry.values['name']!r}: {ours}")
    for container in containers:
        for mount in container.each("volumeMounts"):
            if str(mount.values.get("mountPath")).rstrip("/") == BROUGHT_TO:
                found.problem(mount.path("mountPath"), f"{BROUGHT_TO!r}: {ours}")


def _main(names: list[str], metadata: Fields | None) -> int:
    """The container that trains: the one that kubectl is told of, else the one named so, else the first."""
    annotations = (metadata.values.get("annotations") if metadata else None) or {}
    for name in (annotations.get(DEFAULT_CONTAINER), TRAINS):
        if name in names:
            return names.index(name)
    return 0


def _command(container: Fields, found: Found, entrypoint: tuple[str, ...]) -> list[str]:
    """What Kubernetes would run: `command` in the place of the image's ENTRYPOINT, then `args`."""
    before = len(found.problems)
    command, arguments = container.texts("command"), container.texts("args")
    if len(found.problems) > before:
        return []
    if not command and not entrypoint:
        runs = "ENTRYPOINT with these args" if arguments else "ENTRYPOINT"
        found.problem(
            container.path("command"),
            f"missing: the image's own {runs} would run, and that cannot be seen from here: write it as the command, "
            'or give it by --entrypoint, as in --entrypoint "python3 train.py"',
        )
        return []
    return [*(command or entrypoint), *arguments]


def _say_what_changes(spec: Fields, found: Found) -> None:
    policy = spec.text("restartPolicy")
    if policy not in (None, "Never"):
        found.note(
            spec.path("restartPolicy"),
            f"{policy}: the pods of such a Job need Never: the launcher starts the program again itself "
            "(LAUNCHER_MAX_RESTARTS), and the Job makes new pods",
        )
    for name in ("hostname", "subdomain"):
        if spec.has(name):
            found.note(
                spec.path(name), f"{spec.values[name]}: replaced: the pods find each other by names of their own"
            )
    if spec.values.get("dnsPolicy") == "Default" or (
        spec.values.get("dnsPolicy") == "ClusterFirst" and spec.values.get("hostNetwork")
    ):
        found.note(
            spec.path("dnsPolicy"),
            f"{spec.values['dnsPolicy']}: the pods find each other by names of the cluster, which this does not know: "
            "use ClusterFirst, on the nodes' own network ClusterFirstWithHostNet",
        )


def _say_of_others(containers: list[Fields], main: Fields, found: Found) -> None:
    for other in containers:
        if other is not main:
            found.note(
                other.path("name"),
                f"{other.values['name']}: kept, but the Job is over only when this container has ended, too: "
                "one that runs on belongs into initContainers, with restartPolicy: Always",
            )


def _kept(template: Json) -> Json:
    """The template without what is said of above: nothing else is changed."""
    made = {"metadata": {}} | {name: value for name, value in copy.deepcopy(template).items() if value is not None}
    for name in ("hostname", "subdomain"):
        made["spec"].pop(name, None)
    return made
