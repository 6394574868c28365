"""The manifests of a round: k8s/job-indexed as users apply it, with the plan's settings and the stand-in for Paddle."""

from __future__ import annotations

from pathlib import Path

from chaos.plan import STOP_GRACE, Plan
from tests.e2e.cluster import Cluster, Json
from tests.e2e.manifests import rendered
from tests.support.jobs import JOB
from tests.support.paths import K8S

FLAVOUR = "job-indexed"
VOLUME = "jobpath"
SAID = "/said"  # in the pods: a folder of this host that no fault touches
STAMPS = "stamps"
TERMINATION = ".termination"
JOB_NAME = "paddle-indexed-job"
_GRACE_BEYOND_STOP = 5  # seconds, see k8s/README.md

# Keep the standard error of each launcher: Kubernetes deletes the logs of a pod together with the pod.
_KEEPS_STDERR = f"""
: >"{SAID}/$POD_NAME{TERMINATION}"
exec paddle-launcher "$@" 2>>"{SAID}/$POD_NAME"
"""


def objects(cluster: Cluster, plan: Plan, volume: Path, said: Path) -> list[Json]:
    """Return all objects to apply.

    volume: the folder of this host with the volume
    said: the folder of this host for the standard error of the launchers
    """
    found = rendered(K8S / FLAVOUR, cluster)
    (job,) = (one for one in found if one["kind"] == "Job")
    job["spec"] |= {
        "parallelism": plan.members,
        "completions": plan.members,
        # With a limit for the whole Job, each failed pod would double the pause: minutes for a gang of seven.
        "backoffLimitPerIndex": plan.backoff_limit,
        "maxFailedIndexes": 0,
    }
    del job["spec"]["backoffLimit"]
    pod = job["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = int(STOP_GRACE) + _GRACE_BEYOND_STOP
    others = [
        mounted for mounted in pod["volumes"] if mounted["name"] != VOLUME
    ]  # without a claim, because claims are bound only every 15 s
    pod["volumes"] = [*others, _of_host(VOLUME, volume), _of_host("said", said)]
    (container,) = pod["containers"]
    container["volumeMounts"].append({"name": "said", "mountPath": SAID})
    container["command"] = ["sh", "-c", _KEEPS_STDERR, "sh"]
    container["args"] = ["run", *plan.flags]
    _set_variables(container, plan)
    return found


def _of_host(name: str, folder: Path) -> Json:
    return {"name": name, "hostPath": {"path": str(folder)}}


def _set_variables(container: Json, plan: Plan) -> None:
    variables = {
        **plan.variables,
        "JOB_NAME": JOB,  # the folder on the volume
        "CONF_PADDLE_GRADIENT_NUM": str(plan.members),
        "LAUNCHER_BACKOFF_LIMIT": str(plan.backoff_limit),
        "LAUNCHER_TERMINATION_LOG": f"{SAID}/$(POD_NAME){TERMINATION}",
        "STANDIN_ON_PEER_DEATH": "hang",
        "STANDIN_STAMPS": f"{SAID}/{STAMPS}",
    }
    kept = [variable for variable in container["env"] if variable["name"] not in variables]
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in variables.items())]
