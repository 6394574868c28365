"""The parameters of a PaddleJob in Python: what they mean, and the checks that need no cluster."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from launcher.config.parsers import MAX_NODES
from launcher.job import elastic, quantities, volumes
from launcher.job.findings import Fields, Findings
from launcher.job.spec import name_problems
from launcher.job.volumes import AnyVolume
from launcher.model import HETER, PSERVER, TRAINER

if TYPE_CHECKING:
    from launcher.job.paddlejob import PaddleJob

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(|[EPTGMKk]|[EPTGMK]i)")
# Unquoted characters that only a shell understands, or a first word that is no program: an assignment or a built-in.
_NEEDS_SHELL = re.compile(r"[|&;<>()$`*?~#\n\[]|^\s*([A-Za-z_]\w*=|(exec|cd|source|export|\.)\s)")
_TEXTS = (
    *("job_name", "runtime_image", "memory", "namespace", "trainer_package_path", "shared_memory", "queue"),
    *("priority", "service_account", "launcher_image"),
)
_REQUIRED = ("job_name", "entry_point", "runtime_image", "trainers", "pservers", "heters", "max_restarts")
# For parameters without a default; with gang_scheduling, any queue is valid.
_VALID = {"job_name": "job", "entry_point": "true", "runtime_image": "image:1", "gang_scheduling": True}
_MINIMUM = {"trainers": 1, "pservers": 0, "heters": 0, "max_restarts": 0, "gpu_nums": 0, "gpu_num": 0}


def check(job: PaddleJob, findings: Findings) -> None:
    """Add all problems that can be detected without a cluster."""
    given = Fields({field.name: getattr(job, field.name) for field in fields(job)}, "", findings)
    _check_types(job, given, findings)
    for name in _TEXTS:
        if given.text(name) == "":
            findings.add_problem(name, "empty: expected a value, or remove the parameter")
    for name, minimum in _MINIMUM.items():
        if (number := given.integer(name)) is not None and number < minimum:
            findings.add_problem(name, f"{number}: expected {minimum} or more")
    _check_range(job, findings)
    job = without_problems(job, findings)
    _check_heters(job, findings)
    replicas = {PSERVER: job.pservers, TRAINER: job.elastic[1] if job.elastic else job.trainers, HETER: job.heters}
    for problem in name_problems(
        job.job_name, [(kubernetes_job_name(job, role), count) for role, count in replicas.items() if count]
    ):
        findings.add_problem("job_name", problem)
    _check_command(job, findings)
    _check_sizes(job, findings)
    _check_mappings(job, findings)
    if job.queue and not job.gang_scheduling:
        findings.add_problem("queue", f"{job.queue!r}: only Volcano has queues: set gang_scheduling=True")
    volumes.check(tuple(all_volumes(job)), findings)


def without_problems(job: PaddleJob, findings: Findings) -> PaddleJob:
    """Return a copy with a valid value for each parameter that has a problem, so that all others can be checked."""
    copied = copy.copy(job)
    wrong = {re.split(r"[.\[]", problem.path)[0] for problem in findings.problems}
    for field in fields(job):
        if field.name in wrong:
            default = None if field.default is MISSING else field.default
            object.__setattr__(copied, field.name, _VALID.get(field.name, default))
    return copied


def kubernetes_job_name(job: PaddleJob, role: str) -> str:
    """Return the name of the Kubernetes Job with the pods of a role."""
    return f"{job.job_name}-{role}"


def cpus(job: PaddleJob) -> float:
    """Return the CPUs of each pod."""
    return next((value for value in (job.cpu_nums, job.cpu_num) if value is not None), 1)


def gpus(job: PaddleJob) -> int:
    """Return the GPUs of each pod that trains."""
    return next((value for value in (job.gpu_nums, job.gpu_num) if value is not None), 1 if job.use_gpu else 0)


def all_volumes(job: PaddleJob) -> Iterator[tuple[str, AnyVolume]]:
    """Yield each volume with the name of its parameter."""
    if job.cephfs_volume:
        yield "cephfs_volume", job.cephfs_volume
    for index, volume in enumerate(job.volumes):
        yield f"volumes[{index}]", volume


def split_entry_point(entry_point: str | Sequence[str]) -> tuple[str, ...]:
    """Return the words of the command, or the words that run it in a shell. Raises ValueError for open quotes."""
    if not isinstance(entry_point, str):
        return tuple(entry_point)
    if _NEEDS_SHELL.search(entry_point):
        return ("/bin/sh", "-c", entry_point)
    return tuple(shlex.split(entry_point))


def kubernetes_quantity(quantity: str) -> str:
    """Return the quantity as Kubernetes writes it: a factor of 1000 is a lower-case k."""
    return quantity[:-1] + "k" if quantity.endswith("K") else quantity


def _check_types(job: PaddleJob, given: Fields, findings: Findings) -> None:
    for name in _REQUIRED:
        if not given.has(name):
            findings.add_problem(name, "None: expected a value")
    for name in ("env", "labels", "node_selector"):
        given.mapping(name)
    for name in ("use_gpu", "gang_scheduling"):
        if getattr(job, name) not in (None, True, False):
            findings.add_problem(name, f"{getattr(job, name)!r}: expected True or False")
    for name, kinds in (("volumes", volumes.AnyVolume), ("tolerations", Mapping)):
        value = getattr(job, name)
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, kinds) for item in value):
            expected = "ClaimVolume(...) or Volume(...)" if name == "volumes" else "mappings, as in a pod spec"
            findings.add_problem(name, f"{value!r}: expected a list of {expected}")
    if not isinstance(job.cephfs_volume, (volumes.CephFSVolume, type(None))):
        findings.add_problem("cephfs_volume", f"{job.cephfs_volume!r}: expected CephFSVolume(...)")


def _check_range(job: PaddleJob, findings: Findings) -> None:
    if (sizes := job.elastic) is None:
        return
    numbers = isinstance(sizes, (list, tuple)) and len(sizes) == 2 and all(type(size) is int for size in sizes)
    if not numbers or not 1 <= sizes[0] < sizes[1] <= MAX_NODES:
        findings.add_problem("elastic", f"{sizes!r}: expected the fewest and the most trainers, such as (2, 5)")
    elif type(job.trainers) is int and not sizes[0] <= job.trainers <= sizes[1]:
        findings.add_problem("trainers", f"{job.trainers}: expected {sizes[0]} to {sizes[1]}, since elastic is {sizes}")


def _check_heters(job: PaddleJob, findings: Findings) -> None:
    if job.heters and not job.pservers:
        findings.add_problem(
            "heters", f"{job.heters}: expected pservers, too: without parameter servers no heter worker can train"
        )
    if job.heters and job.elastic:
        findings.add_problem("elastic", elastic.problem_with_heters(job.elastic, "elastic", "heters"))


def _check_command(job: PaddleJob, findings: Findings) -> None:
    try:
        command: tuple[Any, ...] = split_entry_point(job.entry_point)
    except ValueError as error:
        findings.add_problem("entry_point", f"{job.entry_point!r}: {error}")
        return
    if not command or not all(isinstance(word, str) and word for word in command):
        findings.add_problem("entry_point", f'{job.entry_point!r}: expected a command, such as "python train.py"')
    path = job.trainer_package_path
    if path is not None and not path.startswith("/"):
        findings.add_problem("trainer_package_path", f"{path!r}: expected an absolute path in the image")


def _check_sizes(job: PaddleJob, findings: Findings) -> None:
    for name in ("memory", "shared_memory"):
        value = getattr(job, name)
        if value is not None and not _QUANTITY.fullmatch(value):
            findings.add_problem(
                name, f"{value!r}: expected a number with one of the suffixes E P T G M K (or Ei Pi ... Ki), such as 4G"
            )
        elif problem := quantities.too_little(value):
            findings.add_problem(name, problem)
    for name, alias in (("cpu_nums", "cpu_num"), ("gpu_nums", "gpu_num")):
        value, other = getattr(job, name), getattr(job, alias)
        if None not in (value, other) and value != other:
            findings.add_problem(alias, f"{other}: {name} is {value}, and both mean the same: remove one of the two")
    number: object = cpus(job)
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not number > 0:
        findings.add_problem("cpu_nums", f"{number!r}: expected a number above 0")
    if job.use_gpu is not None and job.use_gpu != bool(gpus(job)):
        findings.add_problem("use_gpu", f"{job.use_gpu}, but gpu_nums is {gpus(job)}: remove one of the two")


def _check_mappings(job: PaddleJob, findings: Findings) -> None:
    for name, value in (job.env or {}).items():
        if not isinstance(name, str) or not name or "=" in name:
            findings.add_problem("env", f"{name!r}: expected the name of a variable")
        elif value is None:
            findings.add_problem(f"env[{name!r}]", "None: expected a value, or remove the variable")
    for parameter in ("labels", "node_selector"):
        for name, value in (getattr(job, parameter) or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                findings.add_problem(f"{parameter}[{name!r}]", f"{value!r}: expected text, in quotes")
