"""Jobs of pods in simulated time. Each pod runs the launcher's real sessions, with fakes for all that acts outside."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from launcher import config
from launcher.base.host import address_order
from launcher.base.log import TextHandler, shown_by
from launcher.config import JobConfig
from launcher.discovery.finder import Finder, FinderSettings
from launcher.errors import Exit, Failure
from launcher.model import Member, Outcome, Peers, Shape
from launcher.run import launcher
from launcher.run.factories import Factories
from launcher.run.signals import Signals
from tests.simulation.children import Child, FakeSupervisor, Program
from tests.simulation.machines import Machine, Machines, Volume, here

FLAGS = ("--config=trainer_config.lr.py", "--num_passes=3")


async def run_launcher(
    config: JobConfig,
    flags: Sequence[str],
    command: Sequence[str],
    factories: Factories,
    received: Sequence[int],
) -> Outcome:
    """Do what the process of a launcher does, from its start to its exit code."""
    signals = Signals()
    signals.watch(received)
    return await launcher.run(config, flags, command, signals, None, factories)


@dataclass(frozen=True)
class Entry:
    """Something that a pod did or suffered, as seen from outside of its launcher.

    kind: child | said | in | out | runs | file | end | fault
    """

    at: float
    pod: Pod
    kind: str
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


class Scene:
    """The machines, their volume, and all entries."""

    def __init__(self, folder: str, delays: Sequence[float] = (0.05,)) -> None:
        self.volume = Volume(os.path.join(folder, "volume"))
        os.mkdir(self.volume.folder)
        self.disks = os.path.join(folder, "disks")
        self.world = Machines(delays, self.volume)
        self.world.sent = partial(self._line, "out")
        self.world.tap = lambda sender, receiver, line: self._line("in", receiver, sender, line)
        self.volume.changed = self._changed
        self.jobs: list[Job] = []
        self.entries: list[Entry] = []
        self._pods: dict[str, Pod] = {}
        self.gone: Callable[[Pod], None] = lambda pod: None  # called for each pod that is gone
        self._expected = 0  # how many pods will still be made
        self._triggers: list[tuple[Pod, str, str, Callable[[], object]]] = []

    def add(self, pod: Pod) -> Machine:
        disk = os.path.join(self.disks, pod.address)
        os.makedirs(disk)
        self._pods[pod.address] = pod
        return self.world.machine(pod.address, 1000.0 * len(self._pods), disk)

    def pods(self) -> list[Pod]:
        return list(self._pods.values())

    def run(self, until: float) -> list[Pod]:
        """Run until all pods have ended, or until this time. Return the pods that have not ended."""
        with shown_by(TextHandler(self._said)):
            self.world.run(lambda: not self._expected and not self._living(), until)
            living = self._living()
            self.world.close()
        return living

    def _living(self) -> list[Pod]:
        return [pod for pod in self.pods() if pod.due or (pod.lives and not pod.machine.dead)]

    def at(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Schedule a call this many seconds from now."""
        self.world.after(seconds, call, *args)

    def expect(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Schedule a call that makes a pod. The scene does not end before this call."""

        def do() -> None:
            self._expected -= 1
            call(*args)

        self._expected += 1
        self.at(seconds, do)

    def when(self, pod: Pod, kind: str, words: str, call: Callable[..., object], *args: object) -> None:
        """Schedule a call for the first entry of this pod that has this kind and contains these words."""
        self._triggers.append((pod, kind, words, partial(call, *args)))

    def note(self, pod: Pod, kind: str, text: str, **facts: Any) -> None:
        if self.world.over:
            return
        self.entries.append(Entry(self.world.now, pod, kind, text, facts))
        line = facts.get("line", b"").decode()
        for trigger in list(self._triggers):
            of, known, words, call = trigger
            if of is pod and known == kind and words in (line or text):
                self._triggers.remove(trigger)
                self.world.after(0.0, call)

    def _said(self, text: str) -> None:
        self.note(self._pods[here().name], "said", text)

    def _line(self, kind: str, one: Any, other: Any, line: bytes) -> None:
        self.note(self._pods[one.name], kind, "", other=self._pods[other.name], line=line)

    def _changed(self, machine: Machine, path: str) -> None:
        name = os.path.relpath(path, self.volume.folder)
        content = b""
        if os.path.isfile(path):
            with open(path, "rb") as file:
                content = file.read()
        self.note(self._pods[machine.name], "file", name, content=content)


class Job:
    """The pods of one job, and the part of a cluster that replaces them."""

    def __init__(
        self,
        scene: Scene,
        size: int = 3,
        *,
        pservers: int = 0,
        heters: int = 0,
        identity: str = "job-1",
        flags: Sequence[str] = FLAGS,
        command: Sequence[str] = (),
        program: Program | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.scene = scene
        self.shape = Shape(size, pservers, heters)
        self.sizes = str(size)  # of an elastic job: the least and the most trainers
        self.is_numbered = True
        self.identity = identity
        self.flags = flags
        self.command = command
        self.program = program or Program()
        self.environment = environment or {}
        self.number = len(scene.jobs)
        scene.jobs.append(self)
        self.pods = [self.make(rank) for rank in range(self.shape.size)]  # the newest pod of each rank

    def make(self, rank: int, starts: int = 0) -> Pod:
        """Return a pod that is not started yet. `starts`: how many pods of this rank there were before."""
        return Pod(self, rank, starts)

    def start(self, *ranks: int, after: float = 0.0) -> Job:
        for rank in ranks or range(self.shape.size):
            self.pods[rank].due = True
            self.scene.world.after(after, self.pods[rank].start)
        return self

    def again(self, rank: int, after: float) -> None:
        """Replace the pod of this rank, which must have ended by then."""
        self.scene.expect(after, self._again, rank)

    def _again(self, rank: int) -> None:
        before = self.pods[rank]
        pod = self.pods[rank] = self.make(rank, before.starts + 1)
        pod.program = before.program
        pod.start()

    def save_pass(self, number: int) -> None:
        place = os.path.join(self.output, f"pass-{number:05d}")
        os.makedirs(place, exist_ok=True)
        open(os.path.join(place, "done"), "w").close()

    @property
    def output(self) -> str:
        return os.path.join(self.scene.volume.folder, "job", "output")


class Pod:
    """One pod: its launcher, its processes, and its machine."""

    def __init__(self, job: Job, rank: int, starts: int) -> None:
        self.job = job
        self.rank = rank
        self.starts = starts
        self.name = f"{'abcdef'[job.number]}-{rank}"
        self.label = self.name + ("" if not starts else f"-again-{starts}")
        self.uid = f"uid-{self.label}"
        self.address = f"10.{job.number}.{starts}.{rank}"
        self.role = job.shape.role(rank)
        self.program = job.program
        self.stages = 0.5
        self.staging_fails = ""
        self.hangs = False  # whether its trainers hang
        self.due = False  # whether it will still be started
        self.lives = False
        self.result: Outcome | None = None
        self.left_at: float | None = None
        self.told_at: list[float] = []
        self.became = ""  # what Kubernetes reports about the pod after its end
        self.children: list[tuple[Child, FakeSupervisor]] = []
        self.doomed: list[
            tuple[str, int, float, float]
        ] = []  # role, exit code, seconds from the start to the death, seconds until the launcher notices it
        self.machine = job.scene.add(self)
        self.termination = Path(self.machine.disk, "termination")

    # ---- what happens to it --------------------------------------------------------------------------------------

    def start(self) -> None:
        self.due = False
        if not self.machine.off and self.result is None and not self.lives:
            self.lives = True
            self.termination.touch()
            self.note("fault", "starts")
            self.machine.create_task(self._run())

    def signal(self, number: int = signal.SIGTERM) -> None:
        if self.lives and not self.machine.dead:
            self.told_at.append(self.job.scene.world.now)
            self.note("fault", "is told to stop", told=True)
            self.became = "deleted"
            if handler := self.machine.handlers.get(number):
                self.machine.call_soon(handler)

    def kill(self) -> None:
        """Kill the launcher by SIGKILL."""
        self._gone("is killed", "OOMKilled")
        self.machine.kill()

    def switch_off(self) -> None:
        """Switch off the pod's node."""
        self._gone("is switched off", "its node does not answer")
        self.machine.switch_off()

    def dies(self, kind: str, code: int, after: float = 0.0, later: float = 0.0) -> None:
        """Kill the running child of this kind. If it does not run yet, it dies `after` seconds from its start."""
        for child, supervisor in self.children:
            if child.alive and child.process.role == kind:
                supervisor.die(child, code, later)
                return
        self.doomed.append((kind, code, after, later))

    def stall(self, seconds: float) -> None:
        self.note("fault", f"its volume does not answer for {seconds:g} s")
        self.job.scene.volume.stall(self.machine, seconds)

    def _gone(self, how: str, became: str) -> None:
        if self.lives:
            self.note("fault", how, gone=True)
        self.lives = False
        self.became = self.became or became
        for child, supervisor in self.children:
            supervisor.lose(child, f"{child.process.role} is gone")
        self.job.scene.gone(self)

    # ---- what its launcher is given ------------------------------------------------------------------------------

    def after(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        """Schedule a call of the pod's processes, which also run while the launcher is frozen."""
        self.job.scene.world.after(seconds, call, *args)

    def note(self, kind: str, text: str, **facts: Any) -> None:
        self.job.scene.note(self, kind, text, **facts)

    def started(self, child: Child, supervisor: FakeSupervisor) -> None:
        self.children.append((child, supervisor))
        for doom in [doom for doom in self.doomed if doom[0] == child.process.role][:1]:
            self.doomed.remove(doom)
            _, code, after, later = doom
            self.after(after, supervisor.die, child, code, later)

    @property
    def config(self) -> JobConfig:
        job, disk = self.job, self.machine.disk
        roles = {"LAUNCHER_ROLE": self.role, "LAUNCHER_PSERVERS": str(job.shape.pservers), "LAUNCHER_SELECTOR": "app=x"}
        if job.shape.heters:
            roles["LAUNCHER_HETERS"] = str(job.shape.heters)
        given = {
            "JOB_NAME": "job",
            "JOB_PATH": job.scene.volume.folder,
            "CONF_PADDLE_GRADIENT_NUM": job.sizes,
            "POD_NAME": self.name,
            "POD_IP": self.address,
            "POD_UID": self.uid,
            **({"LAUNCHER_RANK": str(job.shape.number(self.rank))} if job.is_numbered else {}),
            "LAUNCHER_WORKDIR": disk,
            "LAUNCHER_TERMINATION_LOG": str(self.termination),
            "LAUNCHER_STALL_TIMEOUT": "0",
            **({"LAUNCHER_JOB_ID": job.identity} if job.identity else {}),
            **(roles if job.shape.pservers else {}),
            **job.environment,
        }
        read = config.read(given, {}, check_here=False)
        return replace(read, training_address=self.address, host_name=self.name)

    async def _run(self) -> None:
        factories = Factories(
            page=None,
            supervisor=cast(Any, partial(FakeSupervisor, self)),
            finder=lambda settings: FakeFinder(self, settings),
            staging=cast(Any, partial(FakeStaging, self)),
        )
        received = [signal.SIGTERM for _ in self.told_at]
        result = await run_launcher(self.config, self.job.flags, self.job.command, factories, received)
        if self.job.scene.world.over:
            return
        self.result, self.left_at, self.lives = result, self.job.scene.world.now, False
        self.note("end", self.termination.read_text() or "no termination message", result=result)
        for child, supervisor in self.children:
            if not self.program.held:
                supervisor.lose(child, f"{child.process.role} was left behind")
        self.machine.call_soon(self.machine.kill)
        if result.code == Exit.STOPPED:
            self.job.scene.gone(self)


class FakeFinder(Finder):
    """A finder that knows all pods of the job by their numbers, as Kubernetes does."""

    def __init__(self, pod: Pod, settings: FinderSettings) -> None:
        super().__init__(settings)
        self._pod = pod

    async def identity(self) -> str | None:
        if self._settings.job_id or not self._pod.job.shape.pservers:
            return self._settings.job_id
        return f"uid-of-{self._pod.role}s"

    async def find(self) -> Peers:
        pod, hub = self._pod, self._pod.job.pods[0]
        me = self._own_member(pod.rank, pod.address)
        if self._settings.any_leads:
            number = pod.rank if pod.job.is_numbered else None
            lower = tuple(other.address for other in self._present() if _order(other) < _order(pod))
            return Peers(replace(me, rank=number), lower[0] if lower else None, await self.identity(), number, lower)
        return Peers(me, hub.address if pod.rank else None, await self.identity(), pod.rank)

    def members(self) -> list[Member]:
        job = self._pod.job
        pods = self._present() if self._settings.any_leads else job.pods
        return [Member(pod.name, pod.uid, pod.address, pod.address, pod.rank, job.shape.role(pod.rank)) for pod in pods]

    def _present(self) -> list[Pod]:
        """Return the pods that Kubernetes shows as running. It learns late that a node is off."""
        return [pod for pod in self._pod.job.pods if pod.lives or pod.machine.off]

    def describe_missing(self, joined: Collection[str]) -> str:
        absent = [pod.name for pod in self._pod.job.pods if not pod.lives]
        return f"not there: {', '.join(absent)}" if absent else "all pods are there"

    async def describe_peer(self, pod: str) -> str:
        self._pod.note("runs", f"ask Kubernetes about {pod}")
        await asyncio.sleep(0.1)
        known = [known for known in self._pod.job.scene.pods() if pod in (known.name, known.uid)]
        return next((one.became for one in known if one.became), "")


def _order(pod: Pod) -> tuple[int, int]:
    return (0, pod.rank) if pod.job.is_numbered else address_order(pod.address)


class FakeStaging:
    """Staging that copies nothing, but takes time."""

    def __init__(self, pod: Pod, copies: Sequence[Any], workdir: str, env: object) -> None:
        self._pod = pod
        self._what = ", ".join(copy.what for copy in copies) or "nothing"
        self._runs = False

    async def run(self) -> int:
        self._runs = True
        self._pod.note("runs", f"copy {self._what}")
        await asyncio.sleep(self._pod.stages)
        self._runs = False
        if self._pod.staging_fails:
            raise Failure(Exit.NO_INPUT, self._pod.staging_fails)
        self._pod.note("child", "all is copied", staged=True)
        return 0

    async def close(self) -> None:
        if self._runs:
            self._pod.note("runs", "stop copying")
