"""`PaddleJob(...)`: a job in Python, with the parameters of `paddle.job`. What each becomes: docs/paddlejob.md."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from launcher.errors import ConfigProblems, Exit, Failure
from launcher.job import from_python, parameters
from launcher.job.findings import Found
from launcher.job.spec import JobSpec, Json
from launcher.job.volumes import AnyVolume, CephFSVolume
from launcher.model import TRAINER

if TYPE_CHECKING:
    from launcher.job.access import Access
    from launcher.job.state import JobState

T = TypeVar("T")

_INSIDE = "LAUNCHER_GENERATION"  # which the launcher tells every program that it starts


@dataclass(frozen=True, kw_only=True)
class PaddleJob:
    """A training job: parameter servers and trainers in pods of their own, or trainers alone with `pservers=0`.

    Everything that is wrong is told at once, as launcher.job.ConfigProblems, before anything is created.

    Args:
        job_name: The job's name, which nothing else in the namespace has.
        entry_point: The command that trains, and serves where there are servers: a command line, or its words.
        runtime_image: The image with Paddle, the training program and the launcher (docker/build_docker.sh).
        memory: Memory of each pod, as "4G" or "512Mi"; without it 1G is asked for, and there is no limit.
        cpu_nums: CPUs of each pod. Also called cpu_num.
        pservers: How many pods serve parameters; 0 for collective training.
        trainers: How many pods train.
        gpu_nums: GPUs of each pod that trains. Also called gpu_num.
        use_gpu: True stands for one GPU where gpu_nums is not given.
        namespace: Where the job lives; by default the one that kubectl would take.
        trainer_package_path: Where the program is in the image: the command runs there.
        cephfs_volume: A folder of CephFS for all pods.
        volumes: Other volumes for all pods.
        env: Variables for the program and the launcher (docs/configuration.md); a mapping stands for a `valueFrom`.
        node_selector: Labels that a node must have.
        tolerations: Taints that the pods tolerate, as in a pod's specification.
        shared_memory: How large /dev/shm is, as "2G".
        max_restarts: How often the job starts again in the same pods before it fails.
        gang_scheduling: All pods are scheduled, or none is: by Volcano.
        queue: Volcano's queue for that.
        labels: Labels on everything that the job is made of.
        priority: The pods' priority class.
        service_account: The pods' service account; they need no rights.
        launcher_image: An image of docker/inject.Dockerfile that brings the launcher to a runtime_image without it.
    """

    job_name: str
    entry_point: str | Sequence[str]
    runtime_image: str
    memory: str | None = None
    cpu_nums: float | None = None
    pservers: int = 2
    trainers: int = 3
    gpu_nums: int | None = None
    namespace: str | None = None
    trainer_package_path: str | None = None
    cephfs_volume: CephFSVolume | None = None
    volumes: Sequence[AnyVolume] = ()
    env: Mapping[str, object] | None = None
    node_selector: Mapping[str, str] | None = None
    tolerations: Sequence[Mapping[str, Any]] = ()
    shared_memory: str | None = None
    max_restarts: int = 3
    gang_scheduling: bool = False
    queue: str | None = None
    labels: Mapping[str, str] | None = None
    priority: str | None = None
    service_account: str | None = None
    launcher_image: str | None = None
    use_gpu: bool | None = None
    cpu_num: float | None = None
    gpu_num: int | None = None

    def __post_init__(self) -> None:
        found = Found()
        parameters.check(self, found)
        _raise(found)

    def to_yaml(self) -> str:
        """Plain manifests, for `kubectl apply -f -`."""
        from launcher.job.yaml_io import written

        return "---\n".join(map(written, self.objects()))

    def objects(self, namespace: str | None = None) -> list[Json]:
        """What the job is made of, as Kubernetes takes it; the gang's secret in it is another one each time."""
        from launcher.job.manifests import objects

        return objects(self.gang(namespace))

    def gang(self, namespace: str | None = None) -> JobSpec:
        """The same before it is Kubernetes' objects, checked as the launcher in the pods will check it."""
        from launcher.job.preflight import rehearse_all

        described = from_python.job_spec(self, self.namespace or namespace)
        found = Found()
        if self.cephfs_volume and not described.namespace:
            found.problem("namespace", "missing: with cephfs_volume there is a volume that has its name in it")
        rehearse_all(described, found, lambda role: "")
        _raise(found)
        for note in found.notes:
            warnings.warn(f"{self.job_name}: {note}", stacklevel=4)
        return described

    def submit(self) -> None:
        """Create the job, all of it or nothing."""
        from launcher.job.submit import create

        if inside_a_job():
            raise Failure(
                Exit.USAGE,
                f"{self.job_name}: this process belongs to a job already: submit from outside, and train here "
                "(launcher.job.dist_train does both)",
            )
        access = self._access()
        create(access, self.gang(access.namespace))

    def status(self) -> JobState:
        """How the job is, as the cluster knows it."""
        from launcher.job.state import look

        return look(self._access(), self.job_name)

    def wait(self, timeout: float | None = None, *, quiet: bool = False) -> int:
        """Wait for the job's end, and show how each pod is doing: 0, or the exit code of the first cause.

        After `timeout` seconds a Failure says what is waited for; the job goes on.
        """
        from launcher.job.watch import wait

        return wait(self._access(), self.job_name, timeout=timeout, quiet=quiet)

    def logs(self, rank: int = 0, *, role: str = TRAINER, follow: bool = False) -> Iterator[str]:
        """Lines of one pod: of the trainer of this rank, or with role="pserver" of a server.

        With `follow` until its container has ended.
        """
        from launcher.job.logs import lines

        return lines(self._access(), self.job_name, rank, role=role, follow=follow)

    def delete(self) -> None:
        """Delete the job with all that belongs to it, and wait until its pods are gone. Data on volumes stays."""
        from launcher.job.submit import delete

        delete(self._access(), self.job_name)

    def _access(self) -> Access:
        from launcher.job.access import Access

        return Access(self.namespace)


def inside_a_job() -> bool:
    """Whether the launcher has started this process, as a trainer or a server."""
    return _INSIDE in os.environ


def dist_train(trainer: Callable[[], T], paddle_job: PaddleJob) -> T | None:
    """The same file outside and inside: submits the job, or is a part of it and trains, which servers call it, too."""
    if inside_a_job():
        return trainer()
    paddle_job.submit()
    return None


def _raise(found: Found) -> None:
    if found.problems:
        raise ConfigProblems([str(note) for note in found.problems])
