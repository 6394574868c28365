"""The pods of a round, as the API server and this machine show them: rank, processes, exit code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.cluster import Events, batch, core
from chaos.arena import End
from chaos.pods_manifest import TERMINATION
from tests.e2e.cluster import Json
from tests.e2e.pods import end_of, is_leaving

_INDEX = "batch.kubernetes.io/job-completion-index"
LAUNCHER = "launcher"
_PROGRAMS = {"trainer": "paddle_trainer.py", "pserver": "paddle_pserver_main.py"}


@dataclass
class Pod:
    """One pod, during its life and after it. `struck`: a fault has killed its launcher, which wrote no message."""

    rank: int
    name: str
    uid: str
    latest: Json
    gone: bool = False  # the pod was deleted from the API server
    struck: bool = False

    @property
    def node(self) -> str:
        return str(self.latest["spec"].get("nodeName", "")).removeprefix("node")

    @property
    def runs(self) -> bool:
        """Whether the launcher was started."""
        return bool(self.latest["status"]["phase"] == "Running")

    @property
    def is_live(self) -> bool:
        return not (self.gone or is_leaving(self.latest) or end_of(self.latest))

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the pod. They are visible here, since the nodes are on this machine."""
        mark = f"POD_UID={self.uid}".encode()
        return [process for process in psutil.process_iter() if mark in _environment(process)]

    def said(self, folder: Path) -> str:
        """Return the standard error of the launcher."""
        return _text(folder / self.name)

    def find(self, role: str) -> psutil.Process | None:
        """Return the launcher, the trainer or the pserver of the pod, or None."""
        return next((one for one in self.processes() if _is(one, role)), None)


class Seen:
    """Watch the pods and the Job of one namespace, even if the API server is down for a while."""

    def __init__(self, namespace: str) -> None:
        self._pods: dict[str, Pod] = {}  # by uid
        self.job: Json = {}
        self._follows = [
            Events(self._see_pod, core().list_namespaced_pod, namespace),
            Events(self._see_job, batch().list_namespaced_job, namespace),
        ]

    def close(self) -> None:
        for events in self._follows:
            events.close()

    def all(self) -> list[Pod]:
        """Return all pods in the order in which they were created."""
        return list(self._pods.values())  # a copy, since the watch adds pods at any time

    def of(self, rank: int) -> Pod | None:
        """Return the newest live pod of this rank, or None."""
        return next((pod for pod in reversed(self.all()) if pod.rank == rank and pod.is_live), None)

    def conditions(self) -> set[str]:
        """Return the conditions of the Job that are true."""
        found = self.job.get("status", {}).get("conditions") or []
        return {one["type"] for one in found if one["status"] == "True"}

    def ends(self, said: Path) -> list[End]:
        """Return the ends of all pods, in the order in which the pods were created."""
        return [_end(pod, said) for pod in self.all()]

    def _see_pod(self, _at: float, kind: str, found: Json) -> None:
        about = found["metadata"]
        index = about.get("labels", {}).get(_INDEX)
        if index is None:
            return
        pod = self._pods.setdefault(about["uid"], Pod(int(index), about["name"], about["uid"], found))
        pod.latest = found
        pod.gone = kind == "DELETED"

    def _see_job(self, _at: float, _kind: str, found: Json) -> None:
        self.job = found


def _end(pod: Pod, said: Path) -> End:
    lines = pod.said(said).splitlines()
    last = lines[-1] if lines else ""
    return End(pod.rank, pod.name, _code(pod, last), _text(said / f"{pod.name}{TERMINATION}"), last, pod.struck)


def _code(pod: Pod, last: str) -> int:
    """Return the exit code of a pod from Kubernetes, or if the pod was deleted, from the launcher's last line."""
    if end := end_of(pod.latest):
        return int(end["exitCode"])
    _, found, after = last.partition("exit code ")
    digits = after.partition(":")[0]
    return int(digits) if found and digits.isdigit() else 137


def _is(process: psutil.Process, role: str) -> bool:
    try:
        words = process.cmdline()[:3]
        if role == LAUNCHER:
            return _number_inside(process.pid) == 1
    except (psutil.Error, OSError):
        return False
    return any(word.endswith((_PROGRAMS[role], _PROGRAMS[role].removesuffix(".py"))) for word in words)


def _number_inside(pid: int) -> int:
    """Return the process's pid in its innermost pid namespace."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])


def _environment(process: psutil.Process) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []  # the process has ended


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
