"""A job comes into a cluster all at once or not at all, and goes as a whole."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from launcher.errors import Exit, Failure
from launcher.job.access import KINDS, Access, Refused
from launcher.job.manifests import objects
from launcher.job.pod_template import JOB
from launcher.job.spec import JobSpec, Json
from launcher.job.state import no_such_job

_BELONGS = ("PodGroup", "Secret", "Service", "PersistentVolumeClaim", "PersistentVolume")  # beside Jobs and pods
_GOING = 20.0  # seconds for what belonged to a job of the same name that was just deleted
_GONE = 90.0  # seconds for the pods of a deleted job beyond their grace period
_POLL = 0.5


def create(access: Access, gang: JobSpec, beside: Sequence[Json] = ()) -> None:
    """Create all objects of a job. The first is a Job that does not start yet: whoever has it has the name.

    It owns the others, so that they go with it, and all Jobs start once everything is there. Whatever ends this before
    leaves a Job that does nothing, and that `delete` removes. What is `beside` it is not the job's, and stays.
    """
    _check_beside(beside)
    made = objects(gang)
    jobs = [each for each in made if each["kind"] == "Job"]
    first, *others = [jobs[-1], *jobs[:-1]]
    created = [_create_first(access, gang.name, first)]
    owner = _owner(created[0])
    # Jobs that Kubernetes is to remove when they have ended must not take others along that are still ending.
    owners = [] if gang.seconds_kept is not None else [owner]
    try:
        _refuse_another(access, gang.name, owner)
        for each in beside:
            _create_unless_there(access, each)
        for each in made:
            if each["kind"] != "Job":
                created.append(_create_beside(access, _with_owners(each, [owner])))
        created += [_create_beside(access, _with_owners(_held_back(each), owners)) for each in others]
        for each in [first, *others]:  # the one that the others look for is in the first
            access.patch("Job", each["metadata"]["name"], {"spec": {"suspend": False}})
    except BaseException:
        _take_back(access, created)
        raise


def delete(access: Access, name: str) -> None:
    """Delete all that has the job's label, and wait until its pods are gone."""
    jobs = access.list("Job", f"{JOB}={name}")
    pods = access.list("Pod", f"{JOB}={name}")
    if not jobs and not pods:
        raise no_such_job(access, name)
    grace = max([0, *(pod["spec"].get("terminationGracePeriodSeconds") or 0 for pod in pods)])
    _delete_all(access, name)
    _wait(
        lambda: not access.list("Pod", f"{JOB}={name}"),
        grace + _GONE,
        f"{name}: its Jobs are deleted, but after {grace + _GONE:.0f} s there are still pods of it: "
        f"`kubectl -n {access.namespace} get pods -l {JOB}={name}`: does their node still answer?",
    )


def _create_first(access: Access, name: str, job: Json) -> Json:
    try:
        return access.create(_held_back(job))
    except Refused as refused:
        if refused.status != 409:
            raise
    raise _taken(access, name, job["metadata"]["name"])


def _refuse_another(access: Access, name: str, owner: Json) -> None:
    """The name may also be that of a job whose Jobs are called otherwise, as those of `render` are."""
    for job in access.list("Job", f"{JOB}={name}"):
        if job["metadata"]["uid"] != owner["uid"]:
            raise _taken(access, name, job["metadata"]["name"])


def _taken(access: Access, name: str, job: str) -> Failure:
    return Failure(
        Exit.CONFIG,
        f"{name}: namespace {access.namespace} has a Job {job} already: choose another name, or delete that job first "
        "(`paddle-launcher delete`)",
    )


def _create_beside(access: Access, made: Json) -> Json:
    """What a deleted job of the same name leaves behind is on its way out; all else of that name is in the way."""
    deadline = time.monotonic() + _GOING
    while True:
        try:
            return access.create(made)
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
        if there and not _goes(there):
            access.delete(kind, name)  # of a job whose Jobs alone were deleted: this one has the name now
        time.sleep(_POLL)


def _check_beside(beside: Sequence[Json]) -> None:
    for each in beside:
        metadata = each.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if each.get("kind") not in KINDS:
            raise Failure(
                Exit.CONFIG,
                f"{each.get('kind')} {name}: beside a job only these can be submitted: {', '.join(KINDS)}: apply the "
                "rest with kubectl",
            )
        if not name:
            raise Failure(Exit.CONFIG, f"{each['kind']}: metadata.name: missing: expected the object's name")


def _create_unless_there(access: Access, each: Json) -> None:
    kind, name = each["kind"], each["metadata"]["name"]
    try:
        access.create(each)
    except Refused as refused:
        if refused.status != 409:
            raise
        print(f"submit: {kind} {name}: is there already, and left as it is (kubectl apply changes it)", file=sys.stderr)


def _take_back(access: Access, created: Sequence[Json]) -> None:
    """What was created so far, and nothing else. Where that fails, too, it is said beside the first failure."""
    for each in reversed(created):
        kind, metadata = each["kind"], each["metadata"]
        try:
            access.delete(kind, metadata["name"], metadata["uid"])
        except Failure as failure:
            print(f"submit: {kind} {metadata['name']} is left behind: {failure}", file=sys.stderr)


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


def _with_owners(made: Json, owners: Sequence[Json]) -> Json:
    if made["kind"] == "PersistentVolume":
        return made  # what is of no namespace cannot belong to what is of one
    return made | {"metadata": made["metadata"] | {"ownerReferences": list(owners)}}


def _goes(there: Json) -> bool:
    """By itself, as Kubernetes removes what belonged to a Job that was deleted."""
    return bool(there["metadata"].get("ownerReferences") or there["metadata"].get("deletionTimestamp"))


def _wait(holds: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Failure(Exit.TIMED_OUT, otherwise)
        time.sleep(_POLL)
