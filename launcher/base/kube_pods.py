"""Read pod objects of the API: a pod's number, its state, and why it does not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launcher.model import BOTH

Json = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
ORDINAL = "apps.kubernetes.io/pod-index"
STATEFUL_NAME = "statefulset.kubernetes.io/pod-name"
_REVISION = "controller-revision-hash"
_MAIN = "kubectl.kubernetes.io/default-container"
_POD_NOT_READY = ("ContainersNotReady", "ReadinessGatesNotReady")  # reasons that come from the pod, not from its node
_LONGEST = 300  # at most this many characters of a reason: some reasons list all nodes


LIVE = "live"  # the pod's main container runs, or will run
LEAVING = "leaving"  # the pod is being deleted
ENDED = "ended"  # the pod's main container has ended and will not be restarted; sidecars do not count


@dataclass(frozen=True)
class Pod:
    """The fields of a pod that discovery needs.

    number: the index in an Indexed Job or the ordinal in a StatefulSet, 0 for the first pod
    job: the identity of the job, see `job_identity`
    reason: why the pod does not run yet, or how it ended
    role: LAUNCHER_ROLE in the environment of the main container
    exit_code: the exit code of the main container, once the container has ended
    """

    uid: str
    name: str
    state: str
    address: str
    number: int | None
    job: str | None
    created: str
    reason: str
    role: str = BOTH
    exit_code: int | None = None


def read_pod(seen: Json, job_id: str | None) -> Pod:
    """Read a pod object of the API.

    job_id: the identity that the user has set, or None. If set, `job_id` replaces the controller's uid as identity.
    """
    meta, status = seen["metadata"], seen.get("status") or {}
    state = _state(seen)
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        state=state,
        address=status.get("podIP") or "",
        number=pod_number(seen),
        job=job_id or job_identity(seen),
        created=meta.get("creationTimestamp") or "",
        reason=describe_end(seen) if state == ENDED else describe_wait(seen),
        role=pod_role(seen),
        exit_code=((main_container_status(seen).get("state") or {}).get("terminated") or {}).get("exitCode"),
    )


def controller_reference(seen: Json) -> Json:
    """Return the owner reference of the pod's controller, or {} if the pod has no controller."""
    references = seen["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), {})


def job_identity(seen: Json) -> str | None:
    """Return the identity of the job: the uid of the pod's controller, or None if there is no controller.

    For a StatefulSet, the revision follows the uid.
    """
    by = controller_reference(seen)
    revision = pod_labels(seen).get(_REVISION)
    if by.get("kind") == "StatefulSet" and revision:
        return f"{by['uid']}-{revision}"
    return by.get("uid")


def pod_number(seen: Json) -> int | None:
    """Return the index in an Indexed Job, the ordinal in a StatefulSet, or None.

    The pod's name is not enough: the random suffix of a plain Job's pod may consist of digits only.
    """
    labelled = pod_labels(seen)
    annotated = seen["metadata"].get("annotations") or {}
    for text in (labelled.get(INDEX), annotated.get(INDEX), labelled.get(ORDINAL)):
        if text and text.isdigit():
            return int(text)
    by = controller_reference(seen)
    name = seen["metadata"]["name"]
    stateful = labelled.get(STATEFUL_NAME) == name or by.get("kind") == "StatefulSet"
    digits = name.rpartition("-")[2]
    return int(digits) if stateful and digits.isdigit() else None


def pod_role(seen: Json) -> str:
    """Return LAUNCHER_ROLE of the main container, or BOTH if the pod object does not show it.

    The pod object does not show a value that comes from a ConfigMap.
    """
    env = main_container(seen).get("env") or []
    return next((each.get("value") for each in env if each["name"] == "LAUNCHER_ROLE" and each.get("value")), BOTH)


def pod_labels(seen: Json) -> dict[str, str]:
    return seen["metadata"].get("labels") or {}


def describe_wait(seen: Json) -> str:
    """Return why the pod does not run yet, in the words of Kubernetes, or "" if nothing delays it."""
    status = seen.get("status") or {}
    pending = status.get("phase", "Pending") == "Pending"
    phase = "Pending" if pending else "waiting"
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("status") == "False":
            return _reason(phase, condition.get("reason"), condition.get("message"))
    for container in status.get("initContainerStatuses") or []:
        said = _held_up(container)
        if said or (pending and "running" in (container.get("state") or {})):
            return _reason(phase, f"init container {container['name']}", said or "runs")
    own = main_container_status(seen)
    said = _held_up(own)
    if said:
        return _reason(phase, f"container {own['name']}", said)
    return phase if pending else ""


def describe_end(seen: Json) -> str:
    """Return how the pod ended, or what will end it soon. Return "" if nothing shows an end."""
    status = seen.get("status") or {}
    own = main_container_status(seen)
    said = [_reason(status.get("reason"), status.get("message")), _disruption(status)]
    state = own.get("state") or {}
    said.append(_ended(state.get("terminated")))
    if not state.get("terminated"):
        before = _ended((own.get("lastState") or {}).get("terminated"))
        said.append(f"its container was restarted; before the restart: {before}" if before else "")
    if seen["metadata"].get("deletionTimestamp"):
        said.append("it is being deleted")
    return "; ".join(part for part in said if part)


def describe_silent_node(seen: Json) -> str:
    """Return a sentence if the pod's node does not answer, else "".

    If a node does not answer, Kubernetes sets its pods to not ready. Their containers still count as ready.
    """
    own = main_container_status(seen)
    conditions = (seen.get("status") or {}).get("conditions") or []
    lost = any(
        condition["type"] == "Ready"
        and condition["status"] == "False"
        and condition.get("reason") not in _POD_NOT_READY
        for condition in conditions
    )
    fine = own.get("ready") and "running" in (own.get("state") or {})
    return f"its node {seen['spec'].get('nodeName')} does not answer" if lost and fine else ""


def main_container(seen: Json) -> Json:
    """Return the spec of the main container, which runs the launcher. kubectl uses the same container by default."""
    containers: list[Json] = (seen.get("spec") or {}).get("containers") or [{}]
    name = (seen["metadata"].get("annotations") or {}).get(_MAIN)
    return next((container for container in containers if container.get("name") == name), containers[0])


def main_container_status(seen: Json) -> Json:
    """Return the status of the main container, or {} if there is no status yet."""
    name = main_container(seen).get("name")
    statuses = (seen.get("status") or {}).get("containerStatuses") or []
    return next((status for status in statuses if status["name"] == name), {})


def _state(seen: Json) -> str:
    if seen["metadata"].get("deletionTimestamp"):
        return LEAVING
    if (seen.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return ENDED
    over = (main_container_status(seen).get("state") or {}).get("terminated")
    policy = (seen.get("spec") or {}).get("restartPolicy", "Always")
    comes_back = policy == "Always" or (policy == "OnFailure" and over and over.get("exitCode"))
    return ENDED if over and not comes_back else LIVE


def _held_up(container: Json) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    if not waiting or waiting.get("reason") == "PodInitializing":
        return ""
    before = _ended((container.get("lastState") or {}).get("terminated"))
    said = _reason(waiting.get("reason"), waiting.get("message"))
    return f"{said} (before: {before})" if before else said


def _disruption(status: Json) -> str:
    for condition in status.get("conditions") or []:
        if condition["type"] == "DisruptionTarget" and condition.get("status") == "True":
            return _reason(condition.get("reason"), condition.get("message"))
    return ""


def _ended(terminated: Json | None) -> str:
    if not terminated:
        return ""
    reason = terminated.get("reason") or "Ended"
    return f"{reason}, exit code {terminated.get('exitCode')}"


def _reason(*parts: str | None) -> str:
    text = " ".join(": ".join(part for part in parts if part).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
