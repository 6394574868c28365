"""The volumes of a PaddleJob in Python, and the pod volumes, claims and mounts that are made from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.job.findings import Findings
from launcher.job.spec import Json

_CEPHFS_DRIVER = "cephfs.csi.ceph.com"
_SIZE = {"storage": "1Gi"}  # a claim must have a size, but CephFS does not enforce it


@dataclass(frozen=True)
class Volume:
    """A volume of any kind that Kubernetes knows.

    Args:
        mount_path: The folder in the pods.
        source: The volume as in a pod spec, such as {"nfs": {"server": ..., "path": ...}}.
        read_only: Mount the volume read-only.
    """

    mount_path: str
    source: Mapping[str, Any]
    read_only: bool = False


@dataclass(frozen=True)
class ClaimVolume:
    """A PersistentVolumeClaim in the job's namespace."""

    mount_path: str
    claim_name: str
    read_only: bool = False


@dataclass(frozen=True)
class CephFSVolume:
    """A folder of CephFS, mounted by its CSI driver.

    The job gets its own PersistentVolume and claim. Both are deleted together with the job, but the data stays.

    Args:
        monitors_addr: The monitors of the Ceph cluster: `host:port`, several separated by commas.
        user: The Ceph user of the Secret's key. It has no effect: the driver takes the user from the Secret (`userID`).
        secret_name: A Secret with `userID` and `userKey` in the job's namespace.
        mount_path: The folder in the pods.
        path: The folder in CephFS.
    """

    monitors_addr: str
    user: str = "admin"
    secret_name: str = "cephfs-secret"
    mount_path: str = "/mnt/cephfs"
    path: str = "/"

    def objects(self, job: str, namespace: str) -> list[Json]:
        """Return a PersistentVolume and a claim that are bound to each other.

        A PersistentVolume has no namespace, so its name contains the namespace of the job.
        """
        name, claim_name = f"{namespace}-{self.claim(job)}", self.claim(job)
        shared: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        driver = {
            "driver": _CEPHFS_DRIVER,
            "volumeHandle": name,
            "nodeStageSecretRef": {"name": self.secret_name, "namespace": namespace},
            # With these attributes the driver mounts an existing folder and makes no new folder.
            "volumeAttributes": {"monitors": self.monitors_addr, "provisionVolume": "false", "rootPath": self.path},
        }
        volume = shared | {
            "capacity": _SIZE,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim_name}
            | {"namespace": namespace},
            "csi": driver,
        }
        claim = shared | {"volumeName": name, "resources": {"requests": _SIZE}}
        return [
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume},
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": claim_name, "namespace": namespace},
                "spec": claim,
            },
        ]

    @staticmethod
    def claim(job: str) -> str:
        """Return the name of the job's claim."""
        return f"{job}-cephfs"


AnyVolume = Volume | ClaimVolume | CephFSVolume


def check(volumes: tuple[tuple[str, AnyVolume], ...], findings: Findings) -> None:
    """Add the problems of the volumes. `volumes`: each volume with the name of its parameter."""
    mounted: dict[str, str] = {}
    for parameter, volume in volumes:
        folder = volume.mount_path.rstrip("/")
        if not folder.startswith("/"):
            findings.add_problem(
                f"{parameter}.mount_path", f"{volume.mount_path!r}: expected an absolute path other than /"
            )
        elif folder in mounted:
            findings.add_problem(
                f"{parameter}.mount_path", f"{volume.mount_path!r}: {mounted[folder]} is mounted there, too"
            )
        mounted[folder] = parameter
        if isinstance(volume, Volume) and len(volume.source) != 1:
            expected = 'expected one kind of volume with its fields, such as {"nfs": {...}}'
            findings.add_problem(f"{parameter}.source", f"{dict(volume.source)!r}: {expected}")
        if isinstance(volume, ClaimVolume) and not volume.claim_name:
            findings.add_problem(f"{parameter}.claim_name", "empty: expected the name of a PersistentVolumeClaim")
        if isinstance(volume, CephFSVolume):
            _check_cephfs(parameter, volume, findings)


def _check_cephfs(parameter: str, volume: CephFSVolume, findings: Findings) -> None:
    monitors = volume.monitors_addr.split(",")
    if not all(monitor.strip() == monitor and monitor for monitor in monitors):
        findings.add_problem(
            f"{parameter}.monitors_addr",
            f"{volume.monitors_addr!r}: expected host:port, several separated by commas without spaces",
        )
    if not volume.secret_name:
        findings.add_problem(f"{parameter}.secret_name", "empty: expected the name of a Secret with userID and userKey")
    if not volume.path.startswith("/"):
        findings.add_problem(f"{parameter}.path", f"{volume.path!r}: expected an absolute path in CephFS")


def pod_volumes(volumes: tuple[AnyVolume, ...], job: str) -> tuple[list[Json], list[Json]]:
    """Return the `volumes` of a pod, and the `volumeMounts` of its container."""
    sources, mounts = [], []
    for index, volume in enumerate(volumes):
        name = f"volume-{index}"
        sources.append({"name": name} | _source(volume, job))
        mount: Json = {"name": name, "mountPath": volume.mount_path}
        if not isinstance(volume, CephFSVolume) and volume.read_only:
            mount["readOnly"] = True
        mounts.append(mount)
    return sources, mounts


def _source(volume: AnyVolume, job: str) -> Json:
    if isinstance(volume, Volume):
        return dict(volume.source)
    claim = volume.claim_name if isinstance(volume, ClaimVolume) else volume.claim(job)
    return {"persistentVolumeClaim": {"claimName": claim}}
