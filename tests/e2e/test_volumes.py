"""Volumes whose folder belongs to root, as a new file system does, and servers that do not trust root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from chaos import nfs
from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, claimed, for_one_trainer, passes, pod_security, rendered
from tests.e2e.seats import nodes
from tests.support.kubernetes_page import CAN_WRITE, PAGE
from tests.support.pages import blocks
from tests.support.paths import K8S
from tests.support.users import mode

USER = 10001  # of the pods of our manifests
OWNER_JOB = "paddle-volume-owner"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of other users")


@pytest.fixture
def folder(volume: Path) -> Path:
    """Return the volume as a new file system is: its folder belongs to root, and no other user may write to it."""
    volume.chmod(0o755)
    return volume


@pytest.fixture
def closed(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Yield such a volume as the claim `paddle`."""
    apply(cluster, *claimed(folder, cluster.namespace))
    yield folder
    kubectl("delete", "pv", cluster.namespace, "--wait=false")


def messages(cluster: Cluster, job: str) -> list[str]:
    """Return the termination messages of the Job's pods."""
    statuses = [status for pod in cluster.pods(f"job-name={job}") for status in pod["status"]["containerStatuses"]]
    return [status["state"]["terminated"].get("message", "") for status in statuses if "terminated" in status["state"]]


def let_the_pods_write(cluster: Cluster) -> None:
    apply(cluster, *rendered(K8S / "volume-owner", cluster))
    cluster.until_complete(OWNER_JOB)


def assert_a_pod_can_write(cluster: Cluster) -> None:
    apply(cluster, *rendered(K8S / "shell", cluster))
    kubectl("-n", cluster.namespace, "wait", "--for=condition=ready", "pod/paddle-shell", "--timeout=50s")
    kubectl("-n", cluster.namespace, "exec", "paddle-shell", "--", "touch", "written")


def test_a_job_that_may_not_write_ends_with_73_and_its_message_names_the_step_of_the_page(
    cluster: Cluster, closed: Path
) -> None:
    (made,) = rendered(K8S / "single", cluster)
    made["spec"]["backoffLimit"] = 0
    (closed / "quick-start").rename(closed / "quickstart")
    subprocess.run(["chmod", "-R", "go-w", closed], check=True)
    apply(cluster, made)
    cluster.until_failed("quickstart")
    (status,) = cluster.pods("job-name=quickstart")[0]["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 73
    (message,) = messages(cluster, "quickstart")
    assert CAN_WRITE in message
    assert f"this process is user {USER}" in message


def test_one_pod_trains_on_a_folder_of_its_machine_that_did_not_exist(
    cluster: Cluster, volume: Path, tmp_path: Path
) -> None:
    """`volumes/host-path` with `single`. The kubelet makes the folder, which belongs to root then."""
    place = tmp_path / "made-by-the-kubelet"
    objects = rendered(K8S / "volumes" / "host-path", cluster)
    (disk,) = [made for made in objects if made["kind"] == "PersistentVolume"]
    (claim,) = [made for made in objects if made["kind"] == "PersistentVolumeClaim"]
    disk["spec"]["hostPath"]["path"] = str(place)
    disk["metadata"]["name"] = claim["spec"]["volumeName"] = cluster.namespace  # tests run at the same time
    apply(cluster, *objects)
    try:
        pod_security(cluster, "baseline")
        let_the_pods_write(cluster)
        assert (place.stat().st_uid, place.stat().st_gid, mode(place)) == (USER, USER, 0o2775)
        pod_security(cluster, "restricted")
        assert_a_pod_can_write(cluster)
        shutil.copytree(volume / "quick-start", place / "quickstart")
        (place / "quickstart").chmod(0o777)
        for_one_trainer(place / "quickstart")
        apply(cluster, *rendered(K8S / "single", cluster))
        cluster.until_complete("quickstart")
        assert passes(place / "quickstart") == 15
    finally:
        kubectl("delete", "pv", cluster.namespace, "--wait=false")


def test_the_folder_of_another_user_is_not_changed(cluster: Cluster, closed: Path) -> None:
    os.chown(closed, 20002, 20002)
    apply(cluster, *rendered(K8S / "volume-owner", cluster))
    cluster.until_failed(OWNER_JOB)
    (message,) = messages(cluster, OWNER_JOB)
    assert message.startswith("nothing was changed: the folder belongs to user 20002")
    assert (closed.stat().st_uid, mode(closed)) == (20002, 0o755)
    os.chown(closed, -1, USER)
    closed.chmod(0o2775)  # what the message asks for
    assert_a_pod_can_write(cluster)


def test_a_folder_of_the_pods_user_stays_as_it_is(cluster: Cluster, closed: Path) -> None:
    os.chown(closed, USER, USER)
    closed.chmod(0o700)
    let_the_pods_write(cluster)
    assert mode(closed) == 0o700


@contextmanager
def mounted_on_all_nodes(program: Path, behind: Path, point: Path) -> Iterator[None]:
    """Mount the folder on each node at `point`, from a server that squashes root."""
    with ExitStack() as stack:
        for node in nodes():
            stack.enter_context(mounted(node.removeprefix("node"), program, behind, point))
        yield


@contextmanager
def mounted(number: str, program: Path, behind: Path, point: Path) -> Iterator[None]:
    inside = (os.environ["CLUSTER"], "inside", number)
    faults = point.with_name(f"faults-{number}")
    given = {"NFS_ROOT": str(behind), "NFS_FAULTS": str(faults), "NFS_SQUASH": "1"}
    server = subprocess.Popen(
        [*inside, program, "-f", point, "-o", nfs.OPTIONS], env=os.environ | given, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 30
        while subprocess.run([*inside, "mountpoint", "-q", point], check=False).returncode:
            assert server.poll() is None, f"{point} cannot be mounted on node {number}"
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield
    finally:
        subprocess.run([*inside, "umount", "-l", point], check=False)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:  # pods still use it
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def command_for_the_server() -> str:
    """Return the command of the page for the server of NFS, which is not run in the page's own test."""
    (block,) = [block for block in blocks(PAGE.read_text()) if "NFS server" in block.unrun]
    assert Path(__file__).name in block.unrun
    return block.commands.replace("sudo ", "")


@pytest.mark.skipif("CLUSTER" not in os.environ, reason="CLUSTER must name the command that runs others inside nodes")
@pytest.mark.skipif(bool(nfs.why_not()), reason=nfs.why_not())
def test_where_the_server_squashes_root_only_its_own_command_lets_the_pods_write(
    cluster: Cluster, folder: Path, tmp_path: Path
) -> None:
    point = tmp_path / "mounted"
    point.mkdir()
    apply(cluster, *claimed(point, cluster.namespace))
    try:
        with mounted_on_all_nodes(nfs.build(tmp_path), folder, point):
            apply(cluster, *rendered(K8S / "volume-owner", cluster))
            cluster.until_failed(OWNER_JOB)
            (message,) = messages(cluster, OWNER_JOB)
            assert message.startswith("root cannot change the folder: chown: ")
            assert "If its server squashes root, run on the server: chown 10001:10001 FOLDER" in message
            assert folder.stat().st_uid == 0
            (folder / "written").unlink(missing_ok=True)
            command = command_for_the_server()
            assert command.count("/paddle") == 2
            subprocess.run(["sh", "-ec", command.replace("/paddle", str(folder))], check=True)
            assert (folder.stat().st_uid, mode(folder)) == (USER, 0o2775)
            assert_a_pod_can_write(cluster)
            assert (folder / "written").stat().st_uid == USER
            remove_pods(cluster)
    finally:
        kubectl("delete", "pv", cluster.namespace, "--wait=false")


def remove_pods(cluster: Cluster) -> None:
    """Delete all pods, so that no container uses the volume any more."""
    kubectl("-n", cluster.namespace, "delete", "jobs,pods", "--all", "--wait=false")
    until(lambda: not cluster.pods(""), lambda: names(cluster.pods("")))


def names(pods: list[Json]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]
