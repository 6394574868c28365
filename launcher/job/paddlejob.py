"""`PaddleJob(...)`: a job in Python, with the parameters of `paddle.job` and more: docs/paddlejob.md."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from launcher.errors import ConfigProblems, Exit, Failure
from launcher.job import from_python, parameters
from launcher.job.findings import Findings
from launcher.job.spec import JobSpec, Json
from launcher.job.volumes import AnyVolume, CephFSVolume
from launcher.model import TRAINER

if TYPE_CHECKING:
    from launcher.base.kube import KubeClient
    from launcher.job.state import JobState

T = TypeVar("T")

_SET_IN_JOBS = "LAUNCHER_GENERATION"  # a variable that the launcher sets for every program


@dataclass(frozen=True, kw_only=True)
class PaddleJob:
    """A training job: each role in pods of its own, or trainers alone with `pservers=0`.

    Raises launcher.job.ConfigProblems with all problems of the parameters, and with all problems that the launcher in
    the pods would report.

    Args:
        job_name: The job's name, unique in its namespace.
        entry_point: The command of all trainers and of all parameter servers: a command line, or a list of words.
        runtime_image: The image with Paddle, the training program and the launcher (docker/build_docker.sh).
        memory: Memory of each pod, such as "4G" or "512Mi". By default 1G is requested, and there is no limit.
        cpu_nums: CPUs of each pod. Also called cpu_num.
        pservers: The number of parameter servers; 0 for collective training.
        heters: The number of heter workers (docs/heter.md); such a job has servers, too, and a fixed size.
        trainers: The number of trainers. In an elastic job: the number at the start.
        elastic: The fewest and the most trainers of an elastic job, such as (2, 5) (docs/elastic.md). By default, the
            number of trainers is fixed.
        gpu_nums: GPUs of each trainer, or of each heter worker if there are any. Also called gpu_num.
        use_gpu: True means one GPU, unless gpu_nums is set.
        namespace: The job's namespace; by default the namespace that kubectl uses.
        trainer_package_path: The folder in the image in which the command runs.
        cephfs_volume: A folder of CephFS for all pods.
        volumes: Other volumes for all pods.
        env: Variables for the program and the launcher (docs/configuration.md); a mapping becomes `valueFrom`.
        node_selector: Labels that a node must have.
        tolerations: Taints that the pods tolerate, as in a pod spec.
        shared_memory: The size of /dev/shm, such as "2G".
        max_restarts: How many times the job restarts in the same pods before it fails.
        gang_scheduling: Let Volcano start all pods or none.
        queue: The queue of Volcano for gang scheduling.
        labels: Labels for all objects and pods of the job.
        priority: The pods' priority class.
        service_account: The pods' service account. The job needs no RBAC permissions.
        launcher_image: An image of docker/inject.Dockerfile, for a runtime_image without the launcher.
    """

    job_name: str
    entry_point: str | Sequence[str]
    runtime_image: str
    memory: str | None = None
    cpu_nums: float | None = None
    pservers: int = 2
    trainers: int = 3
    heters: int = 0
    elastic: tuple[int, int] | None = None
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
        findings = Findings()
        parameters.check(self, findings)
        _check_pods(parameters.without_problems(self, findings), findings)
        _raise_problems(findings)

    def to_yaml(self) -> str:
        """Return the manifests for `kubectl apply -f -`."""
        from launcher.job.yaml_io import dump

        return "---\n".join(map(dump, self.objects()))

    def objects(self, namespace: str | None = None) -> list[Json]:
        """Return the Kubernetes objects of the job. Each call makes a new secret for the gang."""
        from launcher.job.manifests import objects

        return objects(self.spec(namespace))

    def spec(self, namespace: str | None = None) -> JobSpec:
        """Return the checked JobSpec, from which the Kubernetes objects are made.

        namespace: used if the parameter `namespace` of the job is None

        Raises ConfigProblems if the namespace is missing.
        """
        from launcher.job.preflight import check_pods

        job_spec = from_python.to_job_spec(self, self.namespace or namespace)
        findings = Findings()
        if self.cephfs_volume and not job_spec.namespace:
            findings.add_problem(
                "namespace",
                "missing: expected the namespace, since the volume for cephfs_volume has the namespace in its name",
            )
        check_pods(job_spec, findings, lambda role_spec: "")
        _raise_problems(findings)
        for note in findings.notes:
            warnings.warn(f"{self.job_name}: {note}", stacklevel=4)
        return job_spec

    def submit(self) -> None:
        """Create the job in the cluster: all of its objects, or none. Raises Failure."""
        from launcher.job.submit import create

        if inside_a_job():
            raise Failure(
                Exit.USAGE,
                f"{self.job_name}: this process already runs inside a job: submit from outside "
                "(launcher.job.dist_train submits outside a job and trains inside)",
            )
        client = self._client()
        create(client, self.spec(client.namespace))

    def status(self) -> JobState:
        """Return the state of the job in the cluster. Raises Failure."""
        from launcher.job.lookup import read_state

        return read_state(self._client(), self.job_name)

    def wait(self, timeout: float | None = None, *, quiet: bool = False) -> int:
        """Wait until the job ends. Unless `quiet` is true, show the job's members on standard error.

        Returns 0, or the exit code of the first cause. Raises Failure after `timeout` seconds; the job then continues.
        """
        from launcher.job.watch import wait

        return wait(self._client(), self.job_name, timeout=timeout, quiet=quiet)

    def logs(self, rank: int = 0, *, role: str = TRAINER, follow: bool = False) -> Iterator[str]:
        """Yield the log of a trainer, of a server (role="pserver") or of a heter worker (role="heter"), line by line.

        If `follow` is true, wait until the container has started, and yield new lines until the container ends.
        """
        from launcher.job.logs import read_log

        return read_log(self._client(), self.job_name, rank, role=role, follow=follow)

    def why(self) -> str:
        """Return where the processes of the running job are, or what it waits for. Needs kubectl. Raises Failure."""
        from launcher.job.why import explain

        return explain(self._client(), self.job_name)

    def scale(self, trainers: int) -> str:
        """Change the number of trainers of an elastic job, and return what will happen. Raises Failure."""
        from launcher.job.scale import scale

        return scale(self._client(), self.job_name, trainers)

    def delete(self) -> None:
        """Delete the job with all its objects, and wait until its pods are gone. Data on volumes stays."""
        from launcher.job.submit import delete

        delete(self._client(), self.job_name)

    def _client(self) -> KubeClient:
        from launcher.job.access import connect

        return connect(self.namespace)


def inside_a_job() -> bool:
    """Return whether the launcher has started this process."""
    return _SET_IN_JOBS in os.environ


def dist_train(trainer: Callable[[], T], paddle_job: PaddleJob) -> T | None:
    """Call `trainer` if this process runs inside a job. Otherwise submit the job. So one file can submit and train.

    Parameter servers and heter workers call `trainer`, too.
    """
    if inside_a_job():
        return trainer()
    paddle_job.submit()
    return None


def _check_pods(job: PaddleJob, findings: Findings) -> None:
    """Add the problems that the launcher in the pods would report. Notes are for `spec`."""
    from launcher.job.preflight import check_pods

    found = Findings()
    check_pods(from_python.to_job_spec(job, job.namespace), found, lambda role_spec: "")
    for problem in found.problems:
        findings.add_problem(problem.path, problem.reason)


def _raise_problems(findings: Findings) -> None:
    if findings.problems:
        raise ConfigProblems([str(problem) for problem in findings.problems])
