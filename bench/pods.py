"""Times of real pods: from the last launcher's process to the first trainer's, and how fast a job ends.

    KUBECONFIG=... E2E_IMAGE=... python -m bench pods                  10 Jobs by each way of discovery
    KUBECONFIG=... E2E_IMAGE=... python -m bench.pods dns --runs 5

The nodes must be on this machine, since the times of processes come from /proc. The nodes must already have the image.
No other work should run on this machine, so its load is printed with the figures. Each Job of three pods trains. Then a
trainer is killed or the Job is deleted, alternately.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cluster import ENDLESS, Events, batch, core, demand, found_by_name, service, slices, told_of_itself
from bench.jobs import now, until_quiet
from bench.processes import Ends, Process, Watch, listening
from tests.e2e.cluster import SIZE, Cluster, Json, namespace, until
from tests.e2e.training import Training
from tests.support.jobs import fresh, make_volume

RUNS = 10
TRAINS = "first trainer is created"
PSERVER_PORTS = set(range(7164, 7168))
Times = dict[str, float]


class Story:
    """The times of the events in the pods of one Job."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self.addressed: dict[str, float] = {}  # pod: when the API server knew its address
        self.deleted: dict[str, float] = {}
        self.hub_named: float | None = None  # when the Service had the address of index 0
        self.serving: dict[str, float] = {}
        self.joined: dict[int, float] = {}  # rank: when it had a folder on the volume

    def pod(self, at: float, kind: str, seen: Json) -> None:
        name = seen["metadata"]["name"]
        if seen["metadata"]["labels"].get("job-name") != self._training.name:
            return
        if kind == "DELETED":
            self.deleted[name] = at
        elif seen["status"].get("podIP"):
            self.addressed.setdefault(name, at)

    def slice(self, at: float, _kind: str, seen: Json) -> None:
        hosts = {endpoint.get("hostname") for endpoint in seen.get("endpoints") or []}
        if f"{self._training.name}-0" in hosts and self.hub_named is None:
            self.hub_named = at

    def look(self, processes: list[Process]) -> None:
        """Note which pservers listen and which ranks have joined. Called every few milliseconds."""
        for one in processes:
            if one.pod not in self.serving and one.runs("paddle", "pserver"):
                try:
                    if listening(one.pid) >= PSERVER_PORTS:
                        self.serving[one.pod] = now()
                except OSError:
                    pass  # the process has ended
        for rank in range(SIZE):
            if rank not in self.joined and (self._training.output / f"node_{rank}").exists():
                self.joined[rank] = now()


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="bench.pods", description=__doc__)
    parser.add_argument("ways", nargs="*", default=["dns", "api"], help="dns, api")
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args(arguments)
    demand()
    starts: dict[str, list[Times]] = {way: [] for way in given.ways}
    ends: dict[str, list[Times]] = {}
    with namespace() as cluster, tempfile.TemporaryDirectory() as name:
        cluster.create(service())
        original = make_volume(Path(name))
        for way in given.ways:
            for run in range(given.runs):
                until_quiet()
                folder = Path(name) / f"{way}-{run}"
                folder.mkdir()
                training = Training(cluster, f"{way}-{run}", fresh(original, folder))
                (training.volume / "quick-start").rename(training.volume / training.name)
                how = ("trainer killed", "Job deleted")[run % 2]
                start, end = measure(cluster, training, way, how)
                starts[way].append(start)
                ends.setdefault(how, []).append(end)
                print(
                    f"{way} {run}: trains after {start[TRAINS]:.2f} s; {how}, over after {max(end.values()):.2f} s; "
                    f"load {os.getloadavg()[0]:.2f}",
                    flush=True,
                )
    for way, rows in starts.items():
        show(f"start, discovery by {way}, from the creation of the last launcher's process", rows)
    for how, rows in ends.items():
        show(how, rows)


def measure(cluster: Cluster, training: Training, way: str, how: str) -> tuple[Times, Times]:
    """Run one Job. Return the times of its start and of its end."""
    story = Story(training)
    with Watch(story.look) as watch:
        pods = Events(story.pod, core().list_namespaced_pod, cluster.namespace)
        names = Events(story.slice, slices().list_namespaced_endpoint_slice, cluster.namespace)
        mode = "Indexed" if way == "dns" else "NonIndexed"
        training.submit(*ENDLESS, mode=mode, change=CHANGES[way], STANDIN_BATCH_SECONDS="0.05").until_training()
        start = _start(story, watch.of(story.addressed))
        alive = [one for one in watch.of(story.addressed) if one.ended is None]
        end = ENDS[how](cluster, training, story, alive)
        pods.close()
        names.close()
    return start, end


def _start(story: Story, processes: list[Process]) -> Times:
    launchers = [one for one in processes if one.runs("paddle-launcher", "run")]
    assert len(launchers) == SIZE, [one.words for one in processes]
    zero = max(one.born for one in launchers)

    def born(*words: str) -> list[float]:
        return [one.born for one in processes if one.runs(*words)]

    copied = [one.ended or now() for one in processes if one.runs("launcher.data.stage_child")]
    seen = {
        "first launcher is created": min(one.born for one in launchers),
        "last launcher's program runs": max(one.ran or 0 for one in launchers),
        "last discovery child is created": max(born("launcher.discovery.kubernetes_child"), default=None),
        "last pserver is created": max(born("paddle", "pserver")),
        "last pserver listens": max(story.serving.values()),
        "last pod's address is at the API server": max(story.addressed.values()),
        "hub's address is in the Service": story.hub_named,
        "last copying child is created": max(born("launcher.data.stage_child")),
        "last copying child has ended": max(copied),
        "gang is complete (folder on the volume)": max(story.joined.values()),
        TRAINS: min(born("paddle_trainer")),
        "last trainer is created": max(born("paddle_trainer")),
    }
    return {what: at - zero for what, at in seen.items() if at is not None}


def _kill(cluster: Cluster, training: Training, story: Story, processes: list[Process]) -> Times:
    trainer = next(one for one in processes if one.runs("paddle_trainer"))
    ends = Ends(one.pid for one in processes)
    begin = now()
    os.kill(trainer.pid, signal.SIGKILL)
    times = _ends(processes, ends.wait(), begin)
    training.until_ended()
    delete(cluster, training)
    _until_gone(story)
    return times


def _remove(cluster: Cluster, training: Training, story: Story, processes: list[Process]) -> Times:
    ends = Ends(one.pid for one in processes)
    begin = now()
    delete(cluster, training)
    times = _ends(processes, ends.wait(), begin)
    _until_gone(story)
    return times | {"last pod is gone from the API server": max(story.deleted.values()) - begin}


def _ends(processes: list[Process], ended: dict[int, float], begin: float) -> Times:
    launchers = {one.pid for one in processes if one.runs("paddle-launcher", "run")}
    children = [at - begin for pid, at in ended.items() if pid not in launchers]
    own = [at - begin for pid, at in ended.items() if pid in launchers]
    return {
        "first child has ended": min(children),
        "last child has ended": max(children),
        "first launcher has ended": min(own),
        "last launcher has ended": max(own),
    }


def delete(cluster: Cluster, training: Training) -> None:
    batch().delete_namespaced_job(training.name, cluster.namespace, propagation_policy="Background")


def _until_gone(story: Story) -> None:
    until(lambda: len(story.deleted) == SIZE)
    time.sleep(1)  # until the nodes have cleaned up


CHANGES: dict[str, Callable[[Json], None]] = {"dns": found_by_name, "api": told_of_itself}
ENDS = {"trainer killed": _kill, "Job deleted": _remove}


def show(title: str, rows: list[Times]) -> None:
    print(f"\n{title}: {len(rows)} runs\n{'':<44}{'median':>9}{'worst':>9}")
    whats: list[Any] = sorted(rows[0], key=lambda what: median(row[what] for row in rows))
    for what in whats:
        values = [row[what] for row in rows]
        print(f"{what:<44}{median(values):>7.2f} s{max(values):>7.2f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
