"""A gang of pods on a real cluster whose nodes are on this machine: an Indexed Job with an ext4 volume.

KUBECONFIG, E2E_IMAGE, E2E_DATA_IMAGE and CLUSTER must be set as for `make e2e`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from bench.cluster import demand
from chaos import pods_disk, pods_manifest
from chaos.arena import End, Frozen
from chaos.disk import Disk
from chaos.plan import Fault, Plan
from chaos.pod_faults import PodFaults
from chaos.pods_machines import Machines, not_ready
from chaos.pods_seen import Pod, Seen
from tests.e2e.cluster import Cluster, kubectl, until
from tests.e2e.manifests import apply, pod_security
from tests.support.jobs import JOB, make_volume

_STARTED_WITHIN = 60  # seconds, for all pods of the round
_GONE_WITHIN = 50


class PodArena:
    """See `chaos.arena.Arena`."""

    left_out: Mapping[str, str] = PodFaults.left_out

    def __init__(self, data: Path) -> None:
        """`data`: the folder in which the data sets of all rounds are kept, one for each size."""
        demand()
        if "CLUSTER" not in os.environ:
            raise SystemExit("chaos on pods needs CLUSTER: the command that powers nodes off and on again")
        self._data = data
        self._place = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._place.chmod(0o755)
        self._said = self._place / "said"
        self.stamps = self._said / pods_manifest.STAMPS
        self._machines = Machines()
        self.folder = self._place / "volume" / JOB
        self.job_id = ""
        self._cluster = Cluster(f"chaos-{uuid.uuid4().hex[:8]}", os.environ["E2E_IMAGE"])
        self._seen: Seen | None = None
        self._faults: PodFaults | None = None
        self._to_undo = ExitStack()  # called in reverse order; each call is made even if another call fails
        self._to_undo.callback(shutil.rmtree, self._place)
        self._to_undo.callback(self._wait_until_gone)

    def __enter__(self) -> PodArena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self, plan: Plan) -> None:
        """Start the Job, and wait until each pod runs its launcher."""
        until(lambda: not not_ready(), not_ready)
        disk = self._make_volume(plan)
        self._to_undo.callback(disk.close)
        self._to_undo.callback(pods_disk.unshare, self._machines)
        pods_disk.share(disk, self._machines)
        namespace = self._cluster.namespace
        kubectl("create", "namespace", namespace)
        self._to_undo.callback(self._end_pods)
        pod_security(self._cluster, "privileged")  # the launchers write their standard error to a folder of the host
        self._seen = seen = Seen(namespace)
        self._to_undo.callback(seen.close)
        self._faults = PodFaults(namespace, seen, disk, self._machines)
        self._to_undo.callback(self._faults.undo_all)
        apply(self._cluster, *pods_manifest.objects(self._cluster, plan, disk.volume, self._said))
        self.job_id = self._cluster.uid("job", pods_manifest.JOB_NAME)

        def all_run() -> bool:
            pods = [seen.of(rank) for rank in range(plan.members)]
            return bool(seen.conditions()) or all(pod and pod.runs for pod in pods)

        until(all_run, self.said, _STARTED_WITHIN)

    def do(self, fault: Fault) -> str:
        assert self._faults
        return self._faults.do(fault)

    def undo(self, fault: Fault) -> None:
        assert self._faults
        self._faults.undo(fault)

    def step(self) -> None:
        """Do nothing: Kubernetes replaces pods."""

    def ended(self) -> Sequence[End] | None:
        """Return the ends of all pods once the Job has a final condition: then no pod runs."""
        assert self._seen
        return self._seen.ends(self._said) if self._seen.conditions() & {"Complete", "Failed"} else None

    def complete(self) -> bool:
        return self._seen is not None and "Complete" in self._seen.conditions()

    def said(self) -> str:
        return "".join(f"---- {pod.name}\n{pod.said(self._said)}" for pod in self._all())

    def frozen(self) -> Sequence[Frozen]:
        return ()

    def left(self) -> list[str]:
        """Return the live processes and pods of the Job."""
        processes = [f"{pod.name}: {one.pid} {one.name()}" for pod in self._all() for one in pod.processes()]
        return [*processes, *(f"{pod.name} has not ended" for pod in self._all() if pod.is_live)]

    def close(self) -> None:
        self._to_undo.close()

    def _end_pods(self) -> None:
        """Kill all processes of the pods before the namespace is deleted: the deletion would wait for them."""
        for pod in self._all():
            for process in pod.processes():
                process.kill()
        kubectl("-n", self._cluster.namespace, "delete", "jobs,pods", "--all", "--force", "--grace-period=0")
        kubectl("delete", "namespace", self._cluster.namespace, f"--timeout={_GONE_WITHIN}s")

    def _wait_until_gone(self) -> None:
        until(
            lambda: not self._left_behind(), self._left_behind, _GONE_WITHIN
        )  # a container ends after its pod is gone

    def _left_behind(self) -> list[str]:
        return [*pods_disk.left(self._place / "disk"), *self._machines.left()]

    def _all(self) -> list[Pod]:
        return self._seen.all() if self._seen else []

    def _make_volume(self, plan: Plan) -> Disk:
        made = self._data / f"{plan.members}-{plan.lines}"
        if not made.exists():
            make_volume(made, plan.members, plan.lines)
        self._said.mkdir()
        self.stamps.touch()
        for folder in (self._said, made):
            subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
        return Disk(self._place, made / "volume")
