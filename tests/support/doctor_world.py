"""A job that `doctor` examines: its manifests, its volume, and a fake cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.support.doctor import Kubelet, doctor, manifests, program, set_variable, workload_of, write
from tests.support.fake_cluster import FakeCluster, Json


class World:
    """A good job on a volume, in a cluster with its claim. Tests break one thing."""

    def __init__(self, cluster: FakeCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.programs = folder / "programs"
        self.programs.mkdir()
        os.symlink(os.path.realpath(sys.executable), self.programs / "python3")
        program(self.programs, "paddle-launcher", "echo 0.1.0")
        program(self.programs, "paddle", "echo PaddlePaddle 0.9.0")
        self.kubelet = Kubelet(cluster, self.programs)
        self.kubelet.inside["dns"] = False
        self.volume = folder / "volume"
        self.objects: list[Json] = []
        status = {"phase": "Bound", "accessModes": ["ReadWriteMany"]}
        cluster.put("persistentvolumeclaims", {"metadata": {"name": "paddle"}, "spec": {}, "status": status})

    @property
    def job(self) -> Path:
        return self.volume / str(workload_of(self.objects)["metadata"]["name"])

    def use(self, name: str) -> list[Json]:
        self.objects = manifests(name)
        shards = 1 if name == "single" else 3
        for number in range(shards):
            self.shard(number)
        (self.job / "quick_start").mkdir()
        (self.job / "quick_start" / "trainer_config.lr.py").write_text("x")
        set_variable(self.objects, "JOB_PATH", str(self.volume))
        set_variable(self.objects, "LAUNCHER_WORKDIR", str(self.folder))
        set_variable(self.objects, "CONF_PADDLE_NIC", "lo")
        return self.objects

    def shard(self, number: int) -> Path:
        (self.job / str(number) / "data").mkdir(parents=True)
        (self.job / str(number) / "data" / "train.txt").write_text("1,2\n")
        return self.job / str(number) / "data"

    def doctor(self, *arguments: str, code: int = 0) -> dict[str, Json]:
        return doctor(write(self.folder, self.objects), *arguments, code=code)

    def wrong(self, name: str) -> tuple[str, str]:
        """Return what is wrong with this name, and what mends it. Nothing else may be wrong."""
        found = self.doctor(code=78)
        assert [each["name"] for each in found.values() if each["state"] == "wrong"] == [name], found
        return found[name]["what"], "\n".join(found[name]["mend"])
