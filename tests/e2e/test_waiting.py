"""Pods that never start, for reasons that Kubernetes knows, and pods without the permission to list pods."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import SIZE, Json, kubectl, until
from tests.e2e.pods import MISSING_IMAGE, delete_job, end_of, exit_codes, name_of
from tests.e2e.seats import Seat, nodes
from tests.e2e.training import Training

_WAIT = "20"  # seconds to wait for peers; by then Kubernetes knows the reason


def nothing_trained(training: Training) -> bool:
    return not list(training.output.glob("pass-*")) and not list(training.output.glob("node_*"))


def stands_in_log(said: str, log: str) -> bool:
    """Return whether `kubectl logs` also shows the text. There, each line begins with the time."""
    return [line.partition("] ")[2] for line in log.splitlines()][-len(said.splitlines()) :] == said.splitlines()


def test_waiting_members_name_an_image_that_cannot_be_pulled(training: Training) -> None:
    told = {"LAUNCHER_SELECTOR": f"app={training.name}", "LAUNCHER_PEER_TIMEOUT": _WAIT}
    here = [training.bare(name, "--num_passes=2", **told) for name in ("one", "two")]
    late = training.bare("three", "--num_passes=2", **told)
    late["spec"]["containers"][0]["image"] = MISSING_IMAGE
    training.cluster.create(*here, late)
    label = f"app={training.name}"

    def phases() -> list[str]:
        return [training.cluster.pod(name)["status"]["phase"] for name in ("one", "two", "three")]

    until(lambda: phases() == ["Failed", "Failed", "Pending"], lambda: training.cluster.logs(label))
    assert exit_codes(training.cluster.pods(label)) == [75, 75]
    for name in ("one", "two"):
        said = end_of(training.cluster.pod(name))["message"]
        assert f"waited {_WAIT} s " in said
        assert "LAUNCHER_PEER_TIMEOUT" in said
        for words in (said, training.cluster.log(name)):
            assert "three is Pending: container trainer: " in words
            assert "ErrImagePull" in words or "ImagePullBackOff" in words
    assert nothing_trained(training)


def test_a_pod_that_fits_on_no_node_is_named_and_the_job_fails(training: Training, seat: Seat) -> None:
    first, *others = nodes()
    seat.offer(SIZE - 1, first)
    seat.offer(None, *others)

    def crowd(job: Json) -> None:
        job["spec"]["backoffLimit"] = 1
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = seat.taken()

    training.submit("--num_passes=2", change=crowd, LAUNCHER_PEER_TIMEOUT=_WAIT)
    until(lambda: len(training.pods()) == SIZE and len(waiting_for_a_node(training)) == 1, training.logs)
    (unplaced,) = waiting_for_a_node(training)
    assert training.until_failed() == "BackoffLimitExceeded"
    assert set(exit_codes(training.pods())) == {75}
    for pod in training.pods():
        said = end_of(pod)["message"]
        assert f"{unplaced} is Pending: Unschedulable: 0/" in said
        assert f"Insufficient {seat.name}" in said
        assert stands_in_log(said, training.cluster.log(name_of(pod)))
    assert nothing_trained(training)
    until(lambda: unplaced not in map(name_of, training.pods()))


def waiting_for_a_node(training: Training) -> list[str]:
    return [name_of(pod) for pod in training.pods() if not pod["spec"].get("nodeName")]


def test_a_job_without_rbac_permissions_fails_and_completes_with_the_role_that_it_printed(
    training: Training, tmp_path: Path
) -> None:
    def change(job: Json) -> None:
        job["spec"]["backoffLimit"] = SIZE - 1
        job["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"

    training.submit("--num_passes=2", change=change)
    assert training.until_failed() == "BackoffLimitExceeded"
    until(lambda: all(map(end_of, training.pods())), training.logs)
    refused = [pod for pod in training.pods() if end_of(pod)["exitCode"] == 77]
    assert refused
    assert set(exit_codes(training.pods())) <= {77, 143}  # a failed Job stops a late pod
    assert nothing_trained(training)
    namespace = training.cluster.namespace
    for pod in refused:
        said = end_of(pod)["message"]
        assert f"let service account nobody of namespace {namespace} list pods in namespace {namespace}" in said
        assert stands_in_log(said, training.cluster.log(name_of(pod)))

    (tmp_path / "role.yaml").write_text(said.partition("\n")[2])
    kubectl("apply", "-f", str(tmp_path / "role.yaml"))
    delete_job(training)
    training.submit("--num_passes=2", change=change).until_complete()
    assert exit_codes(training.pods()) == [0] * SIZE
    assert training.passes_done() == 2
