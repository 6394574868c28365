"""`paddle-launcher doctor` on a real cluster: a good job, each broken one, and the commands that mend them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.job.spec import DOCTOR_LABEL
from tests.e2e.cluster import Cluster, Json, kubectl, until
from tests.e2e.manifests import apply, packages_of, pod_security, rendered
from tests.e2e.pods import MISSING_IMAGE
from tests.e2e.seats import nodes
from tests.support.paths import K8S, PADDLEJOBS

JOBS = {"job": "paddle-cluster-job", "job-indexed": "paddle-indexed-job", "statefulset": "paddle-set"}
SHELL = "paddle-shell"


class Patient:
    """A job in a file, with its claim and its shards. Tests break one thing, and run what mends it."""

    def __init__(self, cluster: Cluster, volume: Path, folder: Path) -> None:
        self.cluster, self.volume, self.folder = cluster, volume, folder
        self.objects: list[Json] = []
        self.job = volume

    def use(self, name: str) -> list[Json]:
        self.objects = rendered(K8S / name, self.cluster)
        self.job = self.volume / JOBS[name]
        if not self.job.exists():
            (self.volume / "quick-start").rename(self.job)
        return self.objects

    @property
    def workload(self) -> Json:
        return next(each for each in self.objects if each["kind"] in ("Job", "StatefulSet"))

    @property
    def pod(self) -> Json:
        found: Json = self.workload["spec"]["template"]["spec"]
        return found

    @property
    def container(self) -> Json:
        found: Json = self.pod["containers"][0]
        return found

    def write(self, *kinds: str) -> str:
        """Write the file: all objects, or only those of these kinds."""
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump_all(each for each in self.objects if not kinds or each["kind"] in kinds))
        return str(path)

    def doctor(self, *words: str, code: int = 0, **environment: str) -> dict[str, Json]:
        done = self.run(*words, **environment)
        assert done.returncode == code, done.stdout + done.stderr
        assert not doctors(self.cluster), "the pod and its Job are gone"
        found = json.loads(done.stdout)["checks"]
        return {check["name"]: check for check in sorted(found, key=lambda check: check["state"] != "ok")}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "launcher", "doctor", "-o", "json", "-n", self.cluster.namespace, *words]
        return subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=400, check=False
        )

    def wrong(self, check: str, *words: str) -> Json:
        """Return the only check that is wrong."""
        found = self.doctor(*(words or (self.write(),)), code=78)
        assert [each["name"] for each in found.values() if each["state"] == "wrong"] == [check], found
        return found[check]

    def shell(self, command: str) -> None:
        """Run a command as the user does, in the folder of the file."""
        done = subprocess.run(["bash", "-c", command], cwd=self.folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def doctors(cluster: Cluster) -> list[str]:
    """Return the Jobs and pods of `doctor` that are left."""
    return kubectl("-n", cluster.namespace, "get", "jobs,pods", "-l", DOCTOR_LABEL, "-o", "name").split()


@pytest.fixture
def patient(cluster: Cluster, claim: Path, tmp_path: Path) -> Patient:
    return Patient(cluster, claim, tmp_path)


@pytest.mark.parametrize("name", JOBS)
def test_a_good_job_is_good_before_its_objects_exist_and_after(patient: Patient, name: str) -> None:
    patient.use(name)
    file = patient.write()
    before = patient.doctor(file)
    assert {check["state"] for check in before.values()} == {"ok"}, before
    patient.cluster.create(*[each for each in patient.objects if each is not patient.workload])
    after = patient.doctor(file)
    assert {check["state"] for check in after.values()} == {"ok"}, after
    if name == "job":
        assert after["rights"]["what"] == "service account paddle-launcher may list, watch and get pods"
    if name == "job-indexed":
        assert after["names"]["what"] == "the pod's own name in Service paddle resolves"


def test_a_paddlejob_is_good_with_an_injected_launcher_in_an_image_without_python(patient: Patient) -> None:
    job = yaml.safe_load((PADDLEJOBS / "wide-and-deep.yaml").read_text())
    for role in ("ps", "worker"):
        (container,) = job["spec"][role]["template"]["spec"]["containers"]
        container |= {"image": os.environ["E2E_BARE_IMAGE"], "command": ["python3", "train.py"]}
        container["securityContext"] = {"runAsUser": 10001, "runAsNonRoot": True}
    (patient.folder / "paddlejob.yaml").write_text(yaml.safe_dump(job))
    image = os.environ["E2E_INJECT_IMAGE"]
    found = patient.doctor("--launcher-image", image, str(patient.folder / "paddlejob.yaml"), code=78)
    assert found["launcher"]["what"].endswith(" at /launcher/paddle-launcher")
    wrong = [name for name, check in found.items() if check["state"] == "wrong"]
    assert wrong == ["python"], found


def test_a_missing_service_is_made_by_the_command(patient: Patient) -> None:
    patient.use("job-indexed")
    file = patient.write("Job", "ServiceAccount")
    (command,) = patient.wrong("service", file)["mend"]
    patient.shell(command)
    assert patient.doctor(file)["names"]["what"] == "the pod's own name in Service paddle resolves"


@pytest.mark.parametrize(
    "spec",
    [
        {"clusterIP": "None", "selector": {"app": "other"}, "publishNotReadyAddresses": True},
        {"clusterIP": "None", "selector": {"app.kubernetes.io/managed-by": "paddle-launcher"}},
        {"selector": {"app.kubernetes.io/managed-by": "paddle-launcher"}, "ports": [{"port": 80}]},
    ],
    ids=["selects others", "hides pods that are not ready", "has an address"],
)
def test_a_wrong_service_is_changed_by_the_command(patient: Patient, spec: Json) -> None:
    patient.use("job-indexed")
    apply(patient.cluster, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "paddle"}, "spec": spec})
    file = patient.write("Job", "ServiceAccount")
    (command,) = patient.wrong("service", file)["mend"]
    patient.shell(command)
    patient.doctor(file)


def test_a_missing_right_is_granted_by_the_commands(patient: Patient) -> None:
    patient.use("job")
    apply(patient.cluster, *[each for each in patient.objects if each["kind"] == "ServiceAccount"])
    file = patient.write("Job")
    found = patient.wrong("rights", file)
    assert found["what"].startswith("service account paddle-launcher may not list, watch, get pods")
    for command in found["mend"]:
        patient.shell(command)
    assert patient.doctor(file)["rights"]["state"] == "ok"


def test_a_missing_service_account_is_made_by_the_command(patient: Patient) -> None:
    patient.use("job-indexed")
    file = patient.write("Job", "Service")
    (command,) = patient.wrong("objects", file)["mend"]
    patient.shell(command)
    patient.doctor(file)


def test_a_volume_of_root_is_given_to_the_pods_user_by_the_command(patient: Patient) -> None:
    patient.use("job-indexed")
    subprocess.run(["chmod", "-R", "go-w", patient.volume], check=True)
    file = patient.write()
    found = patient.wrong("volume", file)
    assert "cannot be written by the pods' user 10001:" in found["what"]
    pod_security(patient.cluster, "privileged")  # the pod of the command is root
    patient.shell(found["mend"][0])
    patient.doctor(file)


def test_too_few_shards_are_made_by_the_command(patient: Patient) -> None:
    patient.use("job-indexed")
    (patient.job / "2").rename(patient.volume / "elsewhere")
    file = patient.write()
    found = patient.wrong("data", file)
    assert found["what"].startswith("2 shards for 3 trainers: 2 of ")
    apply(patient.cluster, *rendered(K8S / "shell", patient.cluster))
    kubectl("-n", patient.cluster.namespace, "wait", "--for=condition=ready", f"pod/{SHELL}", "--timeout=50s")
    whole = patient.volume / "whole"
    (patient.volume / "elsewhere" / "data").rename(whole)  # any data set does
    command = found["mend"][0].replace("--data DATA", "--data /home/jobpath/whole")
    (patient.job / "0").rename(patient.volume / "old-0")
    (patient.job / "1").rename(patient.volume / "old-1")
    patient.shell(command)
    assert patient.doctor(file)["data"]["what"].startswith("3 shards for 3 trainers")


def test_shards_for_more_trainers_are_named(patient: Patient) -> None:
    patient.use("job-indexed")
    patient.workload["spec"] |= {"parallelism": 1, "completions": 1}
    (entry,) = [each for each in patient.container["env"] if each["name"] == "CONF_PADDLE_GRADIENT_NUM"]
    entry["value"] = "1"
    assert patient.wrong("data")["what"].startswith("3 shards for 1 trainer: 1, 2 of ")


def test_a_wrong_device_is_replaced_by_the_command(patient: Patient) -> None:
    patient.use("job-indexed")
    (entry,) = [each for each in patient.container["env"] if each["name"] == "CONF_PADDLE_NIC"]
    entry["value"] = "eth7"
    apply(patient.cluster, *[each for each in patient.objects if each["kind"] in ("Service", "ServiceAccount")])
    (command,) = patient.wrong("device", patient.write("Job"))["mend"]
    patient.shell(command)
    patient.doctor(str(patient.folder / "mended.yaml"))


def test_a_number_of_pods_that_does_not_fit_is_scaled_by_the_command(patient: Patient) -> None:
    patient.use("statefulset")
    patient.workload["spec"] |= {"replicas": 0}
    apply(patient.cluster, *patient.objects)
    (command,) = patient.wrong("pods", "--no-pod", "paddle-set")["mend"]
    patient.shell(command)
    assert patient.doctor("--no-pod", "paddle-set")["pods"]["state"] == "ok"


def without_security(patient: Patient) -> None:
    patient.pod["securityContext"].pop("seccompProfile")
    patient.container["securityContext"].pop("allowPrivilegeEscalation")


def with_image(name: str) -> Callable[[Patient], None]:
    return lambda patient: patient.container.update(image=os.environ.get(name, name))


def with_program(*words: str) -> Callable[[Patient], None]:
    return lambda patient: patient.container.update(args=["run", "--", *words])


def in_pod(**fields: Any) -> Callable[[Patient], None]:
    return lambda patient: patient.pod.update(fields)


def without_claim(patient: Patient) -> None:
    kubectl("-n", patient.cluster.namespace, "delete", "pvc", "paddle")


def asks_kueue(patient: Patient) -> None:
    patient.workload["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}


def with_limits(patient: Patient) -> None:
    patient.container["resources"] = {"requests": {"cpu": "5000"}}


def wrong_policy(patient: Patient) -> None:
    patient.workload["spec"]["podFailurePolicy"]["rules"].pop(0)


@pytest.mark.parametrize(
    ("check", "broken", "says", "mends"),
    [
        ("image", with_image(MISSING_IMAGE), "cannot be pulled", f"docker push {MISSING_IMAGE}"),
        ("launcher", with_image("E2E_BARE_IMAGE"), "the image has no python3 in its PATH", "docker build -f docker/D"),
        ("python", with_program("python3.9", "train.py"), "the image has no python3.9", "name after --"),
        ("paddle", with_program("python3", "train.py"), "`import paddle` fails: ModuleNotFound", "pip install paddle"),
        ("pod", without_security, 'violates PodSecurity "restricted', "pod-security.kubernetes.io/enforce=baseline"),
        ("pod", in_pod(nodeSelector={"example.test/none": "1"}), "no node takes the pod", "kubectl label node NODE"),
        ("pod", with_limits, "no node takes the pod", "kubectl describe nodes"),
        ("claim", without_claim, "claim paddle does not exist", "PersistentVolumeClaim"),
        ("queue", asks_kueue, "the cluster has no Kueue", "helm install kueue"),
        ("policy", wrong_policy, "podFailurePolicy has no FailJob for 64, 66, 71, 77, 78", "add 64"),
        ("objects", in_pod(imagePullSecrets=[{"name": "no"}]), "Secret no does not exist", "create secret generic no"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_broken_is_named_with_what_mends_it(
    patient: Patient, check: str, broken: Callable[[Patient], None], says: str, mends: str
) -> None:
    patient.use("job-indexed")
    broken(patient)
    found = patient.wrong(check)
    assert says in found["what"]
    assert mends in "\n".join(found["mend"])


def test_a_node_with_the_label_of_the_command_takes_the_pod(patient: Patient) -> None:
    patient.use("job-indexed")
    label = f"example.test/{patient.cluster.namespace}"
    patient.pod["nodeSelector"] = {label: "1"}
    file = patient.write()
    command = patient.wrong("pod", file)["mend"][1]
    node = nodes()[0]
    try:
        patient.shell(command.replace(" NODE ", f" {node} "))
        assert patient.doctor(file)["pod"]["what"] == f"ran on {node}, as the pods of the job will"
    finally:
        kubectl("label", "node", node, f"{label}-")


def test_ports_that_another_pod_of_the_node_uses_are_named(patient: Patient) -> None:
    """With the network of the node, the API server of this cluster has its port there."""
    pod_security(patient.cluster, "privileged")
    patient.use("job-indexed")
    patient.pod.update(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet")
    for entry in patient.container["env"]:
        if entry["name"] == "CONF_PADDLE_NIC":
            entry["value"] = "lo"
    patient.container["env"].append({"name": "CONF_PADDLE_PORT", "value": "10250"})  # the kubelet's
    found = patient.doctor(patient.write(), code=78)
    assert "10250 (Address already in use)" in found["ports"]["what"]


@pytest.mark.parametrize(("variable", "good"), [("E2E_PADDLE_2", True), ("E2E_PADDLE_3", False)])
def test_only_a_wheel_with_parameter_servers_fits_mode_ps(patient: Patient, variable: str, good: bool) -> None:
    packages = packages_of(variable)
    pod_security(patient.cluster, "privileged")  # for the folder of this host
    patient.use("job-indexed")
    patient.container["args"] = ["run", "--", "python3", "train.py"]
    patient.container["env"] += [
        {"name": "PYTHONPATH", "value": "/packages"},
        {"name": "LAUNCHER_PSERVERS", "value": "1"},
    ]
    patient.container["volumeMounts"].append({"name": "packages", "mountPath": "/packages", "readOnly": True})
    patient.pod["volumes"].append({"name": "packages", "hostPath": {"path": str(packages)}})
    if good:
        assert patient.doctor(patient.write())["paddle"]["what"].startswith("2.6.2 for CPUs, fits mode ps")
    else:
        found = patient.wrong("paddle")
        assert "has no parameter servers, which mode ps needs" in found["what"]
        assert "pip install paddlepaddle==2.6.2" in found["mend"][0]


def test_volcano_must_be_there_if_the_job_asks_for_it(patient: Patient) -> None:
    patient.use("job-indexed")
    patient.pod["schedulerName"] = "volcano"
    patient.workload["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": "3"}
    installed = not subprocess.run(
        ["kubectl", "get", "queues.scheduling.volcano.sh", "default"], capture_output=True, timeout=60
    ).returncode
    if installed:
        assert patient.doctor(patient.write())["queue"]["what"] == "Volcano is installed"
    else:
        found = patient.doctor("--within", "5", patient.write(), code=78)
        assert "the cluster has no Volcano" in found["queue"]["what"]


@pytest.fixture
def waiting(patient: Patient) -> Iterator[subprocess.Popen[str]]:
    """Yield a doctor that waits for a pod that no node takes."""
    patient.use("job-indexed")
    patient.pod["nodeSelector"] = {"example.test/none": "1"}
    words = ["doctor", "-n", patient.cluster.namespace, "--within", "1000", patient.write()]
    running = subprocess.Popen([sys.executable, "-m", "launcher", *words], stderr=subprocess.PIPE, text=True)
    until(lambda: len(doctors(patient.cluster)) == 2)
    yield running
    running.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_doctor_leaves_nothing(
    patient: Patient, waiting: subprocess.Popen[str], number: signal.Signals
) -> None:
    waiting.send_signal(number)
    assert waiting.wait(timeout=60) == 128 + number
    assert not doctors(patient.cluster)


def test_a_killed_doctor_leaves_a_pod_that_kubernetes_ends_even_if_no_node_takes_it(patient: Patient) -> None:
    patient.use("job-indexed")
    patient.pod["nodeSelector"] = {"example.test/none": "1"}
    words = ["doctor", "-n", patient.cluster.namespace, "--within", "5", patient.write()]
    running = subprocess.Popen([sys.executable, "-m", "launcher", *words], stderr=subprocess.DEVNULL)
    until(lambda: len(doctors(patient.cluster)) == 2)
    running.kill()
    running.wait()
    assert len(doctors(patient.cluster)) == 2
    until(lambda: not doctors(patient.cluster), lambda: doctors(patient.cluster))


def test_a_submitter_needs_no_more_rights_than_those_of_its_role(patient: Patient) -> None:
    patient.use("job-indexed")
    apply(patient.cluster, *rendered(K8S / "submitter", patient.cluster))
    apply(patient.cluster, *[each for each in patient.objects if each["kind"] != "Job"])
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    token = kubectl("-n", patient.cluster.namespace, "create", "token", "paddle-submitter").strip()
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    (patient.folder / "kubeconfig").write_text(yaml.safe_dump(config))
    found = patient.doctor(patient.write("Job"), KUBECONFIG=str(patient.folder / "kubeconfig"))
    assert {check["state"] for check in found.values()} == {"ok"}, found
