"""What discovery costs the API server: requests and bytes of 10 members of jobs of 3, 30, 100 and 300 pods.

    KUBECONFIG=... E2E_IMAGE=... python -m bench api

The members run the launcher's own code with its child process. A proxy per member counts its traffic, with headers and
without TLS. The pods belong to a real Job that no scheduler handles. This benchmark writes their status as kubelets
would: two changes per pod, of which the second one adds the address. The members start before the first change.
The old script (start_paddle.py) is replaced by its requests: it lists all pods of the Job over a new connection until
all run. Here it lists them once before and once after the changes. In a real cluster it lists them once more for each
20 s that the last pod is late.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import urllib3
import yaml
from kubernetes import client, config

from bench.cluster import batch, core, demand, told_of_itself
from bench.counting import Count, Proxy
from launcher.discovery.kubernetes import KubernetesFinder as Finder
from tests.e2e.cluster import Cluster, Json, kubectl, namespace, until
from tests.e2e.training import Training
from tests.support.finders import settings

SIZES = (3, 30, 100, 300)
CLIENTS = 10
KIB = 1024
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Place:
    """A job and its pods."""

    cluster: Cluster
    name: str
    pods: list[Json]
    folder: Path
    token: str
    changed: asyncio.Event  # set once all changes of the pods are written

    @property
    def selector(self) -> str:
        return f"job-name={self.name}"


async def member(place: Place, number: int, proxy: Proxy) -> None:
    """Find the peers as a launcher does. The hub of a numbered job waits until all members are found."""
    meta = place.pods[number]["metadata"]
    index = meta["labels"].get(_INDEX)
    finder = Finder(
        settings(
            discovery="kubernetes",
            size=len(place.pods),
            namespace=place.cluster.namespace,
            selector=place.selector,
            pod_name=meta["name"],
            pod_uid=meta["uid"],
            pod_ip=_address(number),
            host_name=meta["name"],
            rank=int(index) if index else None,
            training_address=_address(number),
            timeout=300.0,
            env={"PATH": "/usr/bin:/bin", "KUBECONFIG": str(_kubeconfig(place, proxy))},
        )
    )
    try:
        peers = await finder.find()
        if peers.rank == 0:
            await asyncio.to_thread(until, lambda: len(finder.members()) == len(place.pods))
    finally:
        await finder.close()


async def script(place: Place, number: int, proxy: Proxy) -> None:
    """Send the requests of start_paddle.py, with the headers of its HTTP library."""
    await asyncio.to_thread(_list_like_the_script, place, proxy.url)
    await place.changed.wait()
    await asyncio.to_thread(_list_like_the_script, place, proxy.url)


def _list_like_the_script(place: Place, url: str) -> None:
    headers = {"User-Agent": "python-requests/2.11.1", "Accept-Encoding": "gzip, deflate", "Accept": "*/*"}
    headers |= {"Connection": "keep-alive", "Authorization": f"Bearer {place.token}"}
    where = f"{url}/api/v1/namespaces/{place.cluster.namespace}/pods?labelSelector={place.selector}"
    with urllib3.PoolManager() as pool:
        found = pool.request("GET", where, headers=headers).json()
    assert len(found["items"]) == len(place.pods)


async def idle(place: Place, number: int, proxy: Proxy) -> None:
    """Do nothing: measure what the API server does without any member."""


Way = Callable[[Place, int, Proxy], Awaitable[None]]
WAYS: dict[str, tuple[str, Way]] = {
    "no member": ("NonIndexed", idle),
    "plain Job": ("NonIndexed", member),
    "numbered": ("Indexed", member),
    "the script": ("NonIndexed", script),
}


def main() -> None:
    demand()
    print(f"{'':<10}  pods  requests  KiB of {CLIENTS}  KiB of one  the whole job: requests      MiB")
    with namespace() as cluster, tempfile.TemporaryDirectory() as name:
        token = kubectl("-n", cluster.namespace, "create", "token", "member").strip()
        for way, (mode, find) in WAYS.items():
            for size in SIZES:
                training = Training(cluster, f"{find.__name__}-{mode.lower()}-{size}", Path(name))
                _show(way, size, measure(training, mode, size, token, find))


def measure(training: Training, mode: str, size: int, token: str, find: Way) -> list[Count]:
    """Return the traffic of each of 10 members of one job."""

    def nowhere(job: Json) -> None:
        job["spec"].update(parallelism=size, completions=size)
        job["spec"]["template"]["spec"]["schedulerName"] = "none"
        told_of_itself(job)

    cluster = training.cluster
    training.submit("--num_passes=2", mode=mode, change=nowhere)
    try:
        until(lambda: len(training.pods()) == size)
        pods = sorted(training.pods(), key=lambda pod: int(pod["metadata"]["labels"].get(_INDEX, 0)))
        return asyncio.run(_all_find(cluster, training, pods, token, find))
    finally:
        batch().delete_namespaced_job(training.name, cluster.namespace, propagation_policy="Background")
        until(lambda: not training.pods())


async def _all_find(cluster: Cluster, training: Training, pods: list[Json], token: str, find: Way) -> list[Count]:
    place = Place(cluster, training.name, pods, training.volume, token, asyncio.Event())
    proxies = [_proxy() for _ in range(CLIENTS)]
    for proxy in proxies:
        await proxy.open()
    before = await asyncio.to_thread(_metrics)
    finds = [asyncio.ensure_future(find(place, _pod_number(i, len(pods)), proxy)) for i, proxy in enumerate(proxies)]
    try:
        if find is not idle:
            await asyncio.to_thread(until, lambda: all(proxy.count.is_waiting() for proxy in proxies))
        await asyncio.to_thread(_run_pods, place)
        place.changed.set()
        await asyncio.gather(*finds)
    finally:
        for one in finds:
            one.cancel()
        for proxy in proxies:
            await proxy.close()
    after = await asyncio.to_thread(_metrics)
    _compare([proxy.count for proxy in proxies], {what: round(after[what] - before[what], 2) for what in after})
    return [proxy.count for proxy in proxies]


def _pod_number(client: int, size: int) -> int:
    """Return the pod number of a client: 0 for the first client, and one of the other numbers for each other client."""
    return 1 + (client - 1) % (size - 1) if client else 0


def _proxy() -> Proxy:
    given = client.Configuration()
    config.load_kube_config(client_configuration=given)
    return Proxy(given.host, given.ssl_ca_cert)


def _kubeconfig(place: Place, proxy: Proxy) -> Path:
    path = place.folder / f"kubeconfig-{proxy.url.rpartition(':')[2]}"
    entry = {"cluster": {"server": proxy.url}, "user": {"token": place.token}, "context": {"cluster": "x", "user": "x"}}
    given: Json = {f"{kind}s": [{"name": "x", kind: what}] for kind, what in entry.items()}
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **given}))
    return path


def _address(number: int) -> str:
    return f"10.99.{number >> 8}.{number & 255}"


# ---- the status that kubelets write ----------------------------------------------------------------------------------


def _run_pods(place: Place) -> None:
    api = core()
    for status in (_creating, _running):
        for number, pod in enumerate(place.pods):
            body = {"status": status(pod, number)}
            api.patch_namespaced_pod_status(pod["metadata"]["name"], place.cluster.namespace, body)


def _creating(pod: Json, number: int) -> Json:
    waits = {"waiting": {"reason": "ContainerCreating"}}
    return _status(pod, "Pending", waits, ready=False) | {"hostIP": "192.0.2.1", "hostIPs": [{"ip": "192.0.2.1"}]}


def _running(pod: Json, number: int) -> Json:
    address = _address(number)
    runs = {"running": {"startedAt": "2026-11-18T12:00:01Z"}}
    return _status(pod, "Running", runs, ready=True) | {"podIP": address, "podIPs": [{"ip": address}]}


def _status(pod: Json, phase: str, state: Json, *, ready: bool) -> Json:
    container = pod["spec"]["containers"][0]
    mounts = [{"recursiveReadOnly": "Disabled", "readOnly": False, **mount} for mount in container["volumeMounts"]]
    seen = {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"sha256:{'0' * 64}" if ready else "",
        "containerID": f"containerd://{'0' * 64}" if ready else "",
        "lastState": {},
        "ready": ready,
        "restartCount": 0,
        "started": ready,
        "state": state,
        "volumeMounts": mounts,
    }
    holds = {"PodReadyToStartContainers": ready, "Initialized": True, "Ready": ready, "ContainersReady": ready}
    conditions = [
        {"type": kind, "status": str(is_so), "lastTransitionTime": "2026-11-18T12:00:00Z", "observedGeneration": 1}
        for kind, is_so in {**holds, "PodScheduled": True}.items()
    ]
    start = "2026-11-18T12:00:00Z"
    return {"phase": phase, "startTime": start, "conditions": conditions, "containerStatuses": [seen]}


# ---- the metrics of the API server, and the table --------------------------------------------------------------------


def _metrics() -> dict[str, float]:
    """Return the API server's counters for reads of pods by all clients."""
    found = {"reads": 0.0, "bytes in lists": 0.0, "seconds of CPU": 0.0}
    for line in kubectl("get", "--raw", "/metrics").splitlines():
        name, _, value = line.rpartition(" ")
        ours = 'resource="pods"' in name and 'subresource=""' in name
        if name.startswith("apiserver_request_total{") and ours and re.search('verb="(GET|LIST|WATCH)"', name):
            found["reads"] += float(value)
        elif name.startswith("apiserver_response_sizes_sum{") and ours and 'verb="LIST"' in name:
            found["bytes in lists"] += float(value)
        elif name == "process_cpu_seconds_total":
            found["seconds of CPU"] = float(value)
    return found


def _compare(counts: list[Count], said: dict[str, float]) -> None:
    ours = f"{sum(len(count.requests) for count in counts)} requests, {sum(count.received for count in counts)} bytes"
    theirs = ", ".join(f"{value:g} {what}" for what, value in said.items())
    print(f"# counted: {ours} received; the API server's metrics for all clients: {theirs}", flush=True)


def _show(way: str, size: int, counts: list[Count]) -> None:
    """Print one row. The hub of a numbered job reads more than other members, so it is counted once per job."""
    first, rest = counts[0], counts[1:]
    requests = len(first.requests) + (size - 1) * sum(len(count.requests) for count in rest) / len(rest)
    volume = first.bytes + (size - 1) * sum(count.bytes for count in rest) / len(rest)
    total, asked = sum(count.bytes for count in counts), sum(len(count.requests) for count in counts)
    one = f"{sum(count.bytes for count in rest) / len(rest) / KIB:>10.0f}"
    print(
        f"{way:<10}  {size:>4}  {asked:>8}  {total / KIB:>9.0f}  {one}  {requests:>23.0f}  {volume / KIB**2:>8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
