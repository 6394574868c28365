"""Change the number of pods of an elastic job."""

from __future__ import annotations

from launcher.base.kube import KubeClient
from launcher.config.parsers import sizes
from launcher.errors import Exit, Failure
from launcher.job import kueue
from launcher.job.lookup import find_workloads
from launcher.job.recognition import Workload
from launcher.job.state import COMPLETE, FAILED, SUSPENDED

_RANGE = "CONF_PADDLE_GRADIENT_NUM"
_QUEUED = "The job is in a queue of Kueue, which may stop all pods first, and start them when the queue has room"


def scale(client: KubeClient, name: str, count: int) -> str:
    """Set the number of pods that train, and return what will happen. Raises Failure if the job does not allow it."""
    workload = _trainers(name, find_workloads(client, name))
    least, most = _range(client, name, workload)
    if workload.phase in (COMPLETE, FAILED):
        raise Failure(Exit.CONFIG, f"{name}: its size cannot change: the job is {workload.phase}: submit it again")
    if not least <= count <= most:
        raise Failure(
            Exit.USAGE,
            f"{name}: {count}: expected {least} to {most} pods, the range of {_RANGE}: to train with another number, "
            "delete the job and submit it with another range",
        )
    before = workload.members
    if count == before and _is_set(workload, count):
        return f"{name}: has {_pods(count)} already"
    change = {"replicas": count} if workload.kind == "StatefulSet" else {"parallelism": count, "completions": count}
    client.patch(workload.kind, workload.name, {"spec": change})
    queued = f". {_QUEUED}" if kueue.queue_of(workload.seen) else ""
    return f"{name}: {before} -> {_pods(count)}: {_what_follows(workload, count - before)}{queued}"


def _trainers(name: str, group: list[Workload]) -> Workload:
    """Return the Job or StatefulSet whose pods train. Servers keep their number."""
    training = [workload for workload in group if workload.trains]
    if len(training) == 1:
        return training[0]
    if not training:
        listed = "no trainers"
    else:
        listed = "several objects: " + ", ".join(f"{each.kind} {each.name}" for each in training)
    raise Failure(Exit.CONFIG, f"{name}: its size cannot change: it has {listed}: expected one Job or StatefulSet")


def _range(client: KubeClient, name: str, workload: Workload) -> tuple[int, int]:
    """Return the least and the most pods. Raises Failure if the job is not elastic."""
    text = workload.value(_RANGE)
    if not text:
        raise Failure(
            Exit.CONFIG,
            f"{name}: its range is not known: {workload.kind} {workload.name} has no value for {_RANGE} in its `env`, "
            f"perhaps because a ConfigMap sets it: use `kubectl -n {client.namespace}` as docs/elastic.md shows",
        )
    try:
        least, most = sizes(text)
    except ValueError:
        raise Failure(Exit.CONFIG, f"{name}: {_RANGE}: {text!r}: expected LEAST:MOST, such as 2:5") from None
    advice = "delete it, and submit it"
    if least == most:
        raise Failure(
            Exit.CONFIG,
            f"{name}: its size cannot change: it is not elastic: {_RANGE} is {text}: {advice} with a range, such as "
            f"{text.strip()}:{most + 2}",
        )
    if workload.kind == "Job" and (workload.seen.get("spec") or {}).get("completionMode") != "Indexed":
        raise Failure(
            Exit.CONFIG,
            f"{name}: its size cannot change: Kubernetes changes the size of Indexed Jobs only: {advice} with "
            "completionMode: Indexed",
        )
    return least, most


def _is_set(workload: Workload, count: int) -> bool:
    """Return whether the object already asks for so many pods. Kueue may have changed only one of the two numbers."""
    spec = workload.seen.get("spec") or {}
    return workload.kind == "StatefulSet" or spec.get("parallelism") == spec.get("completions") == count


def _what_follows(workload: Workload, more: int) -> str:
    if more < 0:
        return f"{_pods(-more)} fewer: the others continue without {_it(-more)}, from the last saved pass"
    if workload.phase == SUSPENDED:
        return "they start when the job is no longer suspended"
    if not workload.folder:
        return f"{_pods(more)} more: {_they(more)} at once, and training begins again, since JOB_PATH is unset"
    return f"{_pods(more)} more: {_they(more)} when the running pass is saved"


def _pods(count: int) -> str:
    return f"{count} {'pod' if count == 1 else 'pods'}"


def _it(count: int) -> str:
    return "it" if count == 1 else "them"


def _they(count: int) -> str:
    return "it joins" if count == 1 else "they join"
