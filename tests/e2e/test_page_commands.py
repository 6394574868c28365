"""The commands of README.md and docs/troubleshooting.md that need a cluster, as they are written there.

`docker` is a script, since a test has no registry: after the block that names images and namespace, both are those of
this test. $EDITOR writes a folder of this host into the volume's manifest. The reader's training program is one that
needs no Paddle; tests/e2e/test_paddle.py has Paddle.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import kubectl, until
from tests.e2e.manifests import claimed, passes
from tests.support.kubernetes_page import CAN_WRITE, names_for, sections
from tests.support.page_tests import run_by
from tests.support.pages import blocks_of
from tests.support.paths import MAKE_DATA, PADDLEJOBS, REPOSITORY
from tests.support.reader import DOCKER, Reader
from tests.support.rendering import SERVERS_AND_TRAINERS

MANIFESTS_2016 = Path(__file__).parent / "manifests_2016"
(INSTALL,) = (block for block in blocks_of("README.md") if block.heading == "Install")

# Reads its shard, waits while `hold` is on the volume, fails if `fail` is there, and saves the number of its samples.
TRAIN = """\
import os, sys, time
from pathlib import Path

volume = Path("/volume")
samples = (Path(os.environ["LAUNCHER_DATA_DIR"]) / "train.txt").read_text().splitlines()
print("trainer", os.environ["PADDLE_TRAINER_ID"], "has", len(samples), "samples", flush=True)
while (volume / "hold").exists():
    time.sleep(0.1)
if (volume / "fail").exists() and os.environ["PADDLE_TRAINER_ID"] == "1":
    sys.exit("no such column: price")
made = Path(os.environ["LAUNCHER_SAVE_DIR"]) / "pass-00000"
if os.environ["PADDLE_TRAINER_ID"] == "0":
    made.mkdir(parents=True, exist_ok=True)
    (made / "model").write_text(str(len(samples)))
    (made / "done").touch()
"""


@pytest.fixture
def namespace() -> Iterator[str]:
    """Yield a name for a namespace and a volume. Both are removed at the end, even after a failure."""
    name = f"launcher-{uuid.uuid4().hex[:8]}"
    yield name
    for kind in ("namespace", "pv"):
        kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    made.chmod(0o777)
    return made


@pytest.fixture
def reader(tmp_path: Path, namespace: str, volume: Path) -> Reader:
    """Return a reader with a clone of this repository, a cluster, an editor and docker, but without the launcher."""
    others = [place for place in os.environ["PATH"].split(os.pathsep) if not (Path(place) / "paddle-launcher").exists()]
    made = Reader(
        tmp_path,
        PATH=os.pathsep.join(others),
        KUBECONFIG=str(tmp_path / "kubeconfig"),
        EDITOR=f"cp {tmp_path / 'volume.yaml'}",
    )
    (tmp_path / "kubeconfig").write_text(kubectl("config", "view", "--raw", "--flatten"))
    (tmp_path / "volume.yaml").write_text(yaml.safe_dump_all(claimed(volume, namespace)))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and not name.startswith("tests/") and (REPOSITORY / name).exists():
            there = made.folder / "paddle-launcher" / name
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, there)
    made.stand_in("docker", DOCKER)
    return made


def images(reader: Reader) -> list[str]:
    """Return the images that docker was told to build, and check that all but bases were pushed."""
    calls = reader.calls_of("docker")
    built = [found[1] for call in calls if (found := re.match(r"build .*-t (\S+)", call))]
    assert [f"push {image}" for image in built if image.startswith("your/")] == [
        call for call in calls if call.startswith("push ")
    ]
    return built


def is_gone(namespace: str) -> bool:
    return not kubectl("get", "namespace,pv", f"--field-selector=metadata.name={namespace}", "-o", "name")


@pytest.mark.node_ports
@pytest.mark.timeout(900)
def test_the_path_for_2016_manifests(reader: Reader, namespace: str, volume: Path) -> None:
    for name in ("data", "job"):
        text = (MANIFESTS_2016 / f"{name}-004.yaml").read_text().replace("imagePullPolicy: Always", "")
        target = {"data": "paddle-data-job.yaml", "job": "paddle-cluster-job.yaml"}[name]
        (reader.folder / target).write_text("\n".join(line for line in text.splitlines() if line.strip()))
    for kind, made in zip(("pv", "pvc"), claimed(volume, namespace), strict=True):
        text = yaml.safe_dump(made).replace("name: paddle", "name: efsvol")
        (reader.folder / f"{kind}.yaml").write_text(text)
    install, build, *others, clean_up = run_by("test_the_path_for_2016_manifests")
    reader.follow_all([install, build])
    assert images(reader) == ["your/paddle-launcher:1", "your/paddle-data:1"]
    reader.bash(names_for(namespace)).check_returncode()
    reader.follow_all(others)
    (report,) = re.findall(r"`(kubectl exec paddle-shell -- [^`]*report[^`]*)`", (REPOSITORY / "README.md").read_text())
    reader.bash(" ".join(report.split())).check_returncode()
    reader.follow(clean_up)
    assert passes(volume / "paddle-cluster-job") == 10
    assert (reader.folder / "my" / "model" / "done").exists()
    assert is_gone(namespace)


def prepare_training(reader: Reader) -> None:
    """Put a training program and a data set into the reader's folder."""
    made = reader.folder / "made"
    subprocess.run([sys.executable, MAKE_DATA, made, "--examples=300", "--seed=1"], check=True)
    shutil.move(made / "data", reader.folder)
    (reader.folder / "program").mkdir()
    (reader.folder / "program" / "train.py").write_text(TRAIN)


@pytest.mark.timeout(900)
def test_the_path_for_a_training_program(reader: Reader, namespace: str, volume: Path) -> None:
    prepare_training(reader)
    volume.chmod(0o755)  # it belongs to root
    (let_write,) = sections()[CAN_WRITE]
    build, create, upload, *others = run_by("test_the_path_for_a_training_program")
    reader.follow_all([INSTALL, build])
    assert images(reader) == ["paddle:3.3.1", "your/paddle-launcher:1"]
    reader.bash(names_for(namespace)).check_returncode()
    reader.follow_all([create, let_write])
    (reader.folder / "program" / "train.py").write_text("raise SystemExit('an old program')")
    reader.follow(upload)
    (reader.folder / "program" / "train.py").write_text(TRAIN)
    reader.follow_all([upload, *others])
    assert not (reader.folder / "my" / "output" / ".launcher").exists()
    assert (reader.folder / "my" / "output" / "pass-00000" / "model").read_text() == "98"
    assert (reader.folder / "my" / "output" / "report.html").exists()
    assert is_gone(namespace)


@pytest.mark.timeout(900)
def test_the_path_for_a_paddlejob(reader: Reader, namespace: str, volume: Path) -> None:
    (volume / "train.py").write_text(SERVERS_AND_TRAINERS)
    job = yaml.safe_load((PADDLEJOBS / "wide-and-deep.yaml").read_text())
    for role in ("ps", "worker"):  # the example's image has the program in its working directory
        pod = job["spec"][role]["template"]["spec"]
        (container,) = pod["containers"]
        container |= {"image": os.environ["E2E_IMAGE"], "workingDir": "/wide_and_deep"}
        container["volumeMounts"] = [{"name": "program", "mountPath": "/wide_and_deep"}]
        pod["volumes"] = [{"name": "program", "hostPath": {"path": str(volume)}}]
    (reader.folder / "wide_and_deep.yaml").write_text(yaml.safe_dump(job))
    build, *others = run_by("test_the_path_for_a_paddlejob")
    reader.follow_all([INSTALL, build])
    assert images(reader) == ["your/inject:1"]
    inject = os.environ["E2E_INJECT_IMAGE"]
    reader.bash(f"export NAMESPACE={namespace} INJECT={inject}").check_returncode()
    _, look, _ = reader.follow_all(others)
    assert "trainer 1 reached 2" in look
    assert is_gone(namespace)


class Troubled:
    """The job `train` of the README, which waits or fails if a file on its volume says so."""

    def __init__(self, reader: Reader, namespace: str, volume: Path) -> None:
        self.reader = reader
        self._volume = volume
        prepare_training(reader)
        _, create, upload, describe, self._train, *_ = run_by("test_the_path_for_a_training_program")
        reader.follow(INSTALL)
        reader.bash(names_for(namespace)).check_returncode()
        reader.follow_all([create, upload, describe])

    def submit(self, *marks: str) -> None:
        """Start the job, and return when all trainers run: with `fail` they will fail, with `hold` they wait."""
        for name in marks:
            (self._volume / name).touch()
        self.reader.bash(self._train.commands.replace("submit --watch", "submit")).check_returncode()
        logs = [self._volume / "train" / "output" / f"node_{rank}" / "train.log" for rank in range(3)]
        until(lambda: all(log.exists() and "samples" in log.read_text() for log in logs), lambda: str(logs))

    def ends(self, condition: str) -> None:
        wait = f"kubectl wait --for=condition={condition} job/train-worker --timeout=200s"
        self.reader.bash(wait).check_returncode()


@pytest.fixture
def troubled(reader: Reader, namespace: str, volume: Path) -> Troubled:
    return Troubled(reader, namespace, volume)


@pytest.mark.timeout(900)
def test_troubleshooting_of_a_failed_job(troubled: Troubled) -> None:
    troubled.submit("fail")
    troubled.ends("failed")
    listed, messages, job, _ = troubled.reader.follow_all(run_by("test_troubleshooting_of_a_failed_job"))
    assert all("rank 1 (train-worker-1-" in text for text in (listed, messages))
    assert "no such column: price" in job
    assert "no such column: price" in (troubled.reader.folder / "report.html").read_text()


@pytest.mark.timeout(900)
def test_troubleshooting_of_a_running_job(troubled: Troubled) -> None:
    troubled.submit("hold")
    waits, _, hangs = troubled.reader.follow_all(run_by("test_troubleshooting_of_a_running_job"))
    assert "training starts" in waits
    assert "3 trainers in " in hangs
    assert "train.py:" in hangs


@pytest.mark.timeout(900)
def test_troubleshooting_of_a_complete_job(troubled: Troubled) -> None:
    troubled.submit()
    troubled.ends("complete")
    output, heads = troubled.reader.follow_all(run_by("test_troubleshooting_of_a_complete_job"))
    assert "pass-00000" in output
    assert heads.count("samples") == 3


@pytest.mark.timeout(900)
def test_the_report_is_copied_and_written(troubled: Troubled, volume: Path) -> None:
    troubled.submit()
    troubled.ends("complete")
    shutil.copytree(volume / "train", volume / "quick-start")
    troubled.reader.follow_all(run_by("test_the_report_is_copied_and_written"))
    assert "The job is complete" in (troubled.reader.folder / "quick-start.html").read_text()
