"""PaddleJobs on a cluster, for the comparison with paddle-operator in docs/figures.md: start, end, and objects.

    KUBECONFIG=... E2E_IMAGE=... PADDLE_2=... .venv/bin/python -m bench paddlejobs

The nodes must be on this machine. PADDLE_2 is a Python here with paddlepaddle 2.6.2: pods mount its packages.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.cluster import demand
from bench.jobs import until_quiet
from launcher.job import Failure, PaddleJob, Volume
from tests.e2e.cluster import Cluster, kubectl, namespace, until

RUNS = 3
PROGRAM = (Path(__file__).parent / "programs" / "job_member.py").read_text()
PS: dict[str, Any] = {"pservers": 2, "trainers": 2}
COLLECTIVE: dict[str, Any] = {"pservers": 0, "trainers": 2}
STARTS: dict[str, dict[str, Any]] = {
    "parameter servers, gloo 0": PS,
    "parameter servers, gloo 1": PS | {"env": {"PADDLE_WITH_GLOO": 1}},
    "collective": COLLECTIVE,
    "collective, paddle.distributed.launch": COLLECTIVE | {"below": True},
}


def main() -> None:
    demand()
    packages = _packages()
    with namespace() as cluster:
        for what, parameters in STARTS.items():
            _show(f"start: {what}", [_start(_job(cluster, packages, "steps", **parameters)) for _ in range(RUNS)])
        for what, parameters in (("parameter servers", PS), ("collective", COLLECTIVE)):
            for event, happens in ENDS.items():
                if parameters is COLLECTIVE and event in OF_SERVERS:
                    continue
                rows = [happens(cluster, packages, parameters) for _ in range(RUNS)]
                _show(f"{what}: {event}", rows)
        _cost(cluster, packages)


def _packages() -> Path:
    python = os.environ.get("PADDLE_2")
    if not python:
        raise SystemExit("PADDLE_2 must name a Python that has paddlepaddle 2.6.2")
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, check=True
    )
    return Path(found.stdout.decode().strip())


def _job(
    cluster: Cluster, packages: Path, how: str, *, below: bool = False, restarts: int = 0, **parameters: Any
) -> PaddleJob:
    words = ["-m", "paddle.distributed.launch"] if below else []
    write = f"cat > /tmp/member.py <<'END'\n{PROGRAM}\nEND\nexec python3 {' '.join(words)} /tmp/member.py '{how}'"
    env = {"PYTHONPATH": "/packages"} | parameters.pop("env", {})
    return PaddleJob(
        job_name="bench",
        entry_point=["sh", "-c", f"cd /tmp\n{write}"],
        runtime_image=cluster.image,
        namespace=cluster.namespace,
        cpu_nums=0.1,
        max_restarts=restarts,
        volumes=[Volume("/packages", {"hostPath": {"path": str(packages)}}, read_only=True)],
        env=env,
        **parameters,
    )


def _start(job: PaddleJob) -> dict[str, float]:
    """Run a job. Return the times until its first step, and from its end to the Complete condition."""
    until_quiet()
    created = time.time()
    job.submit()
    code = job.wait(timeout=120, quiet=True)
    assert code == 0, job.status()
    times = [_times(job, rank) for rank in range(job.trainers)]
    ended = _ended_after(job)
    job.delete()
    last = max(member["began"] for member in times)
    return {
        "create to the last worker's first line": last - created,
        "last pod's process to that line": last - max(member["launched"] for member in times),
        "import of paddle": max(member["imported"] - member["began"] for member in times),
        "create to the last worker's first step": max(member["stepped"] for member in times) - created,
        "last trainer's end to Complete": ended,
    }


def _times(job: PaddleJob, rank: int) -> dict[str, float]:
    found = re.findall(r"BENCH (\w+) ([0-9.]+)", "\n".join(job.logs(rank)))
    return {what: float(at) for what, at in reversed(found)}


def _ended_after(job: PaddleJob) -> float:
    """Return the time from the end of the last container to the last Complete condition, in whole seconds."""
    ends = [_seconds(member.since) for member in job.status().members if member.trains]
    at = "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Complete')].lastTransitionTime} {end}"
    return max(map(_seconds, _of(job, "jobs", at).split())) - max(ends)


def _seconds(stamp: str) -> float:
    return time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def _of(job: PaddleJob, kind: str, output: str) -> str:
    where = ["-n", str(job.namespace), "get", kind, "-l", f"paddle-launcher/job={job.job_name}"]
    return kubectl(*where, "-o", output)


def _killed(role: str) -> Callable[[Cluster, Path, dict[str, Any]], dict[str, float]]:
    """Return a case that kills the program in the pod with number 1 of this role."""

    def happens(cluster: Cluster, packages: Path, parameters: dict[str, Any]) -> dict[str, float]:
        job = _steps(cluster, packages, "endless", parameters)
        (pod,) = [each.pod for each in job.status().members if each.rank == 1 and each.trains is (role == "trainer")]
        # The program is a child of the launcher, which is process 1.
        kill = "for p in $(cat /proc/1/task/1/children); do kill -9 $p; done"
        began = time.time()
        kubectl("-n", cluster.namespace, "exec", pod, "-c", "paddle", "--", "sh", "-c", kill)
        return _ends(job, began)

    return happens


def _exits(cluster: Cluster, packages: Path, parameters: dict[str, Any]) -> dict[str, float]:
    job = _job(cluster, packages, "3", **parameters)
    job.submit()
    until(lambda: any(member.exit_code is not None for member in job.status().members))
    return _ends(job, time.time())


def _deleted(cluster: Cluster, packages: Path, parameters: dict[str, Any]) -> dict[str, float]:
    job = _steps(cluster, packages, "endless", parameters)
    began = time.time()
    job.delete()
    return {"deleted to all pods gone": time.time() - began}


def _deleted_while_waiting(cluster: Cluster, packages: Path, parameters: dict[str, Any]) -> dict[str, float]:
    """Delete a job whose servers wait for workers. The workers fit on no node, since no node has a GPU."""
    job = _job(cluster, packages, "endless", **parameters | {"gpu_nums": 1})
    job.submit()
    until(lambda: sum(member.phase == "running" for member in job.status().members) == job.pservers)
    began = time.time()
    job.delete()
    return {"deleted to all pods gone": time.time() - began}


def _steps(cluster: Cluster, packages: Path, how: str, parameters: dict[str, Any]) -> PaddleJob:
    job = _job(cluster, packages, how, **parameters)
    until_quiet()
    job.submit()
    ranks = range(job.trainers)
    until(lambda: all(any("BENCH stepped" in line for line in _lines(job, rank)) for rank in ranks), str)
    return job


def _lines(job: PaddleJob, rank: int) -> list[str]:
    try:
        return list(job.logs(rank))
    except Failure:
        return []  # the pod has not started yet


def _ends(job: PaddleJob, began: float) -> dict[str, float]:
    over: dict[str, float] = {}

    def all_over() -> bool:
        state = job.status()
        if state.phase == "failed":
            over.setdefault("to failed", time.time() - began)
        if not any(member.phase == "running" for member in state.members):
            over.setdefault("to no pod running", time.time() - began)
        return len(over) == 2 and state.ended

    until(all_over, lambda: str(job.status()))
    state = job.status()
    print(f"#   exit code {state.exit_code}: {state.cause}", flush=True)
    job.delete()
    return over


ENDS: dict[str, Callable[[Cluster, Path, dict[str, Any]], dict[str, float]]] = {
    "a worker is killed": _killed("trainer"),
    "a server is killed": _killed("pserver"),
    "a worker exits with 3": _exits,
    "deleted while training": _deleted,
    "deleted while servers wait for workers": _deleted_while_waiting,
}
OF_SERVERS = ("a server is killed", "deleted while servers wait for workers")


def _cost(cluster: Cluster, packages: Path) -> None:
    """Print how many objects and events a job of 2 servers and 2 workers leaves in its namespace."""
    events = ["-n", cluster.namespace, "get", "events", "-o", "name"]
    before = len(kubectl(*events).split())
    job = _job(cluster, packages, "steps", **PS)
    job.submit()
    assert job.wait(timeout=120, quiet=True) == 0
    kinds = ["jobs", "pods", "services", "secrets", "configmaps", "endpoints", "endpointslices"]
    found = {kind: len(_of(job, kind, "name").split()) for kind in kinds}
    print(f"objects: {sum(found.values())}: {found}; events: {len(kubectl(*events).split()) - before}", flush=True)
    job.delete()


def _show(title: str, rows: list[dict[str, float]]) -> None:
    print(f"{title}: {len(rows)} runs", flush=True)
    for what in rows[0]:
        values = [row[what] for row in rows]
        print(f"    {what:<44}{median(values):>7.2f} s, worst {max(values):.2f} s", flush=True)


if __name__ == "__main__":
    main()
