"""The commands that mend what `doctor` finds. Each is one line that a shell takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from launcher.base import kube_pods
from launcher.doctor.subject import Subject
from launcher.job.recognition import Workload, template_of
from launcher.job.spec import Json


def kubectl(namespace: str, *words: str) -> str:
    return shlex.join(["kubectl", "-n", namespace, *words])


def apply(namespace: str, *objects: Json) -> str:
    """Return a command that creates the objects."""
    made: Json = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": [*objects]}
    return f"echo {shlex.quote(json.dumps(made))} | kubectl -n {shlex.quote(namespace)} apply -f -"


def patch(namespace: str, kind: str, name: str, change: Json) -> str:
    return kubectl(namespace, "patch", kind.lower(), name, "--type=merge", "-p", json.dumps(change))


def set_variable(subject: Subject, workload: Workload, namespace: str, variable: str, value: str) -> tuple[str, ...]:
    """Return how to set a variable of the pods."""
    assignment = f"{variable}={value}"
    return _change_variable(subject, workload, namespace, assignment, f"set {assignment} in")


def remove_variable(subject: Subject, workload: Workload, namespace: str, variable: str) -> tuple[str, ...]:
    """Return how to remove a variable from the pods."""
    main = kube_pods.main_container(template_of(workload.seen))
    if variable not in {each.get("name") for each in main.get("env") or []}:
        return edit(subject, workload, f"remove {variable} from the ConfigMap that sets it")
    return _change_variable(subject, workload, namespace, f"{variable}-", f"remove {variable} from")


def _change_variable(
    subject: Subject, workload: Workload, namespace: str, assignment: str, change: str
) -> tuple[str, ...]:
    """assignment: as `kubectl set env` takes it. change: the same in words, before the place."""
    container = str(kube_pods.main_container(template_of(workload.seen)).get("name"))
    change = f"{change} the env of container {container}"
    if subject.file and _only_pods(subject):
        words = ["set", "env", "--local", "-f", subject.file, "-c", container, assignment, "-o", "yaml"]
        return (f"{shlex.join(['kubectl', *words])} > mended.yaml",)
    if subject.file:
        return edit(subject, workload, change)
    if workload.kind == "StatefulSet":
        return (kubectl(namespace, "set", "env", f"statefulset/{workload.name}", "-c", container, assignment),)
    return edit(subject, workload, change)


def edit(subject: Subject, workload: Workload, change: str) -> tuple[str, ...]:
    """Return the change of a file that the user has to make. The pods of a Job cannot be changed in the cluster."""
    if subject.is_paddlejob:
        return (f"in {subject.file}: {change}",)
    if subject.file:
        return (f"in {subject.file}, {workload.kind} {workload.name}: {change}",)
    again = "then `kubectl replace --force -f` that file"
    return (f"in the file that made {workload.kind} {workload.name}: {change}; {again}",)


def headless_service(namespace: str, name: str, selector: Json) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector},
    }


def pods_reader(namespace: str, account: str) -> tuple[str, str]:
    """Return the commands that let a service account read the pods of its namespace."""
    name = f"{account}-reads-pods"
    return (
        kubectl(namespace, "create", "role", name, "--verb=get,list,watch", "--resource=pods"),
        kubectl(namespace, "create", "rolebinding", name, f"--role={name}", f"--serviceaccount={namespace}:{account}"),
    )


def as_root(namespace: str, workload: Workload, command: Sequence[str]) -> str:
    """Return a command that runs a short pod as root, with the volumes of the job."""
    template = template_of(workload.seen)
    main = kube_pods.main_container(template)
    claims = {each["name"]: each for each in template["spec"].get("volumes") or [] if _is_durable(each)}
    mounts = [mount for mount in main.get("volumeMounts") or [] if mount["name"] in claims]
    name = "paddle-mend"
    container = {
        "name": name,
        "image": workload.image,
        "command": [*command],
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
        "volumeMounts": [{"name": mount["name"], "mountPath": mount["mountPath"]} for mount in mounts],
    }
    spec = {"containers": [container], "volumes": [claims[mount["name"]] for mount in mounts]}
    words = ["run", name, "--rm", "-i", "--restart=Never", f"--image={container['image']}"]
    return kubectl(namespace, *words, f"--overrides={json.dumps({'spec': spec})}")


def _is_durable(volume: Json) -> bool:
    return not {"emptyDir", "secret", "configMap", "projected", "downwardAPI"} & set(volume)


def _only_pods(subject: Subject) -> bool:
    """Return whether kubectl can set variables in the whole file: it refuses files with other objects."""
    kinds = {document.get("kind") for document in subject.documents}
    return (
        not subject.is_paddlejob
        and kinds <= {"Job", "StatefulSet"}
        and subject.file != "standard input"
        and (len(subject.workloads) == 1)
    )
