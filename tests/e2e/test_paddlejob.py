"""`PaddleJob(...)` on a real cluster: submitted from outside and from a pod, followed to its end, and deleted.

Real Paddle comes from this host, as for tests/e2e/test_paddle.py: E2E_PADDLE_2.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.job import Failure, PaddleJob, Volume
from tests.e2e.cluster import Cluster, kubectl, until
from tests.e2e.manifests import apply, packages_of, rendered
from tests.support.paths import K8S
from tests.support.rendering import ALL_PARAMETERS, SERVERS_AND_TRAINERS
from tests.wheels.outcome import PROGRAMS

EXAMPLE = K8S.parent / "examples" / "paddlejob"
LINES = 3000
WITHIN = 240  # seconds
SERVES = """
import os, socket
if os.environ['TRAINING_ROLE'] == 'PSERVER':
    listening = socket.create_server(('', int(os.environ['PADDLE_PORT'])))
"""


@pytest.fixture
def example(cluster: Cluster, tmp_path: Path) -> Path:
    """Copy the example to a folder that pods can read, for the image and the Paddle of this test."""
    folder = tmp_path / "example"
    folder.mkdir()
    for name in ("prepare.py", "train.py"):
        shutil.copy(EXAMPLE / name, folder)
    host = {"/example": folder, "/packages": packages_of("E2E_PADDLE_2")}
    volumes = ", ".join(f"Volume({path!r}, {{'hostPath': {{'path': {str(there)!r}}}}})" for path, there in host.items())
    text = (folder / "train.py").read_text()
    text = text.replace(
        '"your/runtime:1"', f"{cluster.image!r}, volumes=[{volumes}], env={{'PYTHONPATH': '/packages'}}"
    )
    text = text.replace("cpu_nums=1", f"cpu_nums=0.1, namespace={cluster.namespace!r}")
    (folder / "train.py").write_text(text.replace("import PaddleJob,", "import PaddleJob, Volume,"))
    subprocess.run([sys.executable, folder / "prepare.py"], check=True)
    subprocess.run(["chmod", "-R", "a+rwX", folder], check=True)
    return folder


def job(cluster: Cluster, program: str, **parameters: Any) -> PaddleJob:
    """Return a job that runs this program in the image of the tests."""
    given = {"pservers": 0, "trainers": 2, "cpu_nums": 0.1} | parameters
    command = ["python3", "-c", program]
    return PaddleJob(
        job_name="words", entry_point=command, runtime_image=cluster.image, namespace=cluster.namespace, **given
    )


def submit_outside(cluster: Cluster, example: Path) -> None:
    subprocess.run([sys.executable, example / "train.py"], check=True, timeout=WITHIN)


def submit_in_a_pod(cluster: Cluster, example: Path) -> None:
    """Submit as the service account of k8s/submitter, as `docker run IMAGE python3 /example/train.py` does."""
    apply(cluster, *rendered(K8S / "submitter", cluster))
    template = cluster.template("submit", "paddle-submitter")
    (container,) = template["spec"]["containers"]
    del container["command"]  # the entrypoint of the image is the launcher
    container |= {"args": ["python3", "/example/train.py"], "volumeMounts": [{"name": "e", "mountPath": "/example"}]}
    template["spec"] |= {
        "automountServiceAccountToken": True,
        "volumes": [{"name": "e", "hostPath": {"path": str(example)}}],
    }
    cluster.create(cluster.bare("submit", template))
    assert cluster.exit_code("submit") == 0, cluster.log("submit")


@pytest.mark.parametrize("submit", [submit_outside, submit_in_a_pod])
def test_the_same_file_submits_outside_and_trains_inside(cluster: Cluster, example: Path, submit: Any) -> None:
    submit(cluster, example)
    plane = PaddleJob(job_name="plane", entry_point="x", runtime_image="x", namespace=cluster.namespace)
    assert plane.wait(timeout=WITHIN) == 0
    seen, losses = 0, []
    for rank in range(3):
        passes = [line for line in plane.logs(rank) if line.startswith("Pass=")]
        assert len(passes) == 5
        seen += int(re.findall(r"samples=([0-9]+)", passes[-1])[0])
        losses.append(float(passes[-1].rpartition("=")[2]))
    assert seen == LINES, "each line in the share of one trainer"
    assert max(losses) < 0.1
    plane.delete()
    assert not cluster.pods("paddle-launcher/job=plane")
    for kind in ("jobs", "services", "secrets"):
        assert "plane" not in kubectl("-n", cluster.namespace, "get", kind, "-o", "name")


def test_a_trainer_that_exits_with_3_ends_the_job_with_3_and_is_named(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    program = "import os, sys, time\nif os.environ['TRAINER_ID'] == '1': sys.exit(3)\ntime.sleep(600)"
    fails = job(cluster, program, max_restarts=0)
    fails.submit()
    assert fails.wait(timeout=WITHIN) == 3
    assert "\nwords: exit code 3: rank 1 (words-trainer-1-" in capfd.readouterr().err
    state = fails.status()
    assert (state.phase, state.exit_code) == ("failed", 3)
    assert "rank 1 (words-trainer-1-" in state.cause


def test_a_failed_job_is_repaired_and_submitted_again_under_its_name(cluster: Cluster) -> None:
    """Repeat this several times: a node must not use its cached Secret of the old pods for the new pods."""
    for _ in range(2):
        fails = job(cluster, "import sys\nsys.exit(3)", trainers=4, max_restarts=0)
        fails.submit()
        assert fails.wait(timeout=WITHIN, quiet=True) == 3
        fails.delete()
        mended = job(cluster, "print('mended')", trainers=4, max_restarts=0)
        mended.submit()
        assert mended.wait(timeout=WITHIN, quiet=True) == 0
        mended.delete()


@pytest.mark.parametrize(("restarts", "code"), [(0, 3), (1, 71)])
def test_the_servers_fail_for_good_after_the_trainers_have_failed_for_good(
    cluster: Cluster, restarts: int, code: int
) -> None:
    """There is no volume and no RBAC permission, so only the gang itself can report the failure."""
    first = "'4' if os.environ['LAUNCHER_GENERATION'] == '0' else '3'"
    trainer = f"import os, sys\nif os.environ.get('TRAINER_ID') == '1': sys.exit(int({first if restarts else '3'}))"
    fails = job(cluster, f"{trainer}\nimport time\n{SERVES}\ntime.sleep(600)", pservers=1, max_restarts=restarts)
    fails.submit()
    assert fails.wait(timeout=WITHIN, quiet=True) == code
    state = fails.status()
    assert state.ended, "both Jobs"
    assert not [member for member in state.members if member.phase == "running"]


def test_a_job_with_the_same_failure_twice_is_given_up_and_its_cause_is_named(cluster: Cluster) -> None:
    fails = job(cluster, "import sys, time\ntime.sleep(1)\nsys.exit(3)")
    fails.submit()
    assert fails.wait(timeout=WITHIN, quiet=True) == 71
    assert "twice" in fails.status().cause


def test_the_log_of_a_job_can_be_followed_before_its_start_and_its_name_is_refused_again(cluster: Cluster) -> None:
    program = "import time\nfor number in range(100):\n print('line', number, flush=True)\n time.sleep(0.05)"
    follows = job(cluster, program)
    follows.submit()
    with pytest.raises(Failure, match="has a Job words-trainer already"):
        follows.submit()
    lines = list(follows.logs(1, follow=True))
    assert [line for line in lines if line.startswith("line ")] == [f"line {number}" for number in range(100)]
    assert follows.wait(timeout=WITHIN, quiet=True) == 0


def test_a_job_that_is_deleted_while_it_trains_ends_within_its_grace_period(cluster: Cluster) -> None:
    trains = job(cluster, "import time\ntime.sleep(600)", pservers=1, trainers=1)
    trains.submit()
    until(lambda: trains.status().phase == "running", lambda: str(trains.status()))
    began = time.monotonic()
    trains.delete()
    assert time.monotonic() - began < 30
    with pytest.raises(Failure, match="there is no such job"):
        trains.status()


def test_the_command_line_submits_a_paddle_job_and_ends_with_its_code(cluster: Cluster) -> None:
    text = (K8S.parent / "tests" / "paddlejobs" / "wide-and-deep.yaml").read_text()
    text = text.replace("an/image:1", cluster.image)
    command = [sys.executable, "-m", "launcher"]
    flags = [
        "--namespace",
        cluster.namespace,
        "--no-inject",
        "--entrypoint",
        f"python3 -c {shlex.quote(SERVERS_AND_TRAINERS)}",
        "-",
    ]
    done = subprocess.run(
        [*command, "submit", "--watch", *flags], input=text, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "wide-ande-deep: the job is complete"
    assert any(" trainer " in line and ": complete" in line for line in done.stderr.splitlines())
    shown = subprocess.run(
        [*command, "status", "--namespace", cluster.namespace, "wide-ande-deep"], capture_output=True, text=True
    )
    assert shown.stdout.startswith("wide-ande-deep: complete\n")


@pytest.mark.parametrize(("policy", "code"), [("OnCompletion", 0), ("OnCompletion", 78), ("OnFailure", 78)])
def test_submit_watch_deletes_a_job_as_its_policy_says(cluster: Cluster, policy: str, code: int) -> None:
    text = (K8S.parent / "tests" / "paddlejobs" / "wide-and-deep.yaml").read_text()
    text = text.replace("an/image:1", cluster.image).replace("cleanPodPolicy: Never", f"cleanPodPolicy: {policy}")
    job = yaml.safe_load(text)
    del job["spec"]["ps"], job["spec"]["withGloo"]
    (container,) = job["spec"]["worker"]["template"]["spec"]["containers"]
    container["command"] = ["true"]
    if code:
        container["env"] = [{"name": "CONF_PADDLE_NIC", "value": "no-such-device"}]  # fails for good
    command = [sys.executable, "-m", "launcher", "submit", "--watch", "-n", cluster.namespace, "--no-inject", "-"]
    given = yaml.safe_dump(job)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=WITHIN, check=False)
    assert done.returncode == code, done.stderr
    left = kubectl(
        "-n", cluster.namespace, "get", "jobs,pods,secrets,services", "-l", "paddle-launcher/job", "-o", "name"
    )
    assert bool(left) == ((policy, code) == ("OnCompletion", 78))


def test_every_field_that_a_parameter_becomes_is_valid_to_the_api_server(cluster: Cluster) -> None:
    objects = PaddleJob(**(ALL_PARAMETERS | {"namespace": cluster.namespace})).objects()
    listed = {"kind": "List", "apiVersion": "v1", "items": [made for made in objects if made["kind"] != "PodGroup"]}
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1}
    kubectl("apply", "-f", "-", given=priority)
    kubectl("-n", cluster.namespace, "apply", "--dry-run=server", "-f", "-", given=listed)


@pytest.mark.usefixtures("volcano")
def test_volcano_schedules_a_job_as_a_whole(cluster: Cluster) -> None:
    program = (PROGRAMS / "server_and_trainer.py").read_text()
    packages = Volume("/packages", {"hostPath": {"path": str(packages_of("E2E_PADDLE_2"))}})
    trains = job(
        cluster, program, pservers=1, gang_scheduling=True, volumes=[packages], env={"PYTHONPATH": "/packages"}
    )
    trains.submit()
    assert kubectl("-n", cluster.namespace, "get", "podgroup", "words", "-o", "jsonpath={.spec.minMember}") == "3"
    assert trains.wait(timeout=WITHIN, quiet=True) == 0
