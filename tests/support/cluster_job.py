"""A job whose launchers find each other by an API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.fake_api import Authority, FakeApi, Json
from tests.support.jobs import JOB, Job
from tests.support.pods import pod


@contextmanager
def api_of(job: Job, authority: Authority) -> Iterator[FakeApi]:
    """Yield an API server that has a running pod for each member. The launchers of the job use it. Needs root."""
    api = job.nodes.call(lambda: FakeApi(authority))
    kubeconfig = job.folder / "kubeconfig"
    kubeconfig.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "https://127.0.0.1:{api.port}", certificate-authority: {authority.ca}}}}}]
users: [{{name: u, user: {{token: {api.token}}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
    )
    job.environment |= {"LAUNCHER_PEERS": "", "KUBECONFIG": str(kubeconfig), "JOB_NAMESPACE": api.namespace}
    try:
        api.put(*(member(job, rank) for rank in range(job.size)))
        yield api
    finally:
        api.stop()


def member(job: Job, rank: int, address: str | None = None) -> Json:
    """Return the pod of a member. With an empty address, it does not run yet."""
    return pod(f"pod-{rank}", job.nodes.addresses[rank] if address is None else address, job=JOB, index=rank)
