"""A small job in a fake cluster: make and end its pods, and run the command line."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from launcher.job import PaddleJob
from tests.support import forked
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.paths import PADDLEJOBS

JOB = PaddleJob(job_name="words", entry_point="python train.py", runtime_image="an/image:1", trainers=2, pservers=1)
JOBS = ["words-pserver", "words-trainer"]  # its Kubernetes Jobs
MEMBERS = [("trainer", 0), ("trainer", 1), ("pserver", 0)]

WIDE_AND_DEEP = PADDLEJOBS / "wide-and-deep.yaml"
FLAGS = ["--no-inject", "--entrypoint", "python3 train.py"]  # the flags that WIDE_AND_DEEP needs


def put_pod(cluster: FakeCluster, role: str, rank: int, job: str = "words", suffix: str = "a", **state: Any) -> str:
    """Add a pod of the job whose main container has this state. Return the pod's name.

    If two pods have the same rank, the pod whose suffix is later in the alphabet is newer.
    """
    name = f"{job}-{role}-{rank}-{suffix}"
    index = {"batch.kubernetes.io/job-completion-index": str(rank)}
    cluster.put(
        "pods",
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "labels": index | {"paddle-launcher/job": job},
                "creationTimestamp": f"2026-11-18T10:00:0{ord(suffix) - ord('a')}Z",
                "ownerReferences": [{"kind": "Job", "name": f"{job}-{role}", "uid": "u", "controller": True}],
            },
            "spec": {"containers": [{"name": "paddle"}], "terminationGracePeriodSeconds": 30},
            "status": {"phase": "Running", "containerStatuses": [{"name": "paddle", "state": state}]},
        },
    )
    return name


def running() -> Json:
    return {"running": {"startedAt": "2026-11-18T10:00:00Z"}}


def ended(code: int, message: str, second: int = 0) -> Json:
    return {"terminated": {"exitCode": code, "message": message, "finishedAt": f"2026-11-18T10:01:0{second}Z"}}


def submit_and_run(cluster: FakeCluster) -> None:
    """Submit JOB, and set all of its pods to running."""
    JOB.submit()
    for role, rank in MEMBERS:
        put_pod(cluster, role, rank, **running())


def in_background(work: Callable[[], int]) -> Future[int]:
    """Run the work in a daemon thread, which does not keep the test process alive."""
    result: Future[int] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


def command(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run paddle-launcher. Check that it ends with this exit code and without a traceback."""
    done = forked.run(arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done
