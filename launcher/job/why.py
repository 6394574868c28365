"""Ask the hub, in its pod, what the job does. `kubectl exec` carries question and answer."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass

from launcher.base import kube_pods, referral
from launcher.base.file_errors import printable
from launcher.base.host import address_order
from launcher.base.kube import KubeClient
from launcher.errors import Exit, Failure
from launcher.job.lookup import read_state
from launcher.job.spec import JOB_LABEL, Json
from launcher.job.state import RUNNING

_PROGRAM = "paddle-launcher"
_WITHIN, _WITHIN_LATER = 90.0, 20.0  # seconds for the first pod, and for each other pod
_MOST_ASKED = 4  # pods; the hub is usually the first one


@dataclass(frozen=True)
class Place:
    """The main container of a pod."""

    container: str
    program: str  # of the launcher in this container


def explain(client: KubeClient, job: str) -> str:
    """Return what the hub says, or another pod if the hub cannot be asked. Raises Failure if no pod can be asked."""
    pods, problem = _pods(client, job)
    of_job = set(pods)
    asked: set[str] = set()
    last = ""
    while pods and len(asked) < _MOST_ASKED:
        pod = pods.pop(0)
        if pod in asked:
            continue
        asked.add(pod)
        try:
            answer = _ask(client, pod, _WITHIN_LATER if len(asked) > 1 else _WITHIN)
        except _Silent as failure:
            problem = problem or failure
            continue
        if not referral.is_referral(answer):
            return answer if problem is None else f"{problem.message}; pod {pod} says:\n{answer}"
        last = answer
        hub = referral.hub_in(answer)
        if hub and (hub in of_job or client.get("Pod", hub) is None):  # a pod may name one of another job
            pods.insert(0, hub)
    if last and problem is None:
        return last
    if problem and last and not referral.hub_in(last):
        return f"{problem.message}; {last}"
    raise problem or Failure(Exit.NO_INPUT, f"{job}: none of its pods runs")


class _Silent(Failure):
    """A pod cannot be asked. Another pod perhaps can."""


def _ask(client: KubeClient, pod: str, within: float) -> str:
    """Return what the launcher in this pod says. Raises _Silent, or Failure if no other pod could be asked either."""
    place = _place(client, pod)
    command = ["kubectl", "exec", f"--namespace={client.namespace}", pod, f"--container={place.container}", "--"]
    command += [place.program, "why"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=within, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError:
        raise Failure(Exit.CONFIG, f"kubectl is not installed here: where it is, run {shlex.join(command)}") from None
    except subprocess.TimeoutExpired:
        raise _Silent(Exit.TIMED_OUT, f"no answer within {within:g} s: {shlex.join(command)}") from None
    if done.returncode:
        why = " ".join(done.stderr.decode(errors="replace").split())[-500:]
        failed = Failure if "orbidden" in why else _Silent
        raise failed(_code(done.returncode, why), f"pod {pod} cannot be asked: {why}")
    return "\n".join(map(printable, done.stdout.decode(errors="replace").splitlines()))


def _code(code: int, why: str) -> Exit:
    if "orbidden" in why:
        return Exit.DENIED
    return Exit(code) if code in set(Exit) else Exit.TIMED_OUT


def _pods(client: KubeClient, job: str) -> tuple[list[str], Failure | None]:
    """Return the running pods that may lead, the most probable first, and why the first pod is not among them.

    Raises Failure if there is no such job, or if none of its pods runs.
    """
    if not client.list("Job", f"{JOB_LABEL}={job}"):
        if pods := client.list("Pod", f"job-name={job}") or _of_stateful_set(client, job):
            return _in_order(job, pods)
        if client.get("Pod", job):
            return [job], None
    members = [member for member in read_state(client, job).members if member.trains]
    running = [member.pod for member in members if member.phase == RUNNING]
    if not members:
        raise Failure(Exit.NO_INPUT, f"{job}: it has no pod that trains")
    first = members[0]
    if first.phase == RUNNING:
        return running, None
    why = f"{first.name} does not run: it is {first.phase} {first.what}".rstrip()
    return running, Failure(Exit.NO_INPUT, f"{job}: {why}")


def _of_stateful_set(client: KubeClient, name: str) -> list[Json]:
    """Return its pods. This needs no right to read StatefulSets."""
    wanted = {"kind": "StatefulSet", "name": name}
    return [pod for pod in client.list_all("Pod") if wanted.items() <= kube_pods.controller_reference(pod).items()]


def _in_order(job: str, pods: list[Json]) -> tuple[list[str], Failure | None]:
    running = [pod for pod in pods if "running" in (kube_pods.main_container_status(pod).get("state") or {})]
    running.sort(key=_order)
    names = [pod["metadata"]["name"] for pod in running]
    if names and kube_pods.pod_number(running[0]) in (0, None):
        return names, None
    return names, Failure(Exit.NO_INPUT, f"{job}: pod 0 does not run")


def _order(pod: Json) -> tuple[int, ...]:
    """Return a key for the order of numbers, or of addresses where pods have no numbers."""
    number, address = kube_pods.pod_number(pod), (pod.get("status") or {}).get("podIP")
    if number is not None:
        return (0, number)
    return (1, *address_order(address)) if address else (2,)


def _place(client: KubeClient, name: str) -> Place:
    pod = client.get("Pod", name)
    if pod is None:
        raise _Silent(Exit.NO_INPUT, f"pod {name} is gone")
    container = kube_pods.main_container(pod)
    first = next(iter(container.get("command") or []), "")
    program = first if os.path.basename(first) == _PROGRAM else _PROGRAM
    return Place(container["name"], program)
