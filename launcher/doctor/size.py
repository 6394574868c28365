"""The check of `doctor` that a job has as many pods as its launchers expect."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.base.kube import KubeClient
from launcher.config import JobConfig
from launcher.doctor import mend
from launcher.doctor.report import OK, WARNING, WRONG, Check
from launcher.doctor.settings import job_config
from launcher.doctor.subject import Subject
from launcher.job.recognition import Workload
from launcher.job.spec import Json
from launcher.model import BOTH, PSERVER, TRAINER

_NAME = "pods"


def pods(client: KubeClient, subject: Subject) -> Iterator[Check]:
    """The number of pods is one that the launchers expect."""
    good = True
    ranges = ""
    for workload in subject.workloads:
        found = job_config(workload)
        if found is None:
            continue
        if found.is_elastic and found.role in (BOTH, TRAINER):
            ranges = f", {_range(found)} may train"
            checks = _elastic(client, subject, workload, found)
        else:
            checks = _fixed(client, subject, workload, found)
        for check in checks:
            good = False
            yield check
    if good:
        total = sum(workload.members for workload in subject.workloads)
        yield Check(_NAME, OK, f"{total} in {' and '.join(f'{w.kind} {w.name}' for w in subject.workloads)}{ranges}")


def _fixed(client: KubeClient, subject: Subject, workload: Workload, found: JobConfig) -> Iterator[Check]:
    variable = "LAUNCHER_PSERVERS" if found.role == PSERVER else "CONF_PADDLE_GRADIENT_NUM"
    wanted = found.shape.count(found.role)
    numbers = _numbers(workload)
    wrong = {name: number for name, number in numbers.items() if number != wanted}
    if wrong:
        where = f"{workload.kind} {workload.name}"
        text = f"{where} has {_shown(wrong)}, but {variable} is {wanted}: the launchers would wait for {wanted} pods"
        yield Check(_NAME, WRONG, text, _counts(client, subject, workload, numbers, variable, wanted))


def _elastic(client: KubeClient, subject: Subject, workload: Workload, found: JobConfig) -> Iterator[Check]:
    spec = workload.seen.get("spec") or {}
    where, numbers = f"{workload.kind} {workload.name}", _numbers(workload)
    if workload.kind == "Job" and spec.get("completionMode") != "Indexed":
        fix = mend.edit(subject, workload, "set completionMode: Indexed")
        if found.job_path:
            text = f"the size of {where} cannot change: Kubernetes changes that of Indexed Jobs only"
            yield Check(_NAME, WARNING, text, fix)
        else:
            text = f"the pods of {where} have no numbers, and an elastic job without a volume needs them"
            yield Check(_NAME, WRONG, text, fix)
    most = found.shape.trainers
    if any(not found.least <= number <= most for number in numbers.values()):
        nearest = min(max(workload.members, found.least), most)
        text = f"{where} has {_shown(numbers)}, but CONF_PADDLE_GRADIENT_NUM allows {_range(found)} pods"
        yield Check(_NAME, WRONG, text, _set(client, subject, workload, numbers, nearest))
    elif len(set(numbers.values())) > 1:
        text = f"{where} has {_shown(numbers)}: an elastic Job needs the same number, else its size cannot change"
        yield Check(_NAME, WRONG, text, _set(client, subject, workload, numbers, max(numbers.values())))


def _range(found: JobConfig) -> str:
    return f"{found.least} to {found.shape.trainers}"


def _numbers(workload: Workload) -> dict[str, int]:
    """Return the fields with the number of pods."""
    spec = workload.seen.get("spec") or {}
    names = ("replicas",) if workload.kind == "StatefulSet" else ("parallelism", "completions")
    found = {name: spec.get(name) for name in names}
    return {name: number for name, number in found.items() if number is not None} or {"completions": 1}


def _shown(numbers: dict[str, int]) -> str:
    return " and ".join(f"{name} {number}" for name, number in numbers.items())


def _counts(
    client: KubeClient, subject: Subject, workload: Workload, numbers: Json, variable: str, wanted: int
) -> tuple[str, ...]:
    change = _set(client, subject, workload, numbers, wanted)
    if not subject.file and workload.kind == "StatefulSet":
        return change
    if len(set(numbers.values())) == 1 and (count := next(iter(numbers.values()))):
        first = mend.set_variable(subject, workload, client.namespace, variable, str(count))
        return (*first, *mend.edit(subject, workload, f"or set {' and '.join(numbers)} to {wanted}"))
    return change


def _set(client: KubeClient, subject: Subject, workload: Workload, numbers: Json, wanted: int) -> tuple[str, ...]:
    if not subject.file and workload.kind == "StatefulSet":
        return (mend.kubectl(client.namespace, "scale", f"statefulset/{workload.name}", f"--replicas={wanted}"),)
    return mend.edit(subject, workload, f"set {' and '.join(numbers)} to {wanted}")
