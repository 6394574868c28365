"""Create all objects of a job in a cluster, or none of them. Delete them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from launcher.base.kube import KINDS, KubeClient
from launcher.base.kube_errors import Refused
from launcher.errors import Exit, Failure
from launcher.job import kueue
from launcher.job.lookup import find_workloads
from launcher.job.manifests import objects
from launcher.job.outage import OutageLimit
from launcher.job.spec import JOB_LABEL, JobSpec, Json

_OTHER_KINDS = ("PodGroup", "Secret", "Service", "PersistentVolumeClaim", "PersistentVolume")  # besides Jobs and pods
_GONE_SECONDS = 20.0  # for the objects of a deleted job with the same name to disappear
_PODS_GONE_SECONDS = 90.0  # for the pods of a deleted job to disappear, after their grace period
_OUTAGE_SECONDS = 30.0
_POLL_SECONDS = 0.5

T = TypeVar("T")


def create(client: KubeClient, job_spec: JobSpec, beside: Sequence[Json] = ()) -> list[Json]:
    """Create all objects of a job, or none. Return them, as the API server stores them; the first one is its first Job.

    The first object is a suspended Job, whose creation reserves the name. The first Job owns all other objects. So they
    are deleted together with it. All Jobs are released at the end. So an interrupted submission leaves a Job that does
    nothing.

    A Job in a queue of Kueue is not released: Kueue releases it when its queue has room.

    beside: other objects in the user's file, which do not belong to the job and have no `problems_beside`
    """
    all_objects = objects(job_spec)
    jobs = [each for each in all_objects if each["kind"] == "Job"]
    first, *others = [jobs[-1], *jobs[:-1]]
    created = [_create_first(client, job_spec.name, first)]
    owner = _owner_reference(created[0])
    # With a TTL, Kubernetes deletes the first Job when it has ended, and the other Jobs may still run then.
    owners_of_jobs = [] if job_spec.ttl_seconds is not None else [owner]
    try:
        _check_name_is_free(client, job_spec.name, owner)
        for each in beside:
            _create_unless_exists(client, each)
        for each in all_objects:
            if each["kind"] != "Job":
                created.append(_create_replacing(client, _with_owners(each, [owner])))
        created += [_create_replacing(client, _with_owners(_suspended(each), owners_of_jobs)) for each in others]
        held_back = kueue.queue_of(first) and client.read(kueue.API) is not None
        for each in [] if held_back else [first, *others]:  # the first Job has the hub, which all other pods look for
            client.patch("Job", each["metadata"]["name"], {"spec": {"suspend": False}})
    except BaseException:
        _undo(client, created)
        raise
    return created


def delete_created(client: KubeClient, name: str, created: Sequence[Json]) -> bool:
    """Delete what `create` has returned, and wait until the pods of its Jobs are gone. Bear an outage of 30 s.

    Return False if the first Job was deleted before. An object that only has the same name is not deleted: the job may
    have been deleted and submitted again.
    """
    jobs = {each["metadata"]["uid"] for each in created if each["kind"] == "Job"}
    first = _persist(lambda: client.get("Job", created[0]["metadata"]["name"]))
    pods = _persist(lambda: _pods_of(client, name, jobs))
    for each in created:
        kind, metadata = each["kind"], each["metadata"]
        _persist(partial(client.delete, kind, metadata["name"], metadata["uid"]))
    _wait_for_pods(
        client, name, _grace(pods) + _PODS_GONE_SECONDS, lambda: _persist(partial(_pods_of, client, name, jobs))
    )
    return first is not None and first["metadata"]["uid"] in jobs


def delete(client: KubeClient, name: str) -> None:
    """Delete every object with the job's label, and wait until the job's pods are gone."""
    jobs = client.list("Job", f"{JOB_LABEL}={name}")
    pods = client.list("Pod", f"{JOB_LABEL}={name}")
    if not jobs and not pods:
        plain = " ".join(f"{each.kind.lower()}/{each.name}" for each in find_workloads(client, name))
        raise Failure(
            Exit.NO_INPUT,
            f"{name}: was not made by submit: `kubectl -n {client.namespace} delete {plain}` deletes it",
        )
    _delete_objects(client, name)
    _wait_for_pods(client, name, _grace(pods) + _PODS_GONE_SECONDS, lambda: client.list("Pod", f"{JOB_LABEL}={name}"))


def _create_first(client: KubeClient, name: str, job: Json) -> Json:
    try:
        return client.create(_suspended(job))
    except Refused as refused:
        if refused.status != 409:
            raise
    raise _name_is_taken(client, name, job["metadata"]["name"])


def _check_name_is_free(client: KubeClient, name: str, owner: Json) -> None:
    """Raise Failure if another job has this name. A job created by `render` may have other names for its Jobs."""
    for job in client.list("Job", f"{JOB_LABEL}={name}"):
        if job["metadata"]["uid"] != owner["uid"]:
            raise _name_is_taken(client, name, job["metadata"]["name"])


def _name_is_taken(client: KubeClient, name: str, job: str) -> Failure:
    return Failure(
        Exit.CONFIG,
        f"{name}: namespace {client.namespace} has a Job {job} already: choose another name, or delete that job first "
        "(`paddle-launcher delete`)",
    )


def _create_replacing(client: KubeClient, wanted: Json) -> Json:
    """Create an object. If a deleted job of the same name has left an object with this name, replace that object.

    Raises Failure if the object with this name does not belong to such a job.
    """
    deadline = time.monotonic() + _GONE_SECONDS
    while True:
        try:
            return client.create(wanted)
        except Refused as refused:
            if refused.status == 404 and wanted["kind"] == "PodGroup":
                raise Failure(
                    Exit.CONFIG, "gang scheduling: the cluster has no PodGroups: is Volcano installed there?"
                ) from None
            if refused.status != 409:
                raise
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        existing = client.get(kind, name)
        label = ((existing or {}).get("metadata", {}).get("labels") or {}).get(JOB_LABEL)
        if existing and label != wanted["metadata"]["labels"][JOB_LABEL]:
            raise Failure(Exit.CONFIG, f"namespace {client.namespace} has a {kind} {name} already: choose another name")
        if time.monotonic() > deadline:
            raise Failure(
                Exit.CONFIG,
                f"namespace {client.namespace} still has a {kind} {name} of an earlier job with this name: delete it "
                f"with `paddle-launcher delete` or `kubectl delete {kind.lower()} {name}`",
            )
        if existing and not _is_going(existing):
            client.delete(kind, name)  # only the Jobs of that job were deleted
        time.sleep(_POLL_SECONDS)


def problems_beside(beside: Sequence[Json]) -> list[str]:
    """Return why these objects cannot be created."""
    problems = []
    for each in beside:
        kind, metadata = each.get("kind"), each.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if kind not in KINDS:
            problems.append(
                f"{kind} {name}: submit cannot create this kind, only {', '.join(KINDS)}: create it with kubectl apply"
            )
        elif not name:
            problems.append(f"{kind}: metadata.name: missing: expected the object's name")
    return problems


def _create_unless_exists(client: KubeClient, wanted: Json) -> None:
    kind, name = wanted["kind"], wanted["metadata"]["name"]
    try:
        client.create(wanted)
    except Refused as refused:
        if refused.status != 409:
            raise
        print(f"submit: {kind} {name}: exists already and is not changed (`kubectl apply` changes it)", file=sys.stderr)


def _undo(client: KubeClient, created: Sequence[Json]) -> None:
    """Delete the created objects. Print a failure, but do not raise it: it would hide the original failure."""
    for each in reversed(created):
        kind, metadata = each["kind"], each["metadata"]
        try:
            client.delete(kind, metadata["name"], metadata["uid"])
        except Failure as failure:
            print(
                f"submit: {kind} {metadata['name']} was created, and could not be deleted: {failure}", file=sys.stderr
            )


def _delete_objects(client: KubeClient, name: str) -> None:
    for kind in ("Job", *_OTHER_KINDS):
        for each in _list(client, kind, f"{JOB_LABEL}={name}"):
            client.delete(kind, each["metadata"]["name"])


def _list(client: KubeClient, kind: str, selector: str) -> list[Json]:
    """Return the objects of a kind, or [] if the cluster does not know the kind, or if only an admin may list it."""
    try:
        found = client.list(kind, selector)
    except Failure as failure:
        is_unknown = isinstance(failure, Refused) and failure.status == 404
        if is_unknown or (failure.code == Exit.DENIED and kind in ("PersistentVolume", "PodGroup")):
            return []
        raise
    return [each for each in found if _belongs_to(each, client.namespace)]


def _belongs_to(each: Json, namespace: str) -> bool:
    """Return whether an object belongs to a job of this namespace. A PersistentVolume has its claim's namespace."""
    return bool(each["metadata"].get("namespace") or each["spec"]["claimRef"]["namespace"] == namespace)


def _suspended(job: Json) -> Json:
    return job | {"spec": job["spec"] | {"suspend": True}}


def _owner_reference(job: Json) -> Json:
    metadata = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}


def _with_owners(wanted: Json, owners: Sequence[Json]) -> Json:
    if wanted["kind"] == "PersistentVolume":
        return wanted  # an object without a namespace cannot have an owner in a namespace
    return wanted | {"metadata": wanted["metadata"] | {"ownerReferences": list(owners)}}


def _is_going(existing: Json) -> bool:
    """Return whether Kubernetes deletes the object by itself. It deletes the objects that a deleted Job owned."""
    return bool(existing["metadata"].get("ownerReferences") or existing["metadata"].get("deletionTimestamp"))


def _pods_of(client: KubeClient, name: str, jobs: Collection[str]) -> list[Json]:
    """Return the pods of the Jobs with these UIDs."""
    return [
        pod
        for pod in client.list("Pod", f"{JOB_LABEL}={name}")
        if any(owner["uid"] in jobs for owner in pod["metadata"].get("ownerReferences") or [])
    ]


def _grace(pods: Sequence[Json]) -> int:
    return max([0, *(pod["spec"].get("terminationGracePeriodSeconds") or 0 for pod in pods)])


def _persist(call: Callable[[], T]) -> T:
    """Return what the call returns. While the API server cannot be reached, call again, for at most 30 s."""
    outage = OutageLimit(_OUTAGE_SECONDS)
    while True:
        try:
            return call()
        except Failure as failure:
            outage.bear(failure)
        time.sleep(_POLL_SECONDS)


def _wait_for_pods(client: KubeClient, name: str, seconds: float, pods: Callable[[], Sequence[Json]]) -> None:
    deadline = time.monotonic() + seconds
    while pods():
        if time.monotonic() > deadline:
            raise Failure(
                Exit.TIMED_OUT,
                f"{name}: the Jobs are deleted, but some pods of this job still exist after {seconds:.0f} s: "
                f"`kubectl -n {client.namespace} get pods -l {JOB_LABEL}={name}`: do the nodes of these pods answer?",
            )
        time.sleep(_POLL_SECONDS)
