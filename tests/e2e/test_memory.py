"""A whole container is out of memory, with its launcher. The other members name this, and wait for the replacement.

Where a container's processes are one group to the kernel (cgroup v2) it kills all of them. With version 1 it kills the
one with the highest score, which here is made the launcher: as process 1 that takes all others of its container along.
"""

from __future__ import annotations

import subprocess

import pytest

from launcher.store.status import describe
from tests.e2e.cluster import SIZE, Json, until
from tests.e2e.training import PASSES, Training

pytestmark = pytest.mark.alone  # the launcher asks Kubernetes for 3 s at most

LIMIT = {"cpu": "500m", "memory": "256Mi"}
LAUNCHER_FIRST = "echo 1000 > /proc/1/oom_score_adj"
TAKE_ALL = "exec python3 -c \"b'x' * (1 << 30)\""


def run_out_of_memory(training: Training, pod: str) -> None:
    """The process that takes too much memory is no child of the launcher, so the launcher cannot report its death."""
    command = ["kubectl", "-n", training.cluster.namespace, "exec", pod, "--", "sh", "-c"]
    done = subprocess.run([*command, f"{LAUNCHER_FIRST}; {TAKE_ALL}"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 137, done


def first_end(training: Training, uid: str) -> Json:
    """Return how the first container of a pod ended. The container may have restarted since."""
    (pod,) = (pod for pod in training.pods() if pod["metadata"]["uid"] == uid)
    container = pod["status"]["containerStatuses"][0]
    found: Json = (container["lastState"] or container["state"]).get("terminated") or {}
    return found


@pytest.mark.parametrize(
    ("policy", "gone"),
    [("Never", 0), ("Never", 1), ("OnFailure", 1)],
    ids=["the hub's pod is replaced", "another pod is replaced", "a container is started again"],
)
def test_an_out_of_memory_launcher_is_named_as_such_and_the_job_waits_for_it(
    training: Training, policy: str, gone: int
) -> None:
    def limited(job: Json) -> None:
        job["spec"]["backoffLimit"] = SIZE
        template = job["spec"]["template"]["spec"]
        template["restartPolicy"] = policy
        template["containers"][0]["resources"] = {
            "limits": LIMIT,
            "requests": LIMIT,
        }  # so that all processes have the same OOM score

    flags = f"--num_passes={PASSES}"
    training.submit(flags, mode="Indexed", change=limited, hold_before=2, LAUNCHER_MAX_RESTARTS="3")
    before = training.until_saved(1)
    run_out_of_memory(training, before[gone]["pod"])
    until(lambda: first_end(training, before[gone]["uid"]), training.pods)
    end = first_end(training, before[gone]["uid"])
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)

    training.let_go()
    training.until_complete_after("lost")
    after = training.status()
    assert [after[rank]["uid"] == before[rank]["uid"] for rank in range(SIZE)] == [
        rank != gone or policy == "OnFailure" for rank in range(SIZE)
    ]
    asked = 0 if gone else 1
    for words in ("was lost without a message", "Kubernetes says: ", "OOMKilled, exit code 137"):
        assert words in training.told(asked)
        assert words in describe(str(training.volume / training.name), as_json=False)
