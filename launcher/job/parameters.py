"""What the parameters of a PaddleJob in Python mean, and what is wrong with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from launcher.job import volumes
from launcher.job.findings import Fields, Found
from launcher.job.spec import name_problems
from launcher.job.volumes import AnyVolume
from launcher.model import PSERVER, TRAINER

if TYPE_CHECKING:
    from launcher.job.paddlejob import PaddleJob

_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(|[EPTGMKk]|[EPTGMK]i)")
# What a word that is not in quotes means to a shell only, or a command line whose first word is none of a program.
_SHELL = re.compile(r"[|&;<>()$`*?~#\n\[]|^\s*([A-Za-z_]\w*=|(exec|cd|source|export|\.)\s)")
_TEXTS = ("job_name", "runtime_image", "memory", "namespace", "trainer_package_path", "shared_memory", "queue")
_NAMES = ("priority", "service_account", "launcher_image")
_NEEDED = ("job_name", "entry_point", "runtime_image", "trainers", "pservers", "max_restarts")
_LEAST = {"trainers": 1, "pservers": 0, "max_restarts": 0, "gpu_nums": 0, "gpu_num": 0}


def check(job: PaddleJob, found: Found) -> None:
    """All that can be found wrong without a cluster."""
    given = Fields({field.name: getattr(job, field.name) for field in fields(job)}, "", found)
    _check_kinds(job, given, found)
    for name in (*_TEXTS, *_NAMES):
        if given.text(name) == "":
            found.problem(name, "empty: expected a value, or leave it out")
    for name, least in _LEAST.items():
        if (number := given.whole(name)) is not None and number < least:
            found.problem(name, f"{number}: expected {least} or more")
    if found.problems:
        return
    counts = [(job_of(job, kind), count) for kind, count in ((PSERVER, job.pservers), (TRAINER, job.trainers)) if count]
    for problem in name_problems(job.job_name, counts):
        found.problem("job_name", problem)
    _check_command(job, found)
    _check_sizes(job, found)
    _check_texts(job, found)
    if job.queue and not job.gang_scheduling:
        found.problem("queue", f"{job.queue!r}: Volcano's, which schedules with gang_scheduling=True only")
    volumes.check(tuple(all_volumes(job)), found)


def job_of(job: PaddleJob, kind: str) -> str:
    """The name of the Job with the pods of a role."""
    return f"{job.job_name}-{kind}"


def cpus(job: PaddleJob) -> float:
    """Of each pod."""
    return next((value for value in (job.cpu_nums, job.cpu_num) if value is not None), 1)


def gpus(job: PaddleJob) -> int:
    """Of each pod that trains."""
    return next((value for value in (job.gpu_nums, job.gpu_num) if value is not None), 1 if job.use_gpu else 0)


def all_volumes(job: PaddleJob) -> Iterator[tuple[str, AnyVolume]]:
    """Each with the parameter that it was given by."""
    if job.cephfs_volume:
        yield "cephfs_volume", job.cephfs_volume
    for number, volume in enumerate(job.volumes):
        yield f"volumes[{number}]", volume


def words(entry_point: str | Sequence[str]) -> tuple[str, ...]:
    """The command's words. What only a shell understands is left to one."""
    if not isinstance(entry_point, str):
        return tuple(entry_point)
    if _SHELL.search(entry_point):
        return ("/bin/sh", "-c", entry_point)
    return tuple(shlex.split(entry_point))


def as_kubernetes_spells_it(quantity: str) -> str:
    """A thousand bytes have a small k there."""
    return quantity[:-1] + "k" if quantity.endswith("K") else quantity


def _check_kinds(job: PaddleJob, given: Fields, found: Found) -> None:
    """What is missing, or is something else altogether: Python itself asks for no types."""
    for name in _NEEDED:
        if not given.has(name):
            found.problem(name, "None: expected a value")
    for name in ("env", "labels", "node_selector"):
        given.mapping(name)
    for name in ("use_gpu", "gang_scheduling"):
        if getattr(job, name) not in (None, True, False):
            found.problem(name, f"{getattr(job, name)!r}: expected True or False")
    for name, kinds in (("volumes", volumes.AnyVolume), ("tolerations", Mapping)):
        value = getattr(job, name)
        if not isinstance(value, (list, tuple)) or not all(isinstance(each, kinds) for each in value):
            what = "ClaimVolume(...) or Volume(...)" if name == "volumes" else "mappings, as a pod has them"
            found.problem(name, f"{value!r}: expected a list of {what}")
    if not isinstance(job.cephfs_volume, (volumes.CephFSVolume, type(None))):
        found.problem("cephfs_volume", f"{job.cephfs_volume!r}: expected CephFSVolume(...)")


def _check_command(job: PaddleJob, found: Found) -> None:
    try:
        command: tuple[Any, ...] = words(job.entry_point)
    except ValueError as error:
        found.problem("entry_point", f"{job.entry_point!r}: {error}")
        return
    if not command or not all(isinstance(word, str) and word for word in command):
        found.problem("entry_point", f'{job.entry_point!r}: expected a command, as "python train.py"')
    path = job.trainer_package_path
    if path is not None and not path.startswith("/"):
        found.problem("trainer_package_path", f"{path!r}: expected an absolute path in the image")


def _check_sizes(job: PaddleJob, found: Found) -> None:
    for name in ("memory", "shared_memory"):
        value = getattr(job, name)
        if value is not None and not _QUANTITY.fullmatch(value):
            found.problem(
                name, f"{value!r}: expected a number with one of the suffixes E P T G M K (or Ei Pi ... Ki), as 4G"
            )
    for name, other in (("cpu_nums", "cpu_num"), ("gpu_nums", "gpu_num")):
        ours, theirs = getattr(job, name), getattr(job, other)
        if None not in (ours, theirs) and ours != theirs:
            found.problem(other, f"{theirs}: {name} is {ours}, and both mean the same: leave one of them out")
    number: object = cpus(job)
    if not isinstance(number, (int, float)) or isinstance(number, bool) or not number > 0:
        found.problem("cpu_nums", f"{number!r}: expected a number above 0")
    if job.use_gpu is not None and job.use_gpu != bool(gpus(job)):
        found.problem("use_gpu", f"{job.use_gpu}, but gpu_nums is {gpus(job)}: leave one of them out")


def _check_texts(job: PaddleJob, found: Found) -> None:
    for name, value in (job.env or {}).items():
        if not isinstance(name, str) or not name or "=" in name:
            found.problem("env", f"{name!r}: expected a variable's name")
        elif value is None:
            found.problem(f"env[{name!r}]", "None: expected a value, or leave it out")
    for parameter in ("labels", "node_selector"):
        for name, value in (getattr(job, parameter) or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                found.problem(f"{parameter}[{name!r}]", f"{value!r}: expected text, in quotes")
