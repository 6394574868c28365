"""Ask the launcher of rank 0, in its pod, what the job does. `kubectl exec` carries question and answer."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass

from launcher.base import kube_pods
from launcher.base.file_errors import printable
from launcher.base.host import address_order
from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.lookup import read_state
from launcher.job.spec import JOB_LABEL, Json
from launcher.job.state import RUNNING

_PROGRAM = "paddle-launcher"
_WITHIN = 90.0  # seconds


@dataclass(frozen=True)
class Place:
    """The main container of a pod."""

    pod: str
    container: str
    program: str  # of the launcher in this container


def explain(client: KubeClient, job: str) -> str:
    """Return what the launcher of rank 0 says. Raises Failure if it cannot be asked."""
    place = _first_member(client, job)
    command = ["kubectl", "exec", f"--namespace={client.namespace}", place.pod, f"--container={place.container}", "--"]
    command += [place.program, "why"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_WITHIN, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise Failure(Exit.CONFIG, f"kubectl is not installed here: where it is, run {shlex.join(command)}") from None
    except subprocess.TimeoutExpired:
        raise Failure(Exit.TIMED_OUT, f"no answer within {_WITHIN:g} s: {shlex.join(command)}") from None
    if done.returncode:
        why = " ".join(done.stderr.decode(errors="replace").split())[-500:]
        raise Failure(_code(done.returncode, why), f"pod {place.pod} cannot be asked: {why}")
    return "\n".join(map(printable, done.stdout.decode(errors="replace").splitlines()))


def _code(code: int, why: str) -> Exit:
    if "orbidden" in why:
        return Exit.DENIED
    return Exit(code) if code in set(Exit) else Exit.TIMED_OUT


def _first_member(client: KubeClient, job: str) -> Place:
    """Return the place of rank 0. Raises Failure if there is no such job, or if rank 0 does not run."""
    if client.list("Job", f"{JOB_LABEL}={job}"):
        return _first_running(client, job)
    ours = client.list("Pod", f"job-name={job}")
    if ours:
        return _place(_rank_0(job, ours))
    for name in (f"{job}-0", job):  # the first pod of a StatefulSet, or a single pod
        if pod := client.get("Pod", name):
            return _place(pod)
    return _first_running(client, job)


def _first_running(client: KubeClient, job: str) -> Place:
    first = read_state(client, job).members[0]
    pod = client.get("Pod", first.pod) if first.phase == RUNNING else None
    if pod is None:
        raise Failure(Exit.NO_INPUT, f"{job}: {first.name} does not run: it is {first.phase} {first.what}".rstrip())
    return _place(pod)


def _rank_0(job: str, pods: list[Json]) -> Json:
    """Return the pod with index 0. Without indices: the pod with the lowest address."""
    running = [pod for pod in pods if "running" in (kube_pods.main_container_status(pod).get("state") or {})]
    numbered = [pod for pod in running if kube_pods.pod_number(pod) is not None]
    if not running or (numbered and all(kube_pods.pod_number(pod) != 0 for pod in numbered)):
        raise Failure(Exit.NO_INPUT, f"{job}: its first pod does not run")
    if numbered:
        return next(pod for pod in numbered if kube_pods.pod_number(pod) == 0)
    return min(running, key=lambda pod: address_order((pod.get("status") or {})["podIP"]))


def _place(pod: Json) -> Place:
    container = kube_pods.main_container(pod)
    first = next(iter(container.get("command") or []), "")
    program = first if os.path.basename(first) == _PROGRAM else _PROGRAM
    return Place(pod["metadata"]["name"], container["name"], program)
