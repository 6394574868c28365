"""What the pod of `doctor` found on the volume: whether it can write, and the shards."""

from __future__ import annotations

import os
from collections.abc import Iterator

from launcher.base import kube_pods
from launcher.doctor import mend
from launcher.doctor.place import Place
from launcher.doctor.report import OK, WARNING, WRONG, Check
from launcher.job.recognition import template_of
from launcher.job.spec import Json

_LOW_SPACE = 1 << 30


def workdir(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    path, variable = facts.get("path"), "LAUNCHER_WORKDIR"
    if facts.get("exists") and facts.get("writable"):
        yield Check("workdir", OK, f"{path} can be written")
        return
    if not asked["volume"] and facts.get("exists"):
        yield Check("workdir", OK, f"{path} cannot be written, so the launcher takes a temporary folder")
        return
    what = "cannot be written by the pods' user" if facts.get("exists") else "does not exist in the pods"
    fix = mend.edit(place.subject, place.workload, f"mount an emptyDir at /workdir, and set {variable}=/workdir")
    yield Check("workdir", WRONG, f"{variable} {path} {what}", fix)


def volume(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    if not facts.get("needed"):
        yield Check("volume", OK, "no volume: JOB_PATH is unset")
        return
    folder, uid, gid = facts.get("folder"), facts.get("uid"), facts.get("gid")
    if not facts.get("mounted"):
        text = f"{asked['volume']} (JOB_PATH) is no folder in the pods: is the claim mounted there?"
        yield Check("volume", WRONG, text, mend.edit(place.subject, place.workload, f"mount it at {asked['volume']}"))
        return
    if error := facts.get("error"):
        owner = f"it belongs to {facts.get('owner')}:{facts.get('group')}, mode {facts.get('mode')}"
        text = f"{folder} cannot be written by the pods' user {uid}:{gid}: {error} ({owner})"
        yield Check("volume", WRONG, text, _mend_writing(place, facts, str(error), asked))
        return
    free = int(facts.get("free") or 0)
    if free < _LOW_SPACE:
        text = f"{folder} has only {free >> 20} MiB free for logs and models"
        yield Check("volume", WARNING, text)
        return
    yield Check("volume", OK, f"{folder} can be written by {uid}:{gid}, {free >> 30} GiB free")


def _mend_writing(place: Place, facts: Json, error: str, asked: Json) -> tuple[str, ...]:
    if "space" in error or "quota" in error:
        return (mend.kubectl(place.namespace, "describe", "pvc"),)
    if "Read-only" in error:
        return mend.edit(place.subject, place.workload, "remove readOnly from the volume and its mount")
    uid, gid = facts.get("uid"), facts.get("gid")
    target = str(asked["job"] if facts.get("job") else facts.get("folder"))
    change = ["chmod", "-R", "u+rwX"] if facts.get("owner") == uid else ["chown", "-R", f"{uid}:{gid}"]
    as_root = mend.as_root(place.namespace, place.workload, [*change, target])
    return as_root, f"or as root on the storage: {' '.join(change)} the folder that the pods see as {target}"


def data(place: Place, facts: Json, asked: Json) -> Iterator[Check]:
    if not facts.get("needed"):
        yield Check("data", OK, "no shards needed: JOB_PATH is unset")
        return
    job, wanted = str(asked["job"]), int(asked["shards"])
    trainers = f"{'up to ' if asked['more'] else ''}{_count(wanted, 'trainer')}"
    words = [
        "exec",
        "paddle-shell",
        "--",
        "paddle-launcher",
        "shard",
        "--data",
        "DATA",
        "--out",
        _in_volume(place, job),
    ]
    missing, empty, more = (list(facts.get(name) or []) for name in ("missing", "empty", "more"))
    count = max([wanted, *(number + 1 for number in more if asked["more"])])
    command = mend.kubectl(place.namespace, *words, "--count", str(count))
    split = f"{command}  # k8s/shell makes this pod; DATA: the data set"
    if error := facts.get("error"):
        path = os.path.dirname(job)
        text = f"{job} cannot be read: {error}: check JOB_NAME, or split the data set"
        yield Check("data", WRONG, text, (split, f"JOB_PATH is {path}: is the right claim mounted there?"))
        return
    if missing:
        have = wanted - len(missing) + len(more)
        text = f"{_count(have, 'shard')} for {trainers}: {_listed(missing)} of {job} missing"
        yield Check("data", WRONG, text, (split,))
    elif empty:
        text = f"shard {_listed(empty)} of {job} has no bytes: its trainer would have no samples"
        yield Check("data", WRONG, text, (split,))
    elif more and not asked["more"]:
        have = wanted + len(more)
        text = f"{_count(have, 'shard')} for {trainers}: {_listed(more)} of {job} would not be read"
        yield Check("data", WRONG, text, (split, f"or train with {have} trainers"))
    if facts.get("config"):
        text = f"{facts['config']} (TRAIN_CONFIG_DIR) is missing or empty"
        yield Check("data", WRONG, text, (f"{command} --config CONFIG  # k8s/shell makes this pod",))
    elif not (missing or empty or (more and not asked["more"])):
        shards = f"{_count(wanted + len(more), 'shard')} for {trainers}" if wanted else "no shards needed"
        yield Check("data", OK, f"{shards}{', configuration ' + asked['config'] if asked['config'] else ''} in {job}")


def _in_volume(place: Place, job: str) -> str:
    """Return the path of the job's folder in its volume. The pod of k8s/shell works in the volume's folder."""
    for mount in kube_pods.main_container(template_of(place.workload.seen)).get("volumeMounts") or []:
        root = os.path.normpath(str(mount.get("mountPath")))
        if job != root and os.path.commonpath([root, job]) == root:
            return os.path.join(str(mount.get("subPath") or ""), os.path.relpath(job, root))
    return job


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5]))
    return f"{shown} and {len(numbers) - 5} more" if len(numbers) > 5 else shown
