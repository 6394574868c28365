"""Delete a pod: the time from the launcher's start in the new pod until all trainers run again.

KUBECONFIG=... E2E_IMAGE=... python -m bench replaced      # the nodes must be on this machine, as for `pods`
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bench.cluster import ENDLESS, demand, told_of_itself
from bench.jobs import now, shown, until_quiet
from bench.pods import delete
from bench.processes import Process, Watch
from tests.e2e.cluster import SIZE, Json, namespace, until
from tests.e2e.pods import delete_pod
from tests.e2e.training import Training
from tests.support.jobs import fresh, make_volume

RUNS = 5


def main() -> None:
    demand()
    with namespace() as cluster, tempfile.TemporaryDirectory() as name:
        original = make_volume(Path(name))
        for rank, what in ((1, "a member's pod"), (0, "the hub's pod")):
            took = []
            for run in range(RUNS):
                until_quiet()
                folder = Path(name) / f"{rank}-{run}"
                folder.mkdir()
                training = Training(cluster, f"replaced-{rank}-{run}", fresh(original, folder))
                (training.volume / "quick-start").rename(training.volume / training.name)
                took.append(measure(training, rank))
                delete(cluster, training)
                until(partial(gone, training))
            print(f"{what} is deleted, from its successor's launcher to all trainers: {shown(took)}", flush=True)


def measure(training: Training, rank: int) -> float:
    with Watch(lambda processes: None) as watch:
        training.submit(
            *ENDLESS, mode="Indexed", change=replaceable, LAUNCHER_MAX_RESTARTS="3", STANDIN_BATCH_SECONDS="0.05"
        )
        before = training.until_training()
        begin = now()
        delete_pod(training, before[rank]["pod"])
        until(lambda: len({one.pod for one in again(watch.of(pods(training)), begin)}) == SIZE, training.logs)
        processes = watch.of(pods(training))
        (successor,) = [one for one in processes if one.runs("paddle-launcher", "run") and one.born > begin]
        return max(one.born for one in again(processes, begin)) - successor.born


def gone(training: Training) -> bool:
    return not training.pods()


def pods(training: Training) -> list[str]:
    return [pod["metadata"]["name"] for pod in training.pods()]


def again(processes: list[Process], begin: float) -> list[Process]:
    """Return the trainers of the next generation."""
    return [one for one in processes if one.runs("paddle_trainer") and one.born > begin]


def replaceable(job: Json) -> None:
    told_of_itself(job)
    job["spec"]["backoffLimit"] = SIZE


if __name__ == "__main__":
    main()
