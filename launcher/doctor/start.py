"""Why the pod of `doctor` did not run, and what mends it: admission, scheduling, image, start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from launcher.doctor import mend
from launcher.doctor.place import Place, bring_launcher, describe_claims
from launcher.doctor.pod import Visit
from launcher.doctor.report import OK, WRONG, Check
from launcher.doctor.settings import account_of
from launcher.job.pod_template import INJECT
from launcher.job.recognition import template_of


def start(place: Place, seen: Visit) -> Iterator[Check]:
    """Whether the pod came to life: admission, scheduling, image, start."""
    namespace = place.namespace
    if seen.stage == "create":
        yield Check("pod", WRONG, f"the Job of the check cannot be created: {seen.message}", _allowed(place))
        return
    if seen.stage == "admission":
        yield Check("pod", WRONG, f"the pod was refused: {seen.message}", _admission(place, seen.message))
        return
    if seen.stage == "schedule":
        yield Check("pod", WRONG, f"no node takes the pod: {seen.message}", _scheduling(place, seen.message))
        return
    if seen.stage == "image":
        yield Check("pod", OK, f"a node takes the pods: {seen.node}")
        yield Check("image", WRONG, f"cannot be pulled: {seen.message or seen.reason}", _image(place, seen))
        return
    if seen.stage == "time":
        if seen.began:
            yield Check("pod", OK, f"ran on {seen.node}")
            yield Check("image", OK, place.image)
        else:
            what = f"was not ready in time: {seen.message or 'nothing says why'}"
            yield Check("pod", WRONG, what, _waiting(place, seen.message))
        return
    yield Check("pod", OK, f"ran on {seen.node or 'a node'}, as the pods of the job will")
    yield Check("image", OK, place.image)
    if seen.stage == "start":
        text = f"the image has no python3 in its PATH, and so no launcher: {seen.message}"
        if re.search(r"executable file not found|no such file or directory", seen.message):
            yield Check("launcher", WRONG, text, bring_launcher(place))
        else:
            command = mend.kubectl(namespace, "get", "events", "--sort-by=.lastTimestamp")
            yield Check("launcher", WRONG, f"the container cannot start: {seen.message}", (command,))


def _allowed(place: Place) -> tuple[str, ...]:
    return (
        mend.kubectl(place.namespace, "auth", "can-i", "--list"),
        f"an admin: {mend.kubectl(place.namespace, 'apply', '-k', 'k8s/submitter')}, with your name in it",
    )


def _admission(place: Place, message: str) -> tuple[str, ...]:
    if "PodSecurity" in message:
        level = "privileged" if "privileged" in message else "baseline"
        label = f"pod-security.kubernetes.io/enforce={level}"
        return (
            *mend.edit(place.subject, place.workload, "set the fields that the message names"),
            f"or an admin: kubectl label --overwrite namespace {place.namespace} {label}",
        )
    if found := re.search(r'serviceaccount "([^"]+)" not found', message):
        return (mend.kubectl(place.namespace, "create", "serviceaccount", found[1]),)
    if "quota" in message:
        return (mend.kubectl(place.namespace, "describe", "resourcequota"),)
    return (mend.kubectl(place.namespace, "get", "events", "--field-selector=type=Warning"),)


def _scheduling(place: Place, message: str) -> tuple[str, ...]:
    selector: Mapping[str, str] = (template_of(place.workload.seen).get("spec") or {}).get("nodeSelector") or {}
    if selector and re.search(r"node affinity|node selector", message):
        labels = " ".join(f"{key}={value}" for key, value in selector.items())
        return (
            f"kubectl get nodes -l {','.join(labels.split())}",
            f"kubectl label node NODE {labels}  # NODE: one that may run the pods",
        )
    if found := re.search(r'persistentvolumeclaim "([^"]+)"', message):
        return (mend.kubectl(place.namespace, "describe", "pvc", found[1]),)
    if "PersistentVolumeClaims" in message:
        return (mend.kubectl(place.namespace, "get", "pvc"),)
    return ("kubectl describe nodes | grep -A9 'Allocated resources'",)


def _waiting(place: Place, message: str) -> tuple[str, ...]:
    if found := re.search(
        r"references non-existent (?:secret|config) key|(secret|configmap) \"([^\"]+)\" not found", message
    ):
        return (mend.kubectl(place.namespace, "get", found[1] or "secret"),)
    if re.search(r"mount|volume", message, re.IGNORECASE):
        claims = describe_claims(place)
        return claims or (mend.kubectl(place.namespace, "get", "events", "--field-selector=type=Warning"),)
    return (mend.kubectl(place.namespace, "get", "events", "--field-selector=type=Warning"),)


def _brings_launcher(place: Place, image: str) -> bool:
    """Return whether this is the image of the init container that `render` and `submit` add."""
    inits = (template_of(place.workload.seen).get("spec") or {}).get("initContainers") or []
    return any(init.get("name") == INJECT and image.endswith(str(init.get("image"))) for init in inits)


def _image(place: Place, seen: Visit) -> tuple[str, ...]:
    image, said = seen.reason or place.image, seen.message.lower()
    if place.subject.is_paddlejob and _brings_launcher(place, image):
        return (
            f"add --no-inject, here and to submit, if {place.image} has the launcher",
            "or add --launcher-image IMAGE: an image of docker/inject.Dockerfile, with your own name",
            f"or docker push {image}",
        )
    if "invalid" in said and "image" in said and "parse" in said:
        return mend.edit(place.subject, place.workload, "correct the name of the image")
    if any(word in said for word in ("unauthorized", "authorization", "denied", "forbidden", "401", "403")):
        registry = image.split("/")[0] if "/" in image else "REGISTRY"
        words = ["create", "secret", "docker-registry", "registry-login", f"--docker-server={registry}"]
        words += ["--docker-username=USER", "--docker-password=PASSWORD"]
        patch = {"imagePullSecrets": [{"name": "registry-login"}]}
        account = account_of(place.workload)
        return (
            mend.kubectl(place.namespace, *words),
            mend.patch(place.namespace, "serviceaccount", account, patch),
        )
    return (
        f"docker push {image}",
        *mend.edit(place.subject, place.workload, "or name an image that the nodes can pull"),
    )
