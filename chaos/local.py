"""A gang on this machine: one network namespace per member, a separate volume, and a simulated Job."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from chaos import nfs
from chaos.arena import End, Frozen
from chaos.disk import Disk
from chaos.indexed import IndexedJob
from chaos.limits import FREEZES, ON_NFS
from chaos.local_faults import LEFT_OUT, LocalFaults
from chaos.nfs import Mounts
from chaos.plan import SIZES, Fault, Plan
from tests.support.jobs import JOB, Job, LauncherProcess, make_volume
from tests.support.switches import TwoSwitches

_PROGRAMS = {"trainer": "paddle_trainer", "pserver": "paddle_pserver_main"}


class Pod:
    """One launcher, in the role of a pod."""

    def __init__(self, rank: int, name: str, launcher: LauncherProcess, termination: Path, said: Path) -> None:
        self.rank = rank
        self.name = name
        self.launcher = launcher
        self.termination = termination
        self.said = said
        self.killed = self.got_sigterm = False


class LocalArena:
    """See `chaos.arena.Arena`."""

    left_out: Mapping[str, str] = LEFT_OUT
    job_id = "chaos"

    def __init__(self, data: Path) -> None:
        """`data`: the folder in which the data sets of all rounds are kept, one for each size."""
        self._data = data
        self._home = Path(tempfile.mkdtemp(prefix="chaos-"))
        self.stamps = self._home / "stamps"
        self.stamps.touch()
        self._pods: dict[int, Pod] = {}  # the live pods by rank
        self._deleted: list[Pod] = []  # pods that still run, but no longer belong to the Job
        self._to_replace: list[tuple[float, Pod, Frozen]] = []  # frozen pods, and when to replace them
        self._frozen: list[tuple[Fault, Frozen]] = []
        self._ends: list[End] = []
        self._disk: Disk | None = None
        self._mounts: Mounts | None = None
        self._network: TwoSwitches | None = None
        self._numbers = itertools.count()

    def __enter__(self) -> LocalArena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the gang ------------------------------------------------------------------------------------------------

    def start(self, plan: Plan) -> None:
        self._plan = plan
        self._disk = Disk(self._home, self._volume_of(plan))
        self.folder = self._disk.volume / JOB
        if any(fault.kind in ON_NFS for fault in plan.faults):
            self._mounts = Mounts(nfs.build(self._data), self._disk.volume, self._home, plan.members)
        self._network = TwoSwitches(plan.members).__enter__()
        self._gang = Job(self._network, self._disk.volume, self._home, plan.members, **plan.variables)
        self._gang.environment |= {"LAUNCHER_JOB_ID": self.job_id, "STANDIN_STAMPS": str(self.stamps)}
        self._faults = LocalFaults(plan, self._network, self._disk, self._mounts, self._process)
        self._job = IndexedJob(plan.begins or plan.members, plan.backoff_limit)
        for rank in range(self._job.members):
            self._start(rank)

    def _volume_of(self, plan: Plan) -> Path:
        place = self._data / f"{plan.members}-{plan.lines}"
        if not place.exists():
            place.mkdir(parents=True)
            make_volume(place, plan.members, plan.lines)
        return place / "volume"

    def _start(self, rank: int) -> None:
        name = f"pod-{rank}-{next(self._numbers)}"
        place = self._home / name
        place.mkdir()
        termination = place / "termination"
        termination.touch()
        variables = {
            "POD_NAME": name,
            "POD_UID": str(uuid.uuid4()),
            "LAUNCHER_RANK": str(rank),
            "LAUNCHER_WORKDIR": str(place),
            "LAUNCHER_TERMINATION_LOG": str(termination),
            **({"JOB_PATH": str(self._mounts.point(rank))} if self._mounts else {}),
        }
        self._gang.start(rank, flags=self._plan.flags, **variables, **self._clock(rank))
        self._pods[rank] = Pod(rank, name, self._gang.launchers[rank], termination, self._home / f"stderr-{rank}")

    def _clock(self, rank: int) -> dict[str, str]:
        if rank not in self._plan.ahead:
            return {}
        library = self._data / "ahead.so"
        if not library.exists():
            code = Path(__file__).with_name("ahead.c")
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", code, "-o", library, "-ldl"], check=True)
        return {"LD_PRELOAD": str(library), "AHEAD_SECONDS": str(self._plan.ahead[rank])}

    def step(self) -> None:
        for pod in [pod for pod in self._pods.values() if pod.launcher.poll() is not None]:
            del self._pods[pod.rank]
            self._ends.append(self._end(pod))
            self._job.ended(pod.rank, self._ends[-1].code)
        for pod in [pod for pod in self._deleted if pod.launcher.poll() is not None]:
            self._deleted.remove(pod)
            self._ends.append(self._end(pod))
        if self._job.failed:
            self._send_sigterm(*self._pods.values())
        if self._job.failed or self._job.complete:
            self._send_sigterm(*self._deleted)
        self._replace_frozen()
        for rank in self._job.due():
            if not self._inside(rank):  # wait until all processes of the old pod have ended, as in Kubernetes
                self._start(rank)
                self._job.made(rank)

    def _end(self, pod: Pod) -> End:
        status = pod.launcher.returncode
        code = status if status >= 0 else 128 - status
        last = (pod.said.read_text().splitlines() or [""])[-1]
        # SIGTERM kills a launcher that does not handle signals yet. Process 1 of a real pod would ignore it.
        struck = status == -signal.SIGTERM or (pod.killed and status == -signal.SIGKILL)
        return End(pod.rank, pod.name, code, pod.termination.read_text(), last, struck)

    def _replace_frozen(self) -> None:
        """Replace frozen pods, as if their machine was removed: delete the pod and start another one elsewhere."""
        now = time.monotonic()
        for due in [due for due in self._to_replace if due[0] <= now]:
            self._to_replace.remove(due)
            _, pod, frozen = due
            if self._pods.get(pod.rank) is not pod or self._job.failed or self._job.complete:
                continue
            frozen.replaced = True
            self._deleted.append(pod)
            pod.said = pod.said.rename(
                self._home / f"stderr-{pod.name}"
            )  # the next pod of this rank writes to another file
            assert self._network
            self._network.replace(pod.rank)
            self._start(pod.rank)

    def _send_sigterm(self, *pods: Pod) -> None:
        """Send SIGTERM, as Kubernetes does to the remaining pods of a Job that is over."""
        for pod in pods:
            if not pod.got_sigterm:
                pod.launcher.terminate()
                pod.got_sigterm = True

    def ended(self) -> Sequence[End] | None:
        over = not self._pods and not self._deleted and (self._job.failed or self._job.complete)
        return self._ends if over else None

    def complete(self) -> bool:
        return self._job.complete and not self._job.failed

    def said(self) -> str:
        files = sorted(self._home.glob("stderr-*"))
        return "".join(f"---- {file.name.removeprefix('stderr-')}\n{file.read_text()}" for file in files)

    # ---- faults --------------------------------------------------------------------------------------------------

    def do(self, fault: Fault) -> str:
        if fault.kind in SIZES:
            return self._scale(fault.kind)
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        what = self._faults.do(fault)
        if fault.kind in FREEZES:
            for pod in [self._pods[rank] for rank in fault.ranks if rank in self._pods]:
                frozen = Frozen(pod.name, now, now)
                self._frozen.append((fault, frozen))
                if fault.replaced is not None:
                    self._to_replace.append((time.monotonic() + fault.replaced, pod, frozen))
        if fault.kind == "kill launcher":
            for pod in [self._pods[rank] for rank in fault.ranks if rank in self._pods]:
                pod.killed = True
        return what

    def _scale(self, kind: str) -> str:
        """Change the number of pods of an elastic job, as `kubectl patch job` does. Return the new number."""
        job = self._job
        if job.failed or job.complete or job.members == (self._plan.members if kind == "grow" else 1):
            return ""
        if kind == "grow":
            job.grow()
        elif pod := self._pods.pop(job.shrink(), None):
            self._deleted.append(pod)
            self._send_sigterm(pod)
        return f"{job.members} pods"

    def undo(self, fault: Fault) -> None:
        self._faults.undo(fault)
        for frozen in [frozen for one, frozen in self._frozen if one is fault]:
            frozen.until = time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def _process(self, rank: int, target: str) -> psutil.Process | None:
        pod = self._pods.get(rank)
        if pod is None or pod.launcher.poll() is not None:
            return None
        if target != "launcher":
            return self._gang.find(rank, _PROGRAMS[target])
        return psutil.Process(pod.launcher.pid)

    def frozen(self) -> Sequence[Frozen]:
        return [frozen for _, frozen in self._frozen]

    # ---- the end -------------------------------------------------------------------------------------------------

    def _inside(self, *ranks: int) -> list[int]:
        return self._network.inside(*ranks) if self._network else []

    def left(self) -> list[str]:
        return [f"process {pid}: {_command(pid)}" for pid in self._inside()]

    def close(self) -> None:
        try:
            if self._disk:
                self._disk.thaw()
            if self._network:
                self._network.__exit__()
                self._network = None
        finally:
            if self._mounts:
                self._mounts.close()
            if self._disk:
                self._disk.close()
            shutil.rmtree(self._home, ignore_errors=True)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "?"
