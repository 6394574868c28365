"""The faults for the pods of a round. No function here waits for a node or for the volume."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import psutil

from chaos import kinds
from chaos.disk import Disk
from chaos.limits import FREEZES, ON_NFS
from chaos.plan import CLOCK, SIZES, Fault
from chaos.pods_machines import Machines
from chaos.pods_seen import LAUNCHER, Pod, Seen
from tests.e2e.cluster import kubectl

PODS = "10.244.0.0/16"  # all pods of the cluster
VOLUME = "/home/jobpath"  # in the pods of all our manifests
_WAYS = {"incoming": ("INPUT", "-i", "-s"), "outgoing": ("OUTPUT", "-o", "-d")}
_CUTS = ("cut", "cut incoming", "cut outgoing")
_MOUNTS = ("--mount", "--pid")  # umount reads /proc, which shows only the pod's own processes
_NETWORK = ("--net",)
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP}


class PodFaults:
    """The faults of one round: all kinds except `left_out`."""

    left_out: Mapping[str, str] = kinds.left_out(
        {
            CLOCK: "pods use the clock of their node",
            **dict.fromkeys(FREEZES | ON_NFS | SIZES, "for gangs on this machine (no ON)"),
        },
        dict.fromkeys(_CUTS, "iptables"),
    )

    def __init__(self, namespace: str, seen: Seen, disk: Disk, machines: Machines) -> None:
        self._namespace = namespace
        self._seen = seen
        self._disk = disk
        self._machines = machines
        self._undo: dict[int, Callable[[], None]] = {}  # how to undo the faults that last, by number
        self._spoilt: Counter[str] = Counter()  # how many faults of the volume last, by kind
        self._filling, self._powering = ThreadPoolExecutor(1), ThreadPoolExecutor(1)  # one worker: in order
        self._under_way: list[Future[None]] = []

    def do(self, fault: Fault) -> str:
        """See `Arena.do`."""
        match fault.kind:
            case "volume full" | "volume read-only" | "volume stalled":
                return self._spoil_volume(fault)
            case "api down":
                self._machines.api_down()
                self._undo[fault.number] = self._machines.api_up
                return fault.kind
        pods = [pod for rank in fault.ranks if (pod := self._seen.of(rank))]
        done = [victim for pod in pods if (victim := self._strike(fault, pod, pods))]
        return f"{fault.kind} of {', '.join(done)}" if done else ""

    def undo(self, fault: Fault) -> None:
        if what := self._undo.pop(fault.number, None):
            what()

    def undo_all(self) -> None:
        """Undo all faults, and wait for all work in the background."""
        self._disk.thaw()  # a stalled volume would block writers forever
        with ExitStack() as stack:
            for what in self._undo.values():
                stack.callback(what)
            self._undo.clear()
        self._filling.shutdown()
        self._powering.shutdown()
        for work in self._under_way:
            work.result()

    # ---- pods ----------------------------------------------------------------------------------------------------

    def _strike(self, fault: Fault, pod: Pod, pods: list[Pod]) -> str:
        match fault.kind.split():
            case ["delete", "pod"]:
                return self._delete(pod)
            case ["force", "delete", "pod"]:
                return self._delete(pod, "--force", "--grace-period=0")
            case ["node", "off"]:
                return self._power_off(fault, pod)
            case ["cut", *way]:
                return self._cut(fault, pod, pods, way or ["incoming", "outgoing"])
            case [verb, role]:
                return self._signal(fault, pod, role, _SIGNALS[verb])
        raise ValueError(fault.kind)

    def _delete(self, pod: Pod, *how: str) -> str:
        if not self._machines.answers:
            return ""
        pod.struck |= bool(how)
        kubectl("-n", self._namespace, "delete", "pod", pod.name, "--wait=false", "--ignore-not-found", *how)
        return pod.name

    def _signal(self, fault: Fault, pod: Pod, role: str, number: signal.Signals) -> str:
        process = pod.find(role)
        if process is None:
            return ""
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            return ""
        pod.struck |= role == LAUNCHER and number == signal.SIGKILL
        if number == signal.SIGSTOP:
            self._lasting(fault, lambda: _wake(process))
        return f"{pod.name} ({process.pid})"

    def _cut(self, fault: Fault, pod: Pod, pods: list[Pod], ways: list[str]) -> str:
        """Cut a pod from all pods except the other victims. The API server and DNS stay reachable."""
        launcher = pod.find(LAUNCHER)
        if launcher is None:
            return ""
        victims = [address for other in pods if (address := other.latest["status"].get("podIP"))]
        for way in ways:
            hook, device, end = _WAYS[way]
            chain = f"chaos-{fault.number}-{way}"
            let_pass = [[device, "lo"], *([end, victim] for victim in victims)]
            _filter(launcher, "-N", chain)
            for which in let_pass:
                _filter(launcher, "-A", chain, *which, "-j", "RETURN")
            _filter(launcher, "-A", chain, end, PODS, "-j", "DROP")
            _filter(launcher, "-I", hook, "-j", chain)
            self._lasting(fault, partial(_filter, launcher, "-D", hook, "-j", chain))
        return pod.name

    def _power_off(self, fault: Fault, pod: Pod) -> str:
        node = pod.node
        for other in self._seen.all():
            other.struck |= other.is_live and other.node == node
        self._go(self._powering, self._machines.power_off, node)
        self._lasting(fault, partial(self._go, self._powering, self._machines.power_on, node))
        return f"{pod.name} (node{node})"

    # ---- the volume ----------------------------------------------------------------------------------------------

    def _spoil_volume(self, fault: Fault) -> str:
        self._spoilt[fault.kind] += 1
        match fault.kind:
            case "volume full":
                self._go(self._filling, self._disk.fill)  # in a thread: if the volume is stalled, the writer is blocked
                self._lasting(fault, partial(self._mend, fault, partial(self._go, self._filling, self._disk.clear)))
            case "volume stalled":
                self._disk.freeze()
                self._lasting(fault, partial(self._mend, fault, self._disk.thaw))
            case "volume read-only":
                for pod in self._seen.all():
                    if pod.is_live and (launcher := pod.find(LAUNCHER)):
                        self._forbid(fault, launcher)
        return fault.kind

    def _mend(self, fault: Fault, how: Callable[[], None]) -> None:
        """Repair the volume, unless another fault of this kind still lasts."""
        self._spoilt[fault.kind] -= 1
        if not self._spoilt[fault.kind]:
            how()

    def _forbid(self, fault: Fault, launcher: psutil.Process) -> None:
        """Make the volume read-only for files that this pod opens from now on. Open files stay writable."""
        if _inside(launcher, _MOUNTS, "mount", "--bind", VOLUME, VOLUME):
            self._lasting(fault, lambda: _allow(launcher))
            _inside(launcher, _MOUNTS, "mount", "-o", "remount,bind,ro", VOLUME)

    # ---- what lasts ----------------------------------------------------------------------------------------------

    def _lasting(self, fault: Fault, undo: Callable[[], None]) -> None:
        before = self._undo.get(fault.number)

        def both() -> None:
            undo()
            if before:
                before()

        self._undo[fault.number] = both

    def _go(self, lane: ThreadPoolExecutor, work: Callable[..., None], *arguments: str) -> None:
        self._under_way.append(lane.submit(work, *arguments))


def _wake(process: psutil.Process) -> None:
    try:
        process.resume()
    except psutil.NoSuchProcess:
        pass


def _filter(launcher: psutil.Process, *rule: str) -> None:
    """Run iptables in the network namespace of the pod. The rules are deleted together with the pod."""
    _inside(launcher, _NETWORK, "iptables", "-w", *rule)


def _allow(launcher: psutil.Process) -> None:
    _inside(launcher, _MOUNTS, "umount", "-l", VOLUME)


def _inside(launcher: psutil.Process, what: Sequence[str], *command: str) -> bool:
    """Run a command in the pod's network or mount namespace. Return False if it failed or the pod is gone."""
    enter = ["nsenter", f"--target={launcher.pid}", *what, *command]
    return launcher.is_running() and subprocess.run(enter, capture_output=True, check=False).returncode == 0
