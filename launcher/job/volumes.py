"""Volumes that a job's pods mount, as people describe them in Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.job.findings import Found
from launcher.job.spec import Json

_DRIVER = "cephfs.csi.ceph.com"
_SIZE = {"storage": "1Gi"}  # a claim must name one; CephFS as it is mounted here heeds none


@dataclass(frozen=True)
class Volume:
    """Any volume that Kubernetes knows: `source` as a pod's specification has it, as {"nfs": {"server": ...}}."""

    mount_path: str
    source: Mapping[str, Any]
    read_only: bool = False


@dataclass(frozen=True)
class ClaimVolume:
    """A PersistentVolumeClaim of the job's namespace."""

    mount_path: str
    claim_name: str
    read_only: bool = False


@dataclass(frozen=True)
class CephFSVolume:
    """A folder of CephFS, by its CSI driver: the job gets a volume and a claim of its own, which leave the data alone.

    Args:
        monitors_addr: The cluster's monitors, `host:port`, several of them separated by commas.
        user: Whose key the Secret has; the driver reads the name from there, too (`userID`).
        secret_name: A Secret of the job's namespace with `userID` and `userKey`.
        mount_path: Where the pods find it.
        path: The folder in CephFS.
    """

    monitors_addr: str
    user: str = "admin"
    secret_name: str = "cephfs-secret"
    mount_path: str = "/mnt/cephfs"
    path: str = "/"

    def objects(self, job: str, namespace: str) -> list[Json]:
        """Volume and claim, bound to each other. A volume belongs to no namespace, so its name has that of the job."""
        handle = f"{namespace}-{self.claim(job)}"
        shared: Json = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        driver = {
            "driver": _DRIVER,
            "volumeHandle": handle,
            "nodeStageSecretRef": {"name": self.secret_name, "namespace": namespace},
            # By these the driver takes a folder that exists, from these monitors, instead of making one.
            "volumeAttributes": {"monitors": self.monitors_addr, "provisionVolume": "false", "rootPath": self.path},
        }
        volume = shared | {
            "capacity": _SIZE,
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": self.claim(job)}
            | {"namespace": namespace},
            "csi": driver,
        }
        claim = shared | {"volumeName": handle, "resources": {"requests": _SIZE}}
        return [
            {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": handle}, "spec": volume},
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": self.claim(job), "namespace": namespace},
                "spec": claim,
            },
        ]

    @staticmethod
    def claim(job: str) -> str:
        """The name of the job's claim."""
        return f"{job}-cephfs"


AnyVolume = Volume | ClaimVolume | CephFSVolume


def check(volumes: tuple[tuple[str, AnyVolume], ...], found: Found) -> None:
    """Problems of the volumes, each with the parameter that it was given by."""
    seen: dict[str, str] = {}
    for path, volume in volumes:
        place = volume.mount_path
        if not place.startswith("/") or place.rstrip("/") == "":
            found.problem(f"{path}.mount_path", f"{place!r}: expected an absolute path below /")
        elif place.rstrip("/") in seen:
            found.problem(f"{path}.mount_path", f"{place!r}: {seen[place.rstrip('/')]} is mounted there, too")
        seen[place.rstrip("/")] = path
        if isinstance(volume, Volume) and len(volume.source) != 1:
            found.problem(
                f"{path}.source",
                f'{dict(volume.source)!r}: expected one kind of volume with its fields, as {{"nfs": {{...}}}}',
            )
        if isinstance(volume, ClaimVolume) and not volume.claim_name:
            found.problem(f"{path}.claim_name", "empty: expected the name of a PersistentVolumeClaim")
        if isinstance(volume, CephFSVolume):
            _check_cephfs(path, volume, found)


def _check_cephfs(path: str, volume: CephFSVolume, found: Found) -> None:
    monitors = volume.monitors_addr.split(",")
    if not all(monitor.strip() == monitor and monitor for monitor in monitors):
        found.problem(
            f"{path}.monitors_addr", f"{volume.monitors_addr!r}: expected host:port, several separated by commas only"
        )
    if not volume.secret_name:
        found.problem(f"{path}.secret_name", "empty: expected the name of a Secret with userID and userKey")
    if not volume.path.startswith("/"):
        found.problem(f"{path}.path", f"{volume.path!r}: expected an absolute path in CephFS")


def mounted(volumes: tuple[AnyVolume, ...], job: str) -> tuple[list[Json], list[Json]]:
    """`volumes` of a pod, and `volumeMounts` of its container."""
    made, mounts = [], []
    for number, volume in enumerate(volumes):
        name = f"volume-{number}"
        made.append({"name": name} | _source(volume, job))
        mount: Json = {"name": name, "mountPath": volume.mount_path}
        if not isinstance(volume, CephFSVolume) and volume.read_only:
            mount["readOnly"] = True
        mounts.append(mount)
    return made, mounts


def _source(volume: AnyVolume, job: str) -> Json:
    if isinstance(volume, Volume):
        return dict(volume.source)
    claim = volume.claim_name if isinstance(volume, ClaimVolume) else volume.claim(job)
    return {"persistentVolumeClaim": {"claimName": claim}}
