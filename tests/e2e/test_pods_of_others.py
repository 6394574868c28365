"""Pods that look like members but are not: of an earlier attempt, of another job, or pods that are being replaced."""

from __future__ import annotations

import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import SIZE, Json, until
from tests.e2e.pods import (
    delete_job,
    delete_pod,
    end_of,
    exit_codes,
    is_leaving,
    kill,
    name_of,
    scale,
    set_variables,
    stop_at_once,
    uids,
    with_variables_from_volume,
)
from tests.e2e.training import Training

_INDEX = "batch.kubernetes.io/job-completion-index"


def members(training: Training) -> set[str]:
    """Return the uids of the pods of the last complete gang."""
    return {member["uid"] for member in training.job_file()["members"]}


def until_held(training: Training) -> list[Json]:
    until(lambda: [member.get("phase") for member in training.status()] == ["training"] * SIZE, training.logs)
    return training.status()


def secret(training: Training, identity: str) -> str:
    return (training.output / ".launcher" / identity / "secret").read_text()


def writers(log: Path) -> list[str]:
    """Return the pods of the generations in a log, from its marks."""
    return re.findall(r"^==== .* generation [0-9]+, pod ([^ ,]+).* ====$", log.read_text(), re.MULTILINE)


def logs_have_both(training: Training, before: list[Json]) -> bool:
    """Return whether each member's log has the generation of the earlier pod, and then of the present pod."""
    logs = [training.output / f"node_{rank}" / "train.log" for rank in range(SIZE)]
    pairs = zip(before, training.status(), strict=True)
    return [writers(log) for log in logs] == [[old["pod"], new["pod"]] for old, new in pairs]


@pytest.mark.timeout(240)  # Kubernetes waits 40 s after three failed pods
def test_a_failed_attempt_is_followed_by_new_pods_for_all_members(training: Training) -> None:
    def allow_one_more(job: Json) -> None:
        job["spec"]["backoffLimit"] = SIZE
        with_variables_from_volume(training, job)

    set_variables(training, f"STANDIN_GATES={training.hold(0)}\n")
    training.submit("--num_passes=3", change=allow_one_more)
    before = until_held(training)
    failed = training.pods()
    kill(training.cluster, before[1]["pod"], "-9", "-f", "standin.paddle_trainer")
    set_variables(training, "")
    until(lambda: exit_codes(training.pods()) == [69, 69, 137], training.logs)
    for pod in filter(end_of, training.pods()):
        assert f"rank 1 ({before[1]['pod']}): " in end_of(pod)["message"]
    training.until_complete()

    listed = training.pods()
    assert uids(failed) < uids(listed)
    assert len(listed) == 2 * SIZE
    assert members(training) == uids(listed) - uids(failed)
    assert exit_codes(listed) == [0, 0, 0, 69, 69, 137]
    assert training.passes_done() == 3
    assert (training.job_file()["generations"][-1]["number"], training.job_file()["exit_code"]) == (1, 0)
    assert logs_have_both(training, before)


@pytest.mark.parametrize(("discovery", "index"), [("kubernetes", 0), ("kubernetes", 1), ("dns", 0)])
def test_a_pod_that_is_being_replaced_does_not_count(training: Training, discovery: str, index: int) -> None:
    def change(job: Json) -> None:
        job["spec"].update(parallelism=index + 1, backoffLimit=SIZE)
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 130
        with_variables_from_volume(training, job)
        if discovery == "dns":
            find_by_name(training, job)

    set_variables(training, f"if [ $JOB_COMPLETION_INDEX = {index} ]; then STANDIN_DEAF=1; fi")
    training.submit("--num_passes=2", mode="Indexed", change=change, LAUNCHER_STOP_GRACE="120")
    until(lambda: f"{index + 1} of 3 have joined" in training.logs(), training.logs)
    (old,) = of_index(training, index)
    set_variables(training, "")
    delete_pod(training, name_of(old))
    until(lambda: len(of_index(training, index)) == 2, training.logs)
    scale(training, SIZE)
    until(lambda: training.passes_done() == 2, training.logs)

    left, new = sorted(of_index(training, index), key=is_leaving, reverse=True)
    assert is_leaving(left)
    assert not end_of(left), "it was to be there all the time"
    assert left["metadata"]["uid"] == old["metadata"]["uid"]
    assert training.status()[index]["uid"] == new["metadata"]["uid"]
    assert members(training) == uids(training.pods()) - uids([old])
    stop_at_once(training.cluster, name_of(old))
    training.until_complete()


def of_index(training: Training, index: int) -> list[Json]:
    return [pod for pod in training.pods() if pod["metadata"]["labels"][_INDEX] == str(index)]


def find_by_name(training: Training, job: Json) -> None:
    """Set names for the pods, and an account without RBAC permissions."""
    template = job["spec"]["template"]
    template["spec"].update(subdomain="twins", serviceAccountName="nobody")
    template["spec"]["containers"][0]["env"] += [
        {"name": "LAUNCHER_SERVICE", "value": "twins"},
        from_field("LAUNCHER_JOB_ID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
        from_field("POD_UID", "metadata.uid"),
    ]
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job-name": training.name}}
    training.cluster.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "twins"}, "spec": spec})


def from_field(variable: str, path: str) -> Json:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}


@pytest.mark.parametrize("selector", ["", "app=paddle"], ids=["by-name", "by-a-label-of-both"])
def test_two_jobs_of_a_namespace_train_separately(training: Training, selector: str) -> None:
    other = Training(training.cluster, "another-job", training.volume)
    shutil.copytree(training.volume / training.name, training.volume / other.name)
    told: dict[str, Any] = {"LAUNCHER_SELECTOR": selector} if selector else {}

    def label(job: Json) -> None:
        job["spec"]["template"]["metadata"] = {"labels": {"app": "paddle"}}

    for job, passes in ((training, 2), (other, 3)):
        job.submit(f"--num_passes={passes}", change=label, **told)
    for job, passes in ((training, 2), (other, 3)):
        job.until_complete()
        assert job.passes_done() == passes
        assert members(job) == uids(job.pods())
        assert [folder.name for folder in (job.output / ".launcher").glob("[!.]*")] == [identity(job)]
    assert secret(training, identity(training)) != secret(other, identity(other))


def identity(training: Training) -> str:
    return training.cluster.uid("job", training.name)


def test_a_job_that_is_deleted_and_created_again_begins_after_all_old_processes_have_ended(
    training: Training,
) -> None:
    def slow_to_end(job: Json) -> None:
        job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 130
        with_variables_from_volume(training, job)

    set_variables(training, f"STANDIN_GATES={training.hold(2)}\nSTANDIN_DEAF=1\n")
    training.submit(change=slow_to_end, LAUNCHER_STOP_GRACE="120")
    before = training.until_saved(1)
    old, old_identity = training.pods(), identity(training)
    delete_job(training)
    set_variables(training, "")
    training.submit("--num_passes=2", change=partial(with_variables_from_volume, training))
    waits = f"for the end of another gang that trains into this folder: its hub is pod {before[0]['pod']} of job "
    until(lambda: waits in training.logs(), training.logs)
    assert uids(old) < uids(training.pods()), "the deleted job's pods were to be there all the time"
    assert not list(training.output.glob("earlier-*")), "the old job may still save a pass"
    for pod in old:
        stop_at_once(training.cluster, name_of(pod))
    training.until_complete()
    until(lambda: not uids(old) & uids(training.pods()))
    assert training.passes_done() == 2
    assert list(training.output.glob("earlier-*/pass-00001/done")), "what the old job has saved is kept"

    assert identity(training) != old_identity
    assert secret(training, identity(training)) != secret(training, old_identity)
    assert members(training) == uids(training.pods())
    assert (training.job_file()["generations"][-1]["number"], training.job_file()["exit_code"]) == (0, 0)
    assert [member["phase"] for member in training.status()] == ["complete"] * SIZE
    assert logs_have_both(training, before)


def test_a_job_created_again_after_it_was_complete_trains_again(training: Training) -> None:
    training.submit("--num_passes=2").until_complete()
    old, old_identity = training.status(), identity(training)
    delete_job(training)
    training.submit("--num_passes=3").until_complete()
    assert training.passes_done() == 3
    assert members(training) == uids(training.pods())
    for pod in training.pods():
        assert f"an earlier job of this name was complete ({old_identity})" in training.cluster.log(name_of(pod))
    assert logs_have_both(training, old)
