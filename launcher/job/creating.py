"""A job comes into a cluster all at once or not at all, and goes as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from launcher.errors import Exit, Failure
from launcher.job.access import KINDS, Access, Refused
from launcher.job.gang import Gang, Json
from launcher.job.objects import objects
from launcher.job.pods import JOB

_BELONGS = ("PodGroup", "Secret", "Service", "PersistentVolumeClaim", "PersistentVolume")  # beside Jobs and pods
_GOING = 20.0  # seconds for what belonged to a job of the same name that was just deleted
_GONE = 90.0  # seconds for the pods of a deleted job beyond their grace period
_POLL = 0.5


def create(access: Access, gang: Gang, beside: Sequence[Json] = ()) -> None:
    """Create all objects of a job. The first is a Job that does not start yet: whoever has it has the name.

    It owns the others, so that they go with it, and all Jobs start once everything is there. Whatever ends this before
    leaves a Job that does nothing, and that `delete` removes. What is `beside` it is not the job's, and stays.
    """
    _check_kinds(beside)
    made = objects(gang)
    jobs = [each for each in made if each["kind"] == "Job"]
    first, *others = [jobs[-1], *jobs[:-1]]
    owner = _create_first(access, first)
    try:
        for each in beside:
            _create_unless_there(access, each)
        for each in [*(each for each in made if each["kind"] != "Job"), *map(_held_back, others)]:
            _create_beside(access, each, owner)
        for each in jobs:
            access.patch("Job", each["metadata"]["name"], {"spec": {"suspend": False}})
    except BaseException:
        _take_back(access, gang.name)
        raise


def delete(access: Access, name: str) -> None:
    """Delete all that has the job's label, and wait until its pods are gone."""
    jobs = access.list("Job", f"{JOB}={name}")
    pods = access.list("Pod", f"{JOB}={name}")
    if not jobs and not pods:
        raise Failure(
            Exit.NO_INPUT,
            f"{name}: there is no such job in namespace {access.namespace}: `kubectl get jobs -A` has all",
        )
    grace = max([0, *(pod["spec"].get("terminationGracePeriodSeconds") or 0 for pod in pods)])
    _delete_all(access, name)
    _wait(
        lambda: not access.list("Pod", f"{JOB}={name}"),
        grace + _GONE,
        f"{name}: its Jobs are deleted, but after {grace + _GONE:.0f} s there are still pods of it: "
        f"`kubectl -n {access.namespace} get pods -l {JOB}={name}`: does their node still answer?",
    )


def _create_first(access: Access, job: Json) -> Json:
    name = job["metadata"]["name"]
    try:
        return _owner(access.create(_held_back(job)))
    except Refused as refused:
        if refused.status != 409:
            raise
    raise Failure(
        Exit.CONFIG,
        f"{job['metadata']['labels'][JOB]}: namespace {access.namespace} has a Job {name} already: choose another "
        "name, or delete that job first (`paddle-launcher delete`)",
    )


def _create_beside(access: Access, made: Json, owner: Json) -> None:
    """What a deleted job of the same name leaves behind is on its way out; all else of that name is in the way."""
    made = _with_owner(made, owner)
    deadline = time.monotonic() + _GOING
    while True:
        try:
            access.create(made)
            return
        except Refused as refused:
            if refused.status == 404 and made["kind"] == "PodGroup":
                raise Failure(
                    Exit.CONFIG, "gang scheduling: the cluster has no PodGroups: is Volcano installed there?"
                ) from None
            if refused.status != 409:
                raise
        kind, name = made["kind"], made["metadata"]["name"]
        there = access.get(kind, name)
        ours = ((there or {}).get("metadata", {}).get("labels") or {}).get(JOB) == made["metadata"]["labels"][JOB]
        if there and not ours:
            raise Failure(Exit.CONFIG, f"namespace {access.namespace} has a {kind} {name} already: choose another name")
        if time.monotonic() > deadline:
            raise Failure(
                Exit.CONFIG,
                f"namespace {access.namespace} has a {kind} {name} of an earlier job of this name: `paddle-launcher "
                f"delete`, or `kubectl delete {kind.lower()} {name}`",
            )
        if there and not _owned(there):
            access.delete(kind, name)  # of a job whose Jobs alone were deleted: this one has the name now
        time.sleep(_POLL)


def _check_kinds(beside: Sequence[Json]) -> None:
    for each in beside:
        if each.get("kind") not in KINDS:
            raise Failure(
                Exit.CONFIG,
                f"{each.get('kind')} {each.get('metadata', {}).get('name')}: beside a job only these can be submitted: "
                f"{', '.join(KINDS)}: apply the rest with kubectl",
            )


def _create_unless_there(access: Access, each: Json) -> None:
    try:
        access.create(each)
    except Refused as refused:
        if refused.status != 409:
            raise


def _take_back(access: Access, name: str) -> None:
    """What was created so far. Where that fails, too, it is the first failure that counts."""
    try:
        _delete_all(access, name)
    except Failure:
        pass


def _delete_all(access: Access, name: str) -> None:
    for kind in ("Job", *_BELONGS):
        for each in _listed(access, kind, f"{JOB}={name}"):
            access.delete(kind, each["metadata"]["name"])


def _listed(access: Access, kind: str, selector: str) -> list[Json]:
    """Of kinds that the cluster does not have, or that only an admin may see, a job has none."""
    try:
        found = access.list(kind, selector)
    except Failure as failure:
        absent = isinstance(failure, Refused) and failure.status == 404
        if absent or (failure.code == Exit.DENIED and kind in ("PersistentVolume", "PodGroup")):
            return []
        raise
    return [each for each in found if _of_namespace(each, access.namespace)]


def _of_namespace(each: Json, namespace: str) -> bool:
    """A volume is of no namespace, and another one may have a job of this name."""
    return bool(each["metadata"].get("namespace") or each["spec"]["claimRef"]["namespace"] == namespace)


def _held_back(job: Json) -> Json:
    return job | {"spec": job["spec"] | {"suspend": True}}


def _owner(job: Json) -> Json:
    """How others refer to it as what they belong to."""
    metadata = job["metadata"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}


def _with_owner(made: Json, owner: Json) -> Json:
    if made["kind"] == "PersistentVolume":
        return made  # what is of no namespace cannot belong to what is of one
    return made | {"metadata": made["metadata"] | {"ownerReferences": [owner]}}


def _owned(there: Json) -> bool:
    return bool(there["metadata"].get("ownerReferences") or there["metadata"].get("deletionTimestamp"))


def _wait(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(Exit.TIMED_OUT, otherwise)
        time.sleep(_POLL)
