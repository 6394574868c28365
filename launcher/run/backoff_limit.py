"""Compute how many failed attempts the Job's backoffLimit allows.

Kubernetes counts failed pods. A failed attempt has N failed pods, of which a podFailurePolicy counts only one.
"""

from __future__ import annotations

from launcher.config import JobConfig
from launcher.errors import Exit
from launcher.model import Cause, role_name


def describe(config: JobConfig) -> str | None:
    """Return a sentence for the log: how many failed attempts the Job allows.

    If LAUNCHER_BACKOFF_LIMIT is unset, the sentence asks the user to set it. If it is unset and this pod is probably
    not in a Job of several pods, return None.
    """
    limit, pods = (
        config.restarts.backoff_limit,
        1 if config.restarts.failure_policy else config.shape.count(config.role),
    )
    counts_pod = f"counts {pods} pods" if pods > 1 else "counts 1 pod"
    if limit is None:
        if config.stay or config.members == 1 or config.discovery.method == "static":
            return None
        advice = "set LAUNCHER_BACKOFF_LIMIT to the Job's backoffLimit"
        return f"a failed attempt {counts_pod} of the Job's backoffLimit: {advice}"
    taken = limit // pods
    times = "no failed attempt" if not taken else f"up to {taken} failed attempt{'s' if taken > 1 else ''}"
    return f"the Job allows {times}: its backoffLimit is {limit}, and each {counts_pod}"


def counts_pod(config: JobConfig, code: int) -> bool:
    """Return whether the Job counts a pod that ends with this exit code.

    The podFailurePolicy of our manifests does not count a pod that ended because of SIGTERM or because of a peer.
    """
    return code not in (Exit.COMPLETE, *((Exit.PEER_FAILED, Exit.STOPPED) if config.restarts.failure_policy else ()))


def other_role_is_over(config: JobConfig, cause: Cause) -> str | None:
    """Return why this cause ends the Job of another role, or None if that Job may start another pod.

    The decision uses only the configuration. This member may have neither a volume nor RBAC permissions, so it cannot
    look at the other Job.
    """
    if (
        config.restarts.backoff_limit != 0
        or not config.restarts.failure_policy
        or cause.rank is None
        or not cause.kind.is_child
    ):
        return None
    other = config.shape.role(cause.rank)
    return (
        None if other == config.role else f"the Job of the {role_name(other)}s replaces no failed pod (backoffLimit 0)"
    )
