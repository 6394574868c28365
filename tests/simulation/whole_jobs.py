"""Schedules of faults for jobs with real launchers, and the code that plays them in simulated time.

Hypothesis draws the schedules.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from tests.simulation.children import Program
from tests.simulation.pods import FLAGS, Job, Pod, Scene
from tests.simulation.schedule import (
    AFTER,
    LATER,
    PACES,
    RANKS,
    SHORT,
    Apart,
    Broken,
    Cut,
    Death,
    Fault,
    Freeze,
    Killed,
    Off,
    Pace,
    Rival,
    Silence,
    Told,
    some_fault,
)

SILENCE = 30.0
GRACE = 25.0
PEER_TIMEOUT = 120.0
COMMANDS = {"v0": (), "ps": ("python", "train.py"), "collective": ("python", "train.py")}


@dataclass(frozen=True)
class Stalls(Fault):
    """The volume does not answer this member for a while."""

    seconds: float


@dataclass(frozen=True)
class Fills(Fault):
    """The volume is full for a while."""

    seconds: float


@dataclass(frozen=True)
class SigtermToAll(Fault):
    """All launchers get SIGTERM, with `apart` seconds between two signals."""

    apart: float


@dataclass(frozen=True)
class SigtermTwice(Fault):
    """A launcher gets SIGTERM twice, with `apart` seconds between the signals."""

    apart: float


@dataclass(frozen=True)
class JobSchedule:
    """The settings of a job, and its faults. A list that is too short is used again from its beginning."""

    size: int = 3
    pservers: int = 0  # additional pods that only serve
    heters: int = 0  # additional pods that are heter workers, if there are pods that only serve
    mode: str = "v0"
    delays: tuple[float, ...] = (0.05,)
    paces: tuple[Pace, ...] = (Pace(),)
    faults: tuple[Fault, ...] = ()
    restarts: int = 1
    rejoins: bool = False
    volume_delay: float = 0.0  # seconds until the volume answers
    saves: bool = True
    replaces: float | None = None  # seconds after which a lost pod is replaced
    second_start: float | None = None  # seconds after which the same job starts a second time


def some_fault_of_a_job() -> st.SearchStrategy[Fault]:
    """Draw a fault of the gang, a fault of the volume, or a signal."""
    stalls = st.builds(Stalls, AFTER, RANKS, st.sampled_from((0.5, 3.0, 40.0)))
    fills = st.builds(Fills, AFTER, RANKS, st.sampled_from((0.5, 5.0)))
    to_all = st.builds(SigtermToAll, LATER, RANKS, st.sampled_from((0.0, 0.3, 2.0)))
    twice = st.builds(SigtermTwice, AFTER, RANKS, st.sampled_from((0.0, 0.2, 3.0)))
    broken = st.builds(Broken, SHORT, RANKS)
    return st.one_of(*[some_fault() for _ in range(6)], stalls, fills, to_all, twice, broken)


JOB_SCHEDULES = st.builds(
    JobSchedule,
    size=st.integers(1, 4),
    pservers=st.sampled_from((0, 0, 0, 1, 2)),
    heters=st.sampled_from((0, 0, 1, 2)),
    mode=st.sampled_from(("v0", "v0", "ps", "collective")),
    delays=st.lists(st.sampled_from((0.001, 0.01, 0.05, 0.2)), min_size=1, max_size=6).map(tuple),
    paces=st.lists(PACES, min_size=1, max_size=5).map(tuple),
    faults=st.lists(some_fault_of_a_job(), min_size=1, max_size=6).map(tuple),
    restarts=st.sampled_from((3, 6, 2, 1, 0)),
    rejoins=st.booleans(),
    volume_delay=st.sampled_from((0.0, 0.0, 0.01, 0.3)),
    saves=st.booleans(),
    replaces=st.sampled_from((None, 0.5, 5.0, 20.0)),
    second_start=st.sampled_from((None, None, None, None, 0.5, 4.0)),
)


@dataclass
class Tale:
    """A schedule and all that happened while it was played."""

    schedule: JobSchedule
    scene: Scene
    waiting: list[Pod]

    @property
    def pods(self) -> list[Pod]:
        return self.scene.pods()

    def has(self, *kinds: type[Fault]) -> bool:
        return any(isinstance(fault, kinds) for fault in self.schedule.faults)

    def undisturbed(self) -> bool:
        """Return whether all pods could reach each other and the volume all the time."""
        disturbing = (Cut, Silence, Freeze, Killed, Off, Stalls, Fills, Rival)
        return not self.has(*disturbing) and self.schedule.second_start is None


class Play:
    """Play one schedule."""

    def __init__(self, schedule: JobSchedule, folder: str) -> None:
        self.schedule = schedule
        self.scene = Scene(folder, schedule.delays)
        self.scene.volume.delay, self.scene.volume.lag = schedule.volume_delay, 2 * schedule.volume_delay
        self.jobs = [self._job()]
        if schedule.second_start is not None:
            self.jobs.append(self._job())
        for job, starts in zip(self.jobs, (0.0, schedule.second_start or 0.0), strict=False):
            self._start(job, starts)
        for fault in schedule.faults:
            if isinstance(fault, Broken):  # `after` has no effect on this fault
                self.jobs[0].pods[fault.rank % self.jobs[0].shape.size].staging_fails = "there is no such folder"
        at = 0.0
        for fault in schedule.faults:
            at += fault.after
            self.scene.at(at, self._strike, fault)
        self._until = at + 3000.0
        if schedule.replaces is not None and schedule.rejoins and schedule.restarts:
            self.scene.gone = partial(self._replace, schedule.replaces)

    def run(self) -> Tale:
        return Tale(self.schedule, self.scene, self.scene.run(self._until))

    def _start(self, job: Job, after: float) -> None:
        for pod in job.pods:
            job.start(pod.rank, after=after + self._pace(pod.rank).starts)

    def _pace(self, rank: int) -> Pace:
        return self.schedule.paces[rank % len(self.schedule.paces)]

    def _job(self) -> Job:
        schedule = self.schedule
        mode = "ps" if schedule.pservers else schedule.mode
        variables = {
            "LAUNCHER_MAX_RESTARTS": str(schedule.restarts),
            "LAUNCHER_REJOIN_TIMEOUT": f"{PEER_TIMEOUT / 2:g}" if schedule.rejoins else "0",
            "LAUNCHER_PEER_TIMEOUT": f"{PEER_TIMEOUT:g}",
            "LAUNCHER_SILENCE": f"{SILENCE:g}",
            "LAUNCHER_STOP_GRACE": f"{GRACE:g}",
            "LAUNCHER_STALL_TIMEOUT": "auto",
            **({} if mode == "v0" else {"LAUNCHER_MODE": mode}),
        }
        job = Job(
            self.scene,
            schedule.size,
            pservers=schedule.pservers,
            heters=schedule.heters if schedule.pservers else 0,
            identity="" if schedule.pservers else "job-1",
            flags=FLAGS,
            command=COMMANDS[mode],
            environment=variables,
        )
        for pod in job.pods:
            pace = self._pace(pod.rank)
            pod.stages = pace.stages
            pod.program = Program(
                serves=pace.serves, passes=1, each=max(pace.trains, 0.01), ends=pace.ends, saves=schedule.saves
            )
        return job

    def _replace(self, seconds: float, pod: Pod) -> None:
        """Replace a pod as its controller does, at most twice per rank."""
        if pod.starts < 2 and pod is pod.job.pods[pod.rank]:
            pod.job.again(pod.rank, after=seconds)

    def _strike(self, fault: Fault) -> None:
        job, world = self.jobs[0], self.scene.world
        pod, hub = job.pods[fault.rank % job.shape.size], job.pods[0]
        struck = [pod] if pod is not hub else job.pods[1:]
        match fault:
            case Cut(_, _, later, away):
                for other in struck:
                    world.cut(other.machine, hub.machine, later, away)
            case Silence(_, _, up, down, seconds):
                for other in struck:
                    if up:
                        world.silence(other.machine, hub.machine, seconds)
                    if down:
                        world.silence(hub.machine, other.machine, seconds)
            case Apart(_, _, seconds):
                if pair := fault.pair(job.shape.size):
                    one, other = (job.pods[rank] for rank in pair)
                    world.part(one.machine, other.machine, seconds)
            case Freeze(_, _, seconds):
                pod.note("fault", f"is frozen for {seconds:g} s")
                pod.machine.freeze(seconds)
            case Killed() if pod.lives:
                pod.kill()
            case Off() if pod.lives:
                pod.switch_off()
            case Death(_, _, kind, code, later):
                pod.dies(kind, code, fault.after, later)
            case Told():
                pod.signal()
            case SigtermTwice(_, _, apart):
                pod.signal()
                self.scene.at(apart, pod.signal)
            case SigtermToAll(_, _, apart):
                for rank, member in enumerate(job.pods):
                    self.scene.at(rank * apart, member.signal)
            case Stalls(_, _, seconds):
                pod.stall(seconds)
            case Fills(_, _, seconds):
                self.scene.volume.is_full = True
                self.scene.at(seconds, setattr, self.scene.volume, "is_full", False)
            case Rival():
                self._claim()

    def _claim(self) -> None:
        """Claim the next generation for another gang of this job."""
        folder = os.path.join(self.jobs[0].output, ".launcher", "job-1")
        if os.path.isdir(folder):
            claimed = sum(name.startswith("generation-") for name in os.listdir(folder))
            with open(os.path.join(folder, f"generation-{claimed}"), "x"):
                pass
