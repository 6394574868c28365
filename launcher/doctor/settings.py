"""What a Job or StatefulSet says about its pods: configuration, command, and the objects that they need."""

from __future__ import annotations

from launcher import config
from launcher.config import VARIABLES, JobConfig
from launcher.doctor.subject import Subject
from launcher.errors import Failure
from launcher.job.recognition import Workload, template_of

# Values of the pods that only Kubernetes knows.
_PLACEHOLDERS = {"POD_NAME": "pod-0", "POD_UID": "uid", "LAUNCHER_JOB_ID": "job"}


def job_config(workload: Workload) -> JobConfig | None:
    """Return the configuration of the first pod, or None if it is wrong."""
    try:
        return config.read(values_of(workload), {}, check_here=False)
    except Failure:
        return None


def values_of(workload: Workload) -> dict[str, str]:
    """Return the variables of the first pod, with placeholders for those that only a pod has."""
    given = {name: value for name, value in workload.env.items() if value}
    set_by_field = set(workload.env) - set(given)
    values = given | {name: text for name, text in _PLACEHOLDERS.items() if name in set_by_field}
    values |= {each.name: found for each in VARIABLES if (found := workload.value(each.name))}
    spec = workload.seen.get("spec") or {}
    if spec.get("completionMode") == "Indexed" or workload.kind == "StatefulSet":
        values["JOB_COMPLETION_INDEX"] = "0"
    return values


def command_of(workload: Workload) -> tuple[str, ...]:
    """Return the user's command, after --. It is empty for Paddle v0."""
    words = workload.words
    return words[words.index("--") + 1 :] if "--" in words else ()


def flags_of(workload: Workload) -> tuple[str, ...]:
    """Return the flags for `paddle train`."""
    words = [word for word in workload.words if word.startswith("-") and not word.startswith("--launcher-")]
    return () if "--" in workload.words else tuple(words)


def service_of(workload: Workload) -> str:
    """Return the name of the headless Service from which the pods get their names, or "" if they need none."""
    value = workload.value("LAUNCHER_SERVICE")
    name = value.rpartition("=")[2].partition(".")[2] if value.startswith("trainer=") else value
    return name.partition(".")[0]


def claims_of(workload: Workload) -> list[str]:
    volumes = (template_of(workload.seen).get("spec") or {}).get("volumes") or []
    found = ((volume.get("persistentVolumeClaim") or {}).get("claimName") for volume in volumes)
    return [name for name in dict.fromkeys(found) if name]


def account_of(workload: Workload) -> str:
    spec = template_of(workload.seen).get("spec") or {}
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")


def named(subject: Subject, workload: Workload) -> str:
    return f"{workload.kind} {workload.name}: " if len(subject.workloads) > 1 else ""
