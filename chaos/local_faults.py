"""The faults for a gang on this machine: signals, links that lose packets, and a volume with errors."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

import psutil

from chaos import kinds, nfs
from chaos.disk import Disk
from chaos.limits import FREEZES, HANGS, ON_NFS, ON_VOLUME
from chaos.nfs import Mounts
from chaos.plan import CLOCK, KINDS, SIZES, Fault, Plan
from tests.support.switches import TwoSwitches

_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM} | dict.fromkeys(("stop", "freeze", "hang"), signal.SIGSTOP)
_ON_PROCESSES = frozenset(
    f"{word} {target}" for word in ("kill", "term", "stop") for target in ("trainer", "pserver", "launcher")
)
_CUTS = frozenset({"cut", "cut outgoing", "cut incoming"})

_KINDS = _ON_PROCESSES | FREEZES | HANGS | ON_VOLUME | ON_NFS | _CUTS | SIZES | {CLOCK}
_NO_NFS = nfs.why_not()
_NEEDS = {**dict.fromkeys(_CUTS, "iptables-restore"), CLOCK: "gcc"}
_ELSEWHERE = {
    **dict.fromkeys(set(KINDS) - _KINDS, "for pods (ON=pods)"),
    **(dict.fromkeys(ON_NFS, _NO_NFS) if _NO_NFS else {}),
}
LEFT_OUT: Mapping[str, str] = kinds.left_out(_ELSEWHERE, _NEEDS)


class LocalFaults:
    """The faults of one round.

    mounts: the mounts of all nodes, if there are faults of NFS
    find: returns the current trainer, pserver or launcher process of a rank
    """

    def __init__(
        self,
        plan: Plan,
        network: TwoSwitches,
        disk: Disk,
        mounts: Mounts | None,
        find: Callable[[int, str], psutil.Process | None],
    ) -> None:
        self._plan = plan
        self._network = network
        self._disk = disk
        self._mounts = mounts
        self._find = find
        self._lasting: dict[int, str] = {}  # the kinds of the faults that last, by number
        self._stopped: dict[int, list[psutil.Process]] = {}
        self._lost: dict[int, list[tuple[int, int]]] = {}

    def do(self, fault: Fault) -> str:
        """See `Arena.do`."""
        self._lasting[fault.number] = fault.kind
        if fault.kind == CLOCK:
            return f"clocks are ahead by {dict(self._plan.ahead)} s"
        if fault.kind in ON_NFS:
            assert self._mounts
            self._mounts.begin(fault.number, fault.kind, fault.ranks)
            return fault.kind
        if fault.kind in ON_VOLUME:
            do = {"volume full": self._disk.fill, "volume read-only": self._disk.forbid}
            do.get(fault.kind, self._disk.freeze)()
            return fault.kind
        if fault.kind == "freeze machine":
            return self._freeze_machines(fault)
        return self._cut(fault) if fault.kind in _CUTS else self._signal(fault)

    def undo(self, fault: Fault) -> None:
        """See `Arena.undo`. A volume or process recovers only if no other fault of this kind lasts."""
        if self._lasting.pop(fault.number, None) is None:
            return
        for process in self._stopped.pop(fault.number, []):
            if process.is_running() and not any(process in others for others in self._stopped.values()):
                process.resume()
        if fault.kind == "freeze machine":
            self._network.heal(*fault.ranks)
        if ways := self._lost.pop(fault.number, []):
            self._network.deliver(*ways)
        if fault.kind in ON_NFS:
            assert self._mounts
            self._mounts.end(fault.number)
        elif fault.kind in ON_VOLUME and fault.kind not in self._lasting.values():
            undo = {"volume full": self._disk.clear, "volume read-only": self._disk.allow}
            undo.get(fault.kind, self._disk.thaw)()

    def _cut(self, fault: Fault) -> str:
        near, far = set(range(self._plan.members)) - set(fault.ranks), fault.ranks
        outgoing = [(sender, to) for sender in far for to in near] if fault.kind != "cut incoming" else []
        incoming = [(sender, to) for sender in near for to in far] if fault.kind != "cut outgoing" else []
        self._lost[fault.number] = outgoing + incoming
        self._network.lose(*outgoing, *incoming)
        return f"{far} from {near}"

    def _freeze_machines(self, fault: Fault) -> str:
        """Stop all processes of these members, and cut their network."""
        there = [rank for rank in fault.ranks if self._network.inside(rank)]
        self._network.cut(*there)
        stopped = self._stopped[fault.number] = list[psutil.Process]()
        for rank in there:
            while new := set(self._network.inside(rank)) - {process.pid for process in stopped}:
                for pid in new:
                    try:
                        stopped.append(psutil.Process(pid))
                        stopped[-1].suspend()
                    except psutil.NoSuchProcess:
                        continue
        return ", ".join(f"process {process.pid}" for process in stopped)

    def _signal(self, fault: Fault) -> str:
        word, target = fault.kind.split()
        struck = []
        for process in [process for rank in fault.ranks if (process := self._find(rank, target))]:
            try:
                process.send_signal(_SIGNALS[word])
            except psutil.NoSuchProcess:
                continue
            struck.append(process)
        if word in ("stop", "freeze", "hang"):
            self._stopped[fault.number] = struck
        return ", ".join(f"process {process.pid}" for process in struck)
