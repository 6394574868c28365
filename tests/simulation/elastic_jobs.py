"""Schedules for jobs whose size changes, and the code that plays them in simulated time. Hypothesis draws them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.simulation.children import Program
from tests.simulation.pods import Job, Pod
from tests.simulation.schedule import PACES, RANKS, Cut, Death, Fault, Freeze, Killed, Off, Silence, Told
from tests.simulation.whole_jobs import JobSchedule, Play, Stalls, Tale

_REPLACED = 3  # how often a pod of one number is replaced at most


@dataclass(frozen=True)
class Scale(Fault):
    """The user asks for this number of pods."""

    pods: int


@dataclass(frozen=True)
class ElasticSchedule(JobSchedule):
    """An elastic job of at most `size` trainers.

    least: the fewest trainers
    begins: how many pods the user asks for at the beginning
    shrink: LAUNCHER_SHRINK
    each: seconds per pass
    step: seconds of a step, after which trainers call `launcher.train.should_stop`; 0: they do not
    """

    restarts: int = 3
    rejoins: bool = True
    least: int = 1
    begins: int = 2
    shrink: str = "wait"
    each: float = 5.0
    step: float = 0.0
    is_numbered: bool = True


def some_change() -> st.SearchStrategy[Fault]:
    after = st.sampled_from((0.0, 0.3, 1.0, 3.0, 8.0, 20.0))
    scale = [st.builds(Scale, after, st.just(0), st.integers(1, 4)) for _ in range(8)]
    told = [st.builds(Told, after, RANKS) for _ in range(3)]
    killed = [st.builds(Killed, after, RANKS) for _ in range(3)]
    death = st.builds(Death, after, RANKS, st.sampled_from(("trainer", "pserver")), st.just(1), st.just(0.0))
    cut = st.builds(Cut, after, RANKS, st.just(0.05), st.sampled_from((0.0, 0.4, 1.1, 3.0)))
    silence = st.builds(Silence, after, RANKS, st.booleans(), st.booleans(), st.sampled_from((1.0, 20.0, 60.0)))
    freeze = st.builds(Freeze, after, RANKS, st.sampled_from((1.0, 20.0, 60.0)))
    stalls = st.builds(Stalls, after, RANKS, st.sampled_from((0.5, 3.0, 40.0)))
    return st.one_of(*scale, *told, *killed, death, cut, silence, freeze, stalls, st.builds(Off, after, RANKS))


ELASTIC_SCHEDULES = st.builds(
    ElasticSchedule,
    size=st.just(4),
    least=st.integers(1, 3),
    begins=st.integers(1, 4),
    mode=st.sampled_from(("v0", "ps", "collective")),
    delays=st.lists(st.sampled_from((0.001, 0.01, 0.05, 0.2)), min_size=1, max_size=6).map(tuple),
    paces=st.lists(PACES, min_size=1, max_size=4).map(tuple),
    faults=st.lists(some_change(), min_size=1, max_size=8).map(tuple),
    restarts=st.sampled_from((3, 6)),
    rejoins=st.just(True),
    volume_delay=st.sampled_from((0.0, 0.0, 0.01, 0.3)),
    saves=st.booleans(),
    replaces=st.sampled_from((None, 0.5, 5.0, 20.0)),
    shrink=st.sampled_from(("now", "wait")),
    each=st.sampled_from((0.5, 5.0, 30.0)),
    step=st.sampled_from((0.0, 0.2, 1.0)),
    is_numbered=st.sampled_from((True, True, False)),
)


class ElasticPlay(Play):
    """Play one schedule, with the part of Kubernetes that makes, deletes and replaces the pods."""

    schedule: ElasticSchedule

    def __init__(self, schedule: ElasticSchedule, folder: str) -> None:
        self._wanted = schedule.begins
        super().__init__(schedule, folder)
        self.scene.gone = self._gone

    def run(self) -> Tale:
        return Tale(self.schedule, self.scene, self.scene.run(self._until))

    def _job(self) -> Job:
        job = super()._job()
        schedule = self.schedule
        job.sizes, job.is_numbered = f"{schedule.least}:{schedule.size}", schedule.is_numbered
        job.environment = {
            **job.environment,
            "LAUNCHER_SHRINK": schedule.shrink,
            "LAUNCHER_SETTLE": "5",
        }
        for pod in job.pods:
            pace = self._pace(pod.rank)
            pod.program = Program(
                serves=pace.serves,
                passes=3,
                each=schedule.each,
                ends=pace.ends,
                saves=schedule.saves,
                step=schedule.step,
            )
        for shard in range(schedule.size):
            os.makedirs(os.path.join(self.scene.volume.folder, "job", str(shard), "data"))
        return job

    def _start(self, job: Job, after: float) -> None:
        for pod in job.pods[: self._wanted]:
            job.start(pod.rank, after=after + self._pace(pod.rank).starts)

    def _strike(self, fault: Fault) -> None:
        if isinstance(fault, Scale):
            self._wanted = fault.pods
            self._reconcile()
        else:
            super()._strike(fault)

    def _gone(self, pod: Pod) -> None:
        """Replace a pod that is gone, as its controller does."""
        if self.schedule.replaces is not None and pod is pod.job.pods[pod.rank]:
            self.scene.expect(self.schedule.replaces, self._reconcile)

    def _reconcile(self) -> None:
        job = self.jobs[0]
        for pod in list(job.pods):
            if pod.rank >= self._wanted:
                pod.due = False
                pod.signal()
            elif not (pod.lives or pod.due or pod.starts >= _REPLACED):
                self._make(job, pod)

    def _make(self, job: Job, pod: Pod) -> None:
        has_run = pod.result is not None or pod.machine.dead
        if pod.result is not None and pod.result.code == 0:
            return
        if has_run:
            job.again(pod.rank, after=0.0)
        else:
            job.start(pod.rank)
