"""A pod object of the API in the finder's words: does it count, what number has it, why is it not there."""

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
_ITS_OWN = ("ContainersNotReady", "ReadinessGatesNotReady")  # why a pod is not ready on a node that is well
_LONGEST = 300  # characters of a reason: some list every node


LIVE = "live"  # its own container runs, is about to, or will be started again
LEAVING = "leaving"  # being deleted
ENDED = "ended"  # its own container is over for good, whatever sidecars do


@dataclass(frozen=True)
class Pod:
    """One pod of the selection. `why` says what holds it up or how it ended; `job` is what controls it."""

    uid: str
    name: str
    state: str
    address: str
    number: int | None
    job: str | None
    created: str
    why: str
    role: str = BOTH  # as its own container is told
    code: int | None = None  # with which its own container has ended


def pod(seen: Json, job_id: str | None) -> Pod:
    """What the launcher needs of a pod object."""
    meta, status = seen["metadata"], seen.get("status") or {}
    state = _state(seen)
    return Pod(
        uid=meta["uid"],
        name=meta["name"],
        state=state,
        address=status.get("podIP") or "",
        number=number(seen),
        job=job_id or controller(seen),
        created=meta.get("creationTimestamp") or "",
        why=became(seen) if state == ENDED else waits_for(seen),
        role=role(seen),
        code=((own_container(seen).get("state") or {}).get("terminated") or {}).get("exitCode"),
    )


def owner(seen: Json) -> Json:
    """The reference to what controls this pod; empty for a pod on its own."""
    references = seen["metadata"].get("ownerReferences") or []
    return next((reference for reference in references if reference.get("controller")), {})


def controller(seen: Json) -> str | None:
    """The identity of the job: who controls the pod, for a StatefulSet with its revision."""
    by = owner(seen)
    revision = labels(seen).get(_REVISION)
    if by.get("kind") == "StatefulSet" and revision:
        return f"{by['uid']}-{revision}"
    return by.get("uid")


def number(seen: Json) -> int | None:
    """Index of an Indexed Job, ordinal of a StatefulSet. Never by the name alone: random suffixes can be all digits."""
    given = labels(seen)
    annotated = seen["metadata"].get("annotations") or {}
    for text in (given.get(INDEX), annotated.get(INDEX), given.get(ORDINAL)):
        if text and text.isdigit():
            return int(text)
    by = owner(seen)
    name = seen["metadata"]["name"]
    stateful = given.get(STATEFUL_NAME) == name or by.get("kind") == "StatefulSet"
    digits = name.rpartition("-")[2]
    return int(digits) if stateful and digits.isdigit() else None


def role(seen: Json) -> str:
    """What LAUNCHER_ROLE says in the own container's own variables; what a ConfigMap gives cannot be seen here."""
    given = own_container_spec(seen).get("env") or []
    return next((each.get("value") for each in given if each["name"] == "LAUNCHER_ROLE" and each.get("value")), BOTH)


def labels(seen: Json) -> dict[str, str]:
    """The labels of a pod."""
    return seen["metadata"].get("labels") or {}


def waits_for(seen: Json) -> str:
    """Why the pod is not running yet, as Kubernetes says it; empty when nothing holds it up."""
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
    own = own_container(seen)
    said = _held_up(own)
    if said:
        return _reason(phase, f"container {own['name']}", said)
    return phase if pending else ""


def became(seen: Json) -> str:
    """How the pod ended, or what is about to end it; empty when it seems well."""
    status = seen.get("status") or {}
    own = own_container(seen)
    said = [_reason(status.get("reason"), status.get("message")), _disruption(status)]
    state = own.get("state") or {}
    said.append(_ended(state.get("terminated")))
    if not state.get("terminated"):
        before = _ended((own.get("lastState") or {}).get("terminated"))
        said.append(f"its container was started again, before: {before}" if before else "")
    if seen["metadata"].get("deletionTimestamp"):
        said.append("it is being deleted")
    return "; ".join(part for part in said if part)


def silent_node(seen: Json) -> str:
    """A pod that is not ready any more while its container is said to be fine: its node has gone silent."""
    own = own_container(seen)
    conditions = (seen.get("status") or {}).get("conditions") or []
    lost = any(
        condition["type"] == "Ready" and condition["status"] == "False" and condition.get("reason") not in _ITS_OWN
        for condition in conditions
    )
    fine = own.get("ready") and "running" in (own.get("state") or {})
    return f"its node {seen['spec'].get('nodeName')} does not answer" if lost and fine else ""


def own_container_spec(seen: Json) -> Json:
    """The launcher's container: the pod's main one, as kubectl chooses it. Sidecars do not count."""
    containers: list[Json] = (seen.get("spec") or {}).get("containers") or [{}]
    name = (seen["metadata"].get("annotations") or {}).get(_MAIN)
    return next((container for container in containers if container.get("name") == name), containers[0])


def own_container(seen: Json) -> Json:
    """The status of the launcher's container."""
    name = own_container_spec(seen).get("name")
    statuses = (seen.get("status") or {}).get("containerStatuses") or []
    return next((status for status in statuses if status["name"] == name), {})


def _state(seen: Json) -> str:
    if seen["metadata"].get("deletionTimestamp"):
        return LEAVING
    if (seen.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return ENDED
    over = (own_container(seen).get("state") or {}).get("terminated")
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
