"""A training Job of real pods, seen from its pods and from the volume, which this host shares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import SIZE, Cluster, Json, kubectl, until
from tests.support.paths import K8S

PASSES = 5
_IN_PODS = "/home/jobpath"
Change = Callable[[Json], None]


class Training:
    """A Job of three pods, and its folder on the volume, which this host shares."""

    def __init__(self, cluster: Cluster, name: str, volume: Path) -> None:
        self.cluster = cluster
        self.name = name
        self.volume = volume
        self.output = volume / name / "output"

    def submit(
        self,
        *flags: str,
        mode: str = "NonIndexed",
        change: Change | None = None,
        hold_before: int | None = None,
        **variables: str,
    ) -> Training:
        """Create the Job, after `change` has edited the object.

        Trainers wait before the pass `hold_before`, counted from 0, until `let_go`.
        """
        if hold_before is not None:
            variables |= {"STANDIN_GATES": self.hold(hold_before)}
        job = self.cluster.job(self.name, self._template(flags, variables), mode)
        if change is not None:
            change(job)
        self.cluster.create(job)
        return self

    def hold(self, number: int) -> str:
        """Close the gate before this pass, and return the value of STANDIN_GATES in the pods."""
        gates = self.volume / self.name / "gates"
        gates.mkdir(exist_ok=True)
        (gates / f"pass-{number}").touch()
        return f"{_IN_PODS}/{self.name}/gates"

    def let_go(self) -> None:
        """Open the gate at which trainers wait."""
        for gate in (self.volume / self.name / "gates").iterdir():
            gate.unlink()

    def status(self) -> list[Json]:
        """Return the status of each member from the volume."""
        found = []
        for rank in range(SIZE):
            try:
                found.append(json.loads((self.output / f"node_{rank}" / "status.json").read_text()))
            except FileNotFoundError:
                found.append({})
        return found

    def until_training(self) -> list[Json]:
        def all_train() -> bool:
            logs = [self.output / f"node_{rank}" / "train.log" for rank in range(SIZE)]
            return all(log.exists() and b"Batch=" in log.read_bytes() for log in logs)

        until(all_train, self.logs)
        return self.status()

    def until_saved(self, number: int) -> list[Json]:
        until(lambda: (self.output / f"pass-{number:05d}" / "done").exists(), self.logs)
        return self.status()

    def until_ended(self) -> list[Json]:
        until(lambda: all(member.get("exit_code") is not None for member in self.status()), self.logs)
        return self.status()

    def pods(self) -> list[Json]:
        return self.cluster.pods(f"job-name={self.name}")

    def logs(self) -> str:
        return self.cluster.logs(f"job-name={self.name}")

    def until_failed(self) -> str:
        """Return the reason of the condition."""
        return self.cluster.until_failed(self.name)

    def until_complete(self) -> None:
        """Wait until the Job is complete and the volume has a model."""
        self.cluster.until_complete(self.name)
        assert self.passes_done()

    def until_failed_once(self) -> None:
        """Wait until the volume has the cause that ended the first generation."""
        until(lambda: self.job_file()["generations"][0].get("first_cause"), self.logs)

    def until_complete_after(self, *kinds: str) -> None:
        """Check that the job is complete with all PASSES, after generations that ended with causes of these kinds."""
        self.until_complete()
        assert self.exits() == [0] * SIZE
        assert self.passes_done() == PASSES
        *ended, last = self.job_file()["generations"]
        assert [one["first_cause"]["kind"] for one in ended] == list(kinds)
        assert last["after_pass"] >= 1

    def execute(self, rank: int, *command: str) -> None:
        """Run a command in the pod of this rank."""
        kubectl("-n", self.cluster.namespace, "exec", self.status()[rank]["pod"], "-c", "trainer", "--", *command)

    def exits(self) -> list[int]:
        """Return the exit codes in rank order from the volume, as soon as all members have one."""
        return [member["exit_code"] for member in self.until_ended()]

    def ends(self) -> dict[str, Json]:
        """Return the ends of the launchers' containers by pod, as `kubectl describe pod` shows them."""
        ended = {}
        for pod in self.pods():
            (container,) = pod["status"].get("containerStatuses") or [{}]
            if "terminated" in container.get("state", {}) and "deletionTimestamp" not in pod["metadata"]:
                ended[pod["metadata"]["name"]] = container["state"]["terminated"]
        return ended

    def passes_done(self) -> int:
        return len(list(self.output.glob("pass-*/done")))

    def job_file(self) -> Json:
        """output/job.json."""
        found: Json = json.loads((self.output / "job.json").read_text())
        return found

    def told(self, rank: int) -> str:
        """Return why the generations of this rank began, from the marks in its log."""
        log = (self.output / f"node_{rank}" / "train.log").read_text()
        return "\n".join(line for line in log.splitlines() if line.startswith("==== ") and ", because " in line)

    def bare(self, name: str, *flags: str, **variables: str) -> Json:
        """Return a pod of a member without a Job, with the label of the job's name."""
        labels = {"metadata": {"labels": {"app": self.name}}}
        return self.cluster.bare(name, labels | self._template(flags, variables))

    def _template(self, flags: tuple[str, ...], variables: dict[str, str]) -> Json:
        environment = {
            "JOB_NAME": self.name,
            "JOB_PATH": _IN_PODS,
            "JOB_NAMESPACE": self.cluster.namespace,
            "TRAIN_CONFIG_DIR": "quick_start",
            "CONF_PADDLE_NIC": "eth0",
            "CONF_PADDLE_PORT": "7164",
            "CONF_PADDLE_PORTS_NUM": "2",
            "CONF_PADDLE_PORTS_NUM_SPARSE": "2",
            "CONF_PADDLE_GRADIENT_NUM": str(SIZE),
            "LAUNCHER_WORKDIR": "/root",
            "STANDIN_ON_PEER_DEATH": "hang",
        }
        container: dict[str, Any] = {
            "name": "trainer",
            "image": self.cluster.image,
            "command": ["paddle-launcher", "run", "--config=trainer_config.lr.py", "--log_period=1", *flags],
            "env": [{"name": key, "value": value} for key, value in (environment | variables).items()],
            "volumeMounts": [{"name": "jobpath", "mountPath": _IN_PODS}],
        }
        return {
            "spec": {
                "serviceAccountName": "member",
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [{"name": "jobpath", "hostPath": {"path": str(self.volume)}}],
            }
        }


def ignore_consequences(job: Json) -> None:
    """Set the policy of our Indexed Job. Its backoffLimit stays 0, so each failure that counts fails the Job."""
    ours = yaml.safe_load((K8S / "job-indexed" / "job.yaml").read_text())
    job["spec"]["podFailurePolicy"] = ours["spec"]["podFailurePolicy"]
