"""`paddle-launcher doctor` against a fake cluster, whose kubelet runs the program of the pod on this machine."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher import __version__
from launcher.doctor import inside
from launcher.doctor.report import OK, WARNING, WRONG, Check, as_text
from tests.support.doctor import (
    PREFIX,
    container_of,
    doctor,
    program,
    set_variable,
    workload_of,
    write,
)
from tests.support.doctor_world import World
from tests.support.fake_cluster import FakeCluster, Json
from tests.support.submitted import FLAGS, WIDE_AND_DEEP, command
from tests.support.workloads import put_manifests

Objects = list[Json]
MANIFESTS = ("job", "job-indexed", "statefulset", "single")
PYTHON_WITHOUT_PADDLE = "echo \"ModuleNotFoundError: No module named 'paddle'\" >&2; exit 1"
PYTHON_WITH = 'case "$*" in *paddle*) echo version {} {};; *) echo 3.11.2;; esac'


@pytest.fixture
def world(cluster: FakeCluster, tmp_path: Path) -> World:
    return World(cluster, tmp_path)


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_good_job_of_our_manifests_has_no_finding_and_leaves_no_pod(world: World, name: str) -> None:
    world.use(name)
    found = world.doctor()
    assert {check["state"] for check in found.values()} == {"ok"}, found
    assert len(world.kubelet.jobs) == 1
    assert not [each for each in world.cluster.names("jobs") if each.startswith(PREFIX)]
    assert world.cluster.names("pods") == []


def test_the_pod_is_announced_before_it_is_made_and_no_pod_makes_none(world: World) -> None:
    file = write(world.folder, world.use("job"))
    done = command("doctor", file)
    name = world.kubelet.jobs[0]["metadata"]["name"]
    assert done.stderr.splitlines() == [
        f"doctor: makes a short-lived pod by Job {name} in namespace ns",
        "doctor: deletes it after 180 s at most (--no-pod makes none)",
    ]
    done = command("doctor", "--no-pod", file)
    assert done.stderr == ""
    assert len(world.kubelet.jobs) == 1
    assert "volume     unknown  not asked: --no-pod" in done.stdout


def test_the_pod_is_like_those_of_the_job_and_ends_without_us(world: World) -> None:
    objects = world.use("job-indexed")
    spec = workload_of(objects)["spec"]["template"]["spec"]
    spec |= {"nodeSelector": {"a": "b"}, "priorityClassName": "high"}
    container_of(objects)["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    world.doctor("--within", "50")
    (job,) = world.kubelet.jobs
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["backoffLimit"]) == (110, 0)
    assert job["spec"]["ttlSecondsAfterFinished"] == 60
    assert job["metadata"]["labels"]["paddle-launcher/doctor"] == "paddle-indexed-job"
    pod = job["spec"]["template"]["spec"]
    (made,) = pod["containers"]
    given = container_of(objects)
    for field in ("image", "securityContext", "resources", "volumeMounts"):
        assert made[field] == given[field]
    for field in ("securityContext", "nodeSelector"):
        assert pod[field] == spec[field]
    assert {"readinessProbe", "livenessProbe", "args"} & set(made) == set()
    assert "priorityClassName" not in pod
    assert {volume["name"] for volume in pod["volumes"]} == {"jobpath", "work", "tmp"}


def test_the_program_of_the_pod_is_for_old_pythons_without_libraries() -> None:
    text = Path(inside.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 7))
    imported = {each.name for node in ast.walk(tree) if isinstance(node, ast.Import) for each in node.names}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    assert len(text) < 1 << 16  # one argument of a program has at most 128 KiB


def test_standard_input_is_a_file(world: World) -> None:
    text = Path(write(world.folder, world.use("job"))).read_bytes()
    words = [sys.executable, "-m", "launcher", "doctor", "--no-pod", "-"]
    done = subprocess.run(words, input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert b"paddle-cluster-job in namespace ns" in done.stdout


def test_the_pod_is_no_job_for_list(world: World) -> None:
    world.use("job")
    world.doctor()
    world.cluster.put("jobs", world.kubelet.jobs[0])
    assert command("list").stdout == ""


Break = Callable[[World], object]


def unset(name: str) -> Break:
    return lambda world: set_variable(world.objects, name, None)


def setting(name: str, value: str) -> Break:
    return lambda world: set_variable(world.objects, name, value)


def in_spec(**fields: Any) -> Break:
    return lambda world: workload_of(world.objects)["spec"].update(fields)


def in_pod(**fields: Any) -> Break:
    return lambda world: workload_of(world.objects)["spec"]["template"]["spec"].update(fields)


def in_service(**fields: Any) -> Break:
    def change(world: World) -> None:
        (service,) = [each for each in world.objects if each["kind"] == "Service"]
        world.objects.remove(service)
        service["spec"].update(fields)
        world.cluster.put("services", service)

    return change


def without(kind: str) -> Break:
    def change(world: World) -> None:
        world.objects = [each for each in world.objects if each["kind"] != kind]

    return change


def stored(plural: str, name: str, **fields: Any) -> Break:
    return lambda world: world.cluster.put(plural, {"metadata": {"name": name}, **fields})


def policy(change: Callable[[list[Json]], object]) -> Break:
    return lambda world: change(workload_of(world.objects)["spec"]["podFailurePolicy"]["rules"])


def state(**fields: Any) -> Break:
    return lambda world: setattr(world.kubelet, "state", fields)


def waits(reason: str, message: str) -> Break:
    return state(waiting={"reason": reason, "message": message})


def script(name: str, text: str) -> Break:
    return lambda world: program(world.programs, name, text)


def emptied(world: World) -> None:
    (world.job / "1" / "data" / "train.txt").write_text("")


def renamed(world: World) -> None:
    (world.job / "1").rename(world.job / "elsewhere")


def without_config(world: World) -> None:
    (world.job / "quick_start" / "trainer_config.lr.py").unlink()


def without_launcher(world: World) -> None:
    (world.programs / "paddle-launcher").unlink()


def without_paddle(world: World) -> None:
    (world.programs / "paddle").unlink()


def trains_with(*words: str) -> Break:
    """Train with a command, in a pod with a python that has another Paddle."""
    return lambda world: container_of(world.objects).update(args=["run", "--", *words])


def both(*breaks: Break) -> Break:
    return lambda world: [each(world) for each in breaks]


START = {"reason": "StartError", "exitCode": 128, "message": 'exec: "python3": executable file not found in $PATH'}
KUEUE = {"preferredVersion": {"groupVersion": "kueue.x-k8s.io/v1beta1"}}
NO_MATCH = "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."

WRONG_THINGS: list[tuple[str, str, Break, str, str]] = [
    # manifests, the check, what is broken, what it says, the command that mends it
    (
        "job",
        "variables",
        setting("LAUNCHER_DISCOVERY", "magic"),
        "LAUNCHER_DISCOVERY: 'magic': expected",
        "LAUNCHER_DISCOVERY",
    ),
    (
        "job",
        "variables",
        unset("CONF_PADDLE_GRADIENT_NUM"),
        "CONF_PADDLE_GRADIENT_NUM: unset",
        "CONF_PADDLE_GRADIENT_NUM=3",
    ),
    (
        "job",
        "variables",
        setting("JOB_NAMESPACE", "default"),
        "JOB_NAMESPACE is default, but the Job is in namespace ns: remove the variable",
        "remove JOB_NAMESPACE from the env",
    ),
    (
        "job",
        "pods",
        in_spec(parallelism=2, completions=2),
        "parallelism 2 and completions 2, but CONF",
        "GRADIENT_NUM=2",
    ),
    ("job", "pods", in_spec(parallelism=1), "parallelism 1, but CONF_PADDLE_GRADIENT_NUM is 3", "set parallelism"),
    ("statefulset", "pods", in_spec(replicas=4), "has replicas 4, but CONF", "CONF_PADDLE_GRADIENT_NUM=4"),
    ("job-indexed", "policy", policy(lambda rules: rules.pop(0)), "no FailJob for 64, 66, 71, 77, 78", "add 64, 66"),
    ("job-indexed", "policy", policy(lambda rules: rules.pop(1)), "no Ignore for 69, 143", "add 69, 143"),
    (
        "job-indexed",
        "policy",
        policy(lambda rules: rules[0]["onExitCodes"].update(containerName="paddle")),
        "names container paddle, but the launcher runs in container trainer",
        "containerName: trainer",
    ),
    ("job-indexed", "policy", unset("LAUNCHER_FAILURE_POLICY"), "LAUNCHER_FAILURE_POLICY is not 1", "POLICY=1"),
    ("job-indexed", "policy", in_spec(backoffLimit=2), "LAUNCHER_BACKOFF_LIMIT is 4, but backoffLimit is 2", "4"),
    ("job-indexed", "service", without("Service"), "Service paddle does not exist", '"clusterIP": "None"'),
    ("job-indexed", "service", in_pod(subdomain="x"), "LAUNCHER_SERVICE is paddle, but the pods get", "subdomain"),
    ("job-indexed", "service", in_service(clusterIP="10.0.0.1"), "is not headless", "replace --force"),
    ("job-indexed", "service", in_service(publishNotReadyAddresses=False), "publishNotReady", "kubectl -n ns patch"),
    ("job-indexed", "service", in_service(selector={"a": "b"}), "does not select the pods", '"a": null'),
    ("job", "queue", in_pod(schedulerName="volcano"), "the cluster has no Volcano", "helm install volcano"),
    (
        "job",
        "queue",
        lambda world: workload_of(world.objects)["metadata"].update(labels={"kueue.x-k8s.io/queue-name": "team"}),
        "the cluster has no Kueue",
        "helm install kueue",
    ),
    ("job", "objects", in_pod(imagePullSecrets=[{"name": "pull"}]), "Secret pull does not exist", "create secret"),
    (
        "job",
        "claim",
        stored("persistentvolumeclaims", "paddle", spec={"storageClassName": "x"}, status={"phase": "Pending"}),
        "claim paddle is Pending, not Bound (storage class x)",
        "describe pvc paddle",
    ),
    (
        "job",
        "image",
        waits("ErrImageNeverPull", "not there"),
        "cannot be pulled: not there",
        "docker push paddle-launch",
    ),
    ("job", "image", waits("ImagePullBackOff", "ErrImagePull: denied: 401"), "401", "create secret docker-registry"),
    ("job", "image", waits("InvalidImageName", "couldn't parse image name: invalid"), "parse", "correct the name"),
    ("job", "launcher", without_launcher, "the image has no paddle-launcher in its PATH", "docker build -f docker/D"),
    ("job", "launcher", script("paddle-launcher", "echo bad >&2; exit 3"), "does not run: bad", "docker build"),
    ("job", "launcher", state(terminated=START), "the image has no python3 in its PATH, and so no launcher", "inject"),
    ("job", "paddle", without_paddle, "mode v0 runs the program `paddle`, and the image has none", "after --"),
    (
        "job",
        "device",
        setting("CONF_PADDLE_NIC", "eth7"),
        "CONF_PADDLE_NIC is eth7, which is not in",
        "CONF_PADDLE_NIC=",
    ),
    (
        "job",
        "workdir",
        setting("LAUNCHER_WORKDIR", "/nowhere"),
        "/nowhere does not exist in the pods",
        "mount an empty",
    ),
    ("job", "volume", setting("JOB_PATH", "/nowhere"), "/nowhere (JOB_PATH) is no folder", "mount it at /nowhere"),
    ("job", "data", renamed, "2 shards for 3 trainers: 1 of ", "shard --data DATA --out"),
    ("job", "data", emptied, "shard 1 of ", "--count 3"),
    ("job", "data", lambda world: world.shard(3), "4 shards for 3 trainers: 3 of ", "--count 3"),
    ("job", "data", setting("JOB_NAME", "other"), "cannot be read: No such file", "--count 3"),
    ("single", "data", lambda world: [world.shard(1), world.shard(2)], "3 shards for 1 trainer: 1, 2 of ", "--count 1"),
    ("job", "data", without_config, "(TRAIN_CONFIG_DIR) is missing or empty", "--config CONFIG"),
    ("job", "rights", without("RoleBinding"), "the file makes service account paddle-launcher, but", "create role"),
    (
        "job-indexed",
        "pod",
        lambda world: setattr(
            world.kubelet,
            "status",
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": NO_MATCH}], "phase": "Pending"},
        ),
        "no node takes the pod: 0/3 nodes are available",
        "",
    ),
]


@pytest.mark.parametrize(
    ("name", "check", "broken", "says", "mends"), WRONG_THINGS, ids=[f"{each[1]}: {each[3]}" for each in WRONG_THINGS]
)
def test_what_is_broken_is_named_with_what_mends_it(
    world: World, name: str, check: str, broken: Break, says: str, mends: str
) -> None:
    world.use(name)
    broken(world)
    if check in ("data", "volume"):  # another JOB_PATH or JOB_NAME has no folder with data
        found = world.doctor(code=78)
        what, mend = found[check]["what"], "\n".join(found[check]["mend"])
    elif check == "pod":
        found = world.doctor("--within", "2", code=78)
        what, mend = found[check]["what"], "\n".join(found[check]["mend"])
    else:
        what, mend = world.wrong(check)
    assert says in what
    assert mends in mend
    assert world.cluster.names("pods") == []


@pytest.mark.parametrize(
    ("version", "cuda", "mode", "says"),
    [
        ("3.3.1", False, "ps", "Paddle 3.3.1 has no parameter servers, which mode ps needs: 2.6.2 and 3.0.0 have"),
        ("2.6.2", False, "ps", ""),
        ("3.0.0", False, "ps", ""),
        ("3.3.1", False, "collective", ""),
        ("3.3.1", False, "gpu", "is built for CPUs, but the pods ask for GPUs"),
        ("3.3.1", True, "gpu", ""),
    ],
)
def test_the_wheel_must_fit_the_mode(world: World, version: str, cuda: bool, mode: str, says: str) -> None:
    world.use("job-indexed")
    program(world.programs, "python", PYTHON_WITH.format(version, cuda))
    container_of(world.objects)["args"] = ["run", "--", "python", "train.py"]
    if mode == "ps":
        set_variable(world.objects, "LAUNCHER_PSERVERS", "1")
    if mode == "gpu":
        container_of(world.objects)["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    if says:
        what, mend = world.wrong("paddle")
        assert says in what
        assert "pip install paddlepaddle" in mend
    else:
        assert world.doctor()["paddle"]["what"].startswith(f"{version} ")


@pytest.mark.parametrize("mode", ["ps", "collective"])
def test_a_version_that_no_test_trains_with_is_a_warning(world: World, mode: str) -> None:
    world.use("job-indexed")
    program(world.programs, "python", PYTHON_WITH.format("2.0.0", False))
    container_of(world.objects)["args"] = ["run", "--", "python", "train.py"]
    if mode == "ps":
        set_variable(world.objects, "LAUNCHER_PSERVERS", "1")
    found = world.doctor()["paddle"]
    assert found["state"] == "warning"
    assert found["what"].startswith("2.0.0 for CPUs: not tested with the launcher")


def test_a_python_without_paddle_is_named_with_the_wheel_to_install(world: World) -> None:
    world.use("job-indexed")
    program(world.programs, "python", f'case "$*" in *paddle*) {PYTHON_WITHOUT_PADDLE};; *) echo 3.11.2;; esac')
    container_of(world.objects)["args"] = ["run", "--", "python", "train.py"]
    what, mend = world.wrong("paddle")
    assert what == "`import paddle` fails: ModuleNotFoundError: No module named 'paddle'"
    assert "pip install paddlepaddle" in mend


def test_a_command_whose_python_is_missing_is_named(world: World) -> None:
    world.use("job-indexed")
    container_of(world.objects)["args"] = ["run", "--", "python3.99", "train.py"]
    assert "the image has no python3.99 in its PATH" in world.wrong("python")[0]


def test_a_port_that_is_taken_is_named(world: World) -> None:
    import socket

    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        world.use("job")
        set_variable(world.objects, "LAUNCHER_GANG_PORT", str(port))
        assert f"{port} (Address already in use)" in world.wrong("ports")[0]


def test_a_volume_of_another_user_is_named_with_the_command_that_gives_it_to_the_pods(world: World) -> None:
    world.use("job")
    world.kubelet.inside["job"] = "/proc/1"  # nobody can make files there
    found = world.doctor(code=78)["volume"]
    assert found["what"].startswith("/proc/1 cannot be written by the pods' user ")
    assert ('"chmod"' if os.getuid() == 0 else '"chown"') in found["mend"][0]  # /proc/1 belongs to root
    assert '"claimName": "paddle"' in found["mend"][0]


def test_the_command_that_splits_the_data_set_names_the_folder_as_the_pod_of_k8s_shell_has_it(world: World) -> None:
    world.use("job")
    renamed(world)
    container_of(world.objects)["volumeMounts"][0]["mountPath"] = str(world.volume)
    mends = world.wrong("data")[1]
    assert f"shard --data DATA --out {world.job.name} --count 3" in mends
    container_of(world.objects)["volumeMounts"][0]["subPath"] = "team"
    assert f"shard --data DATA --out team/{world.job.name} --count 3" in world.wrong("data")[1]


def test_a_missing_claim_needs_no_pod_to_be_named(world: World) -> None:
    world.use("job")
    world.cluster.delete("persistentvolumeclaims", "paddle")
    what, mend = world.wrong("claim")
    assert what == "claim paddle does not exist"
    assert '"kind": "PersistentVolumeClaim"' in mend
    assert world.kubelet.jobs == []


def test_a_claim_that_waits_for_its_first_pod_is_no_failure(world: World) -> None:
    world.use("job")
    world.cluster.put(
        "persistentvolumeclaims",
        {"metadata": {"name": "paddle", "uid": "c"}, "spec": {}, "status": {"phase": "Pending"}},
    )
    event = {"involvedObject": {"uid": "c"}, "reason": "WaitForFirstConsumer", "message": "waiting for first consumer"}
    world.cluster.put("events", {"metadata": {"name": "e"}, **event})
    assert world.doctor()["claim"]["state"] == "warning"


def test_a_claim_that_was_created_just_now_has_time_to_be_bound(world: World) -> None:
    world.use("job")
    claim = world.cluster.objects["persistentvolumeclaims", "paddle"]
    claim["status"] = {"phase": "Pending"}
    before = world.cluster.after
    asked: list[str] = []

    def after(verb: str, plural: str) -> None:
        before(verb, plural)
        asked.append(plural)
        if asked.count("persistentvolumeclaims") == 2:
            claim["status"] = {"phase": "Bound", "accessModes": ["ReadWriteMany"]}

    world.cluster.after = after
    assert world.doctor()["claim"]["state"] == "ok"


def test_a_pod_that_pod_security_refuses_is_named(world: World) -> None:
    world.use("job")
    world.kubelet.pods = False
    message = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": seccompProfile'
    world.kubelet.job_events = [{"reason": "FailedCreate", "message": message}]
    what, mend = world.wrong("pod")
    assert 'violates PodSecurity "restricted:latest"' in what
    assert "pod-security.kubernetes.io/enforce=baseline" in mend


def test_a_volume_that_cannot_be_mounted_is_named_by_its_event(world: World) -> None:
    world.use("job")
    world.kubelet.state = {"waiting": {"reason": "ContainerCreating"}}
    world.kubelet.events = [{"reason": "FailedMount", "message": "mount.nfs: Connection timed out"}]
    found = world.doctor("--within", "2", code=78)
    assert found["pod"]["what"] == "was not ready in time: mount.nfs: Connection timed out"
    assert found["pod"]["mend"] == ["kubectl -n ns describe pvc paddle"]


def test_a_volume_that_never_answers_is_named(world: World) -> None:
    world.use("job")
    world.kubelet.state = {"running": {}}
    world.cluster.after = after_create(world, ['paddle-doctor {"what": "volume", "state": "begins", "fields": {}}'])
    found = world.doctor("--within", "2", code=78)
    assert found["volume"]["what"] == "the pod did not answer in time: does the volume answer?"


def after_create(world: World, lines: list[str]) -> Callable[[str, str], None]:
    before = world.cluster.after

    def after(verb: str, plural: str) -> None:
        before(verb, plural)
        for name in world.cluster.names("pods"):
            world.cluster.logs[name] = lines

    return after


def test_without_the_right_to_create_jobs_the_role_is_named(world: World) -> None:
    world.use("job")
    said = 'jobs.batch is forbidden: User "me" cannot create resource "jobs" in API group "batch"'
    world.cluster.refused["POST", "jobs"] = (403, said)
    found = world.doctor(code=78)
    assert "you may not create Job paddle-cluster-job" in found["accepted"]["what"]
    assert "k8s/submitter" in "\n".join(found["pod"]["mend"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_doctor_removes_its_pod(world: World, number: int) -> None:
    world.kubelet.state = {"waiting": {"reason": "ContainerCreating"}}
    file = write(world.folder, world.use("job"))
    running = subprocess.Popen([sys.executable, "-m", "launcher", "doctor", file], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not world.cluster.names("pods"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 128 + number, said
    assert said.splitlines()[-1] == "doctor: interrupted"
    assert world.cluster.names("pods") == []
    assert world.cluster.names("jobs") == []


def test_a_job_that_cannot_be_deleted_is_named_with_the_command(world: World) -> None:
    file = write(world.folder, world.use("job"))
    world.cluster.refused["DELETE", "jobs"] = (500, "etcd is gone")
    done = command("doctor", file)
    name = world.kubelet.jobs[0]["metadata"]["name"]
    assert f"doctor: Job {name} could not be deleted" in done.stderr
    assert f"kubectl -n ns delete job {name}" in done.stderr


def test_a_job_in_the_cluster_is_found_by_its_name(world: World) -> None:
    put_manifests(world.cluster, "statefulset/statefulset.yaml")
    world.cluster.objects["statefulsets", "paddle-set"]["spec"]["replicas"] = 2
    found = doctor("--no-pod", "paddle-set", code=78)
    assert found["pods"]["mend"] == ["kubectl -n ns scale statefulset/paddle-set --replicas=3"]


def test_jobs_of_two_roles_are_one_job_and_equal_pods_are_asked_once(world: World) -> None:
    put_manifests(world.cluster, "ps-and-workers/jobs.yaml")
    found = doctor("paddle-ps", code=78)
    assert found["variables"]["what"].startswith("mode ps, 5 pods")
    assert len(world.kubelet.jobs) == 1


@pytest.mark.parametrize("name", ["--kubeconfig=evil", "x; touch evil", "\x1b[2J"])
def test_a_name_that_a_command_could_take_for_something_else_is_refused(world: World, name: str) -> None:
    """The commands that mend a job have the names of its file."""
    spec = workload_of(world.use("job"))["spec"]["template"]["spec"]
    spec["serviceAccountName"] = spec["containers"][0]["name"] = name
    path = write(world.folder, world.objects)
    message = command("doctor", "--no-pod", str(path), code=78).stderr
    assert message.count(f"{name!r}: expected a name") == 2
    assert "\x1b" not in message


def test_a_paddlejob_is_examined_as_it_would_be_rendered(world: World) -> None:
    found = doctor("--no-pod", *FLAGS, str(WIDE_AND_DEEP))
    assert found["variables"]["what"].startswith("mode ps, ")
    assert found["service"]["state"] == "ok"


def test_a_launcher_image_that_cannot_be_pulled_names_the_flags_that_need_none(world: World) -> None:
    for claim in ("paddle", "data", "wide-and-deep"):
        world.cluster.put("persistentvolumeclaims", {"metadata": {"name": claim}, "status": {"phase": "Bound"}})
    inject = f"paddle-launcher-inject:{__version__}"
    waiting = {"reason": "ImagePullBackOff", "message": "ErrImagePull: pull access denied"}
    init = {"name": "paddle-launcher", "image": f"registry.test/library/{inject}", "state": {"waiting": waiting}}
    world.kubelet.status = {"phase": "Pending", "initContainerStatuses": [init]}
    found = doctor("--entrypoint", "python3 train.py", str(WIDE_AND_DEEP), code=78)
    mends = next(each["mend"] for name, each in found.items() if name.endswith("image") and each["state"] == "wrong")
    assert mends[0].startswith("add --no-inject, here and to submit, if ")
    assert mends[1].startswith("or add --launcher-image IMAGE")


def test_a_missing_namespace_is_named_first_with_its_command(world: World) -> None:
    world.use("job")
    del world.cluster.paths["/api/v1/namespaces/ns"]
    what, mend = world.wrong("namespace")
    assert (what, mend) == ("namespace ns does not exist", "kubectl create namespace ns")


def test_volcano_and_kueue_that_are_there_are_good(world: World) -> None:
    workload = workload_of(world.use("job"))
    workload["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    workload["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": "3"}
    workload["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    queue = "/apis/kueue.x-k8s.io/v1beta1/namespaces/ns/localqueues/team"
    world.cluster.paths |= {"/apis/scheduling.volcano.sh/v1beta1": {}, "/apis/kueue.x-k8s.io": KUEUE, queue: {}}
    assert world.doctor()["queue"]["what"] == "Volcano is installed; Kueue has the LocalQueue team"
    del world.cluster.paths[queue]
    assert '"kind": "LocalQueue"' in world.wrong("queue")[1]
    world.cluster.paths[queue] = {}
    workload["metadata"]["annotations"] = {"scheduling.volcano.sh/group-min-member": "2"}
    assert "group-min-member is 2, but there are 3 pods" in world.wrong("queue")[0]


def test_a_job_namespace_of_another_namespace_is_removed_by_a_command_if_the_file_has_only_the_job(
    world: World,
) -> None:
    objects = world.use("job")
    world.objects = [workload_of(objects)]
    del world.objects[0]["spec"]["template"]["spec"]["serviceAccountName"]
    set_variable(world.objects, "JOB_NAMESPACE", "ns")
    assert world.doctor("--no-pod")["variables"]["state"] == "ok"
    set_variable(world.objects, "JOB_NAMESPACE", "nss")
    found = world.doctor("--no-pod", code=78)["variables"]
    container = container_of(world.objects)["name"]
    assert found["mend"] == [
        f"kubectl set env --local -f {world.folder}/job.yaml -c {container} JOB_NAMESPACE- -o yaml > mended.yaml"
    ]


def test_variables_of_a_config_map_count(world: World) -> None:
    world.use("job")
    set_variable(world.objects, "CONF_PADDLE_GRADIENT_NUM", None)
    container_of(world.objects)["envFrom"] = [{"configMapRef": {"name": "numbers"}}]
    world.cluster.put("configmaps", {"metadata": {"name": "numbers"}, "data": {"CONF_PADDLE_GRADIENT_NUM": "3"}})
    world.doctor()
    world.cluster.put("configmaps", {"metadata": {"name": "numbers"}, "data": {"CONF_PADDLE_GRADIENT_NUM": "4"}})
    assert "parallelism 3 and completions 3, but CONF_PADDLE_GRADIENT_NUM is 4" in world.doctor(code=78)["pods"]["what"]


def test_without_the_right_to_read_events_the_pod_is_still_examined(world: World) -> None:
    world.use("job")
    world.cluster.refused["GET", "events"] = (403, 'events is forbidden: User "me" cannot list resource "events"')
    world.kubelet.state = {"waiting": {"reason": "ContainerCreating"}}
    assert "was not ready in time" in world.doctor("--within", "2", code=78)["pod"]["what"]


def test_an_unknown_name_ends_with_66_and_a_file_without_a_job_with_78(world: World, tmp_path: Path) -> None:
    assert "no Job or StatefulSet of this name" in command("doctor", "nothing", code=66).stderr
    assert "cannot be read" in command("doctor", "./nothing.yaml", code=66).stderr
    (tmp_path / "empty.yaml").write_text("kind: ConfigMap\nmetadata: {name: x}\n")
    assert "found ConfigMap" in command("doctor", str(tmp_path / "empty.yaml"), code=78).stderr


@pytest.mark.parametrize("within", ["0", "-1", "x", "9" * 30, "3601", "1.5"])
def test_a_wrong_time_limit_is_a_wrong_command_line(world: World, within: str) -> None:
    assert "expected seconds, 1 to 3600" in command("doctor", f"--within={within}", "x", code=64).stderr


HOSTILE = [
    ("spec", "x"),
    ("spec.template", []),
    ("spec.template.spec", "x"),
    ("spec.template.spec.containers", []),
    ("spec.template.spec.containers", ["x"]),
    ("spec.template.spec.containers", [None]),
    ("spec.template.spec.containers", {"a": 1}),
    ("spec.template.spec.containers.0.env", [{"value": "x"}]),
    ("spec.template.spec.containers.0.env", "x"),
    ("spec.template.spec.containers.0.command", [1]),
    ("spec.template.spec.containers.0.image", 7),
    ("spec.template.spec.containers.0.volumeMounts", [{}]),
    ("spec.template.spec.volumes", [{"persistentVolumeClaim": "x"}]),
    ("spec.template.spec.nodeSelector", {"a": 1}),
    ("spec.template.metadata", "x"),
    ("spec.parallelism", "3"),
    ("spec.completions", True),
    ("spec.podFailurePolicy", {"rules": [{"onExitCodes": {"values": ["x"]}}]}),
    ("metadata", {"name": 3}),
    ("metadata", None),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE, ids=[f"{path} {value}" for path, value in HOSTILE])
def test_an_odd_manifest_is_named_without_a_traceback(world: World, path: str, value: Any) -> None:
    objects = world.use("job")
    target: Any = workload_of(objects)
    *above, last = path.split(".")
    for part in above:
        target = target[int(part) if part.isdigit() else part]
    target[last] = value
    said = command("doctor", "--no-pod", write(world.folder, objects), code=78)
    assert "document " in said.stderr
    assert "Unexpected" not in said.stderr


def test_an_odd_answer_of_the_pod_is_no_traceback(world: World) -> None:
    world.use("job")
    world.kubelet.state = {"terminated": {"exitCode": 0}}
    world.cluster.after = after_create(
        world,
        [
            *("paddle-doctor {", "paddle-doctor []", "paddle-doctor {}", 'paddle-doctor {"what": 1, "fields": 2}', ""),
            f"paddle-doctor {'[' * 100_000}",
        ],
    )
    assert "the container cannot start" in world.doctor(code=78)["launcher"]["what"]


@pytest.mark.parametrize("free", ["x", float("inf")])
def test_an_answer_of_another_shape_is_unknown(world: World, free: object) -> None:
    world.use("job")
    world.kubelet.state = {"terminated": {"exitCode": 0}}
    said = [
        ("device", {"devices": ["x"]}),
        ("ports", {"taken": 3}),
        ("volume", {"needed": 1, "mounted": 1, "free": free}),
    ]
    lines = [json.dumps({"what": what, "state": "found", "fields": fields}) for what, fields in said]
    world.cluster.after = after_create(world, [f"paddle-doctor {line}" for line in lines])
    found = world.doctor()
    assert {found[what]["what"] for what, _ in said} == {"the answer of the pod cannot be read"}


def test_text_is_wrapped_at_the_width_and_commands_stay_whole() -> None:
    long = "kubectl " + "x" * 100
    text = as_text("j", [Check("claim", WRONG, "word " * 30, (long,)), Check("pods", OK, "3")], 80)
    lines = text.splitlines()
    assert f"  {long}" in lines
    assert max(len(line) for line in lines if long not in line) <= 80
    assert lines[-1] == "1 wrong, 1 ok"
    assert all(line.startswith(("claim  WRONG  ", " " * 14)) for line in lines[2:4])


def test_control_characters_of_an_answer_are_escaped() -> None:
    assert "\x1b" not in as_text("j\x1b", [Check("pod", WARNING, "\x1b[2J", ("\x1b",))], None)


def test_json_has_the_checks_and_whether_all_is_good(world: World) -> None:
    file = write(world.folder, world.use("job"))
    found = json.loads(command("doctor", "-o", "json", file).stdout)
    assert (found["job"], found["good"]) == ("paddle-cluster-job in namespace ns", True)
    assert set(found["checks"][0]) == {"name", "state", "what", "mend"}
