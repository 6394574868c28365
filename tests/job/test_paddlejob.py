"""`PaddleJob(...)` in Python: what its parameters become, and what is said of those that are wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from launcher import paddle
from launcher.job import CephFSVolume, ClaimVolume, ConfigProblems, Failure, PaddleJob, Volume, dist_train, inside_a_job
from tests.support.rendering import (
    EVERYTHING,
    LEAST,
    Json,
    is_modelled,
    jobs,
    missing,
    of_kind,
    pod,
    read,
    through_the_client,
    trains,
    variables,
    with_quantities_as_text,
)


def made(**parameters: Any) -> list[Json]:
    """The objects of a job, by way of its YAML."""
    return list(yaml.safe_load_all(PaddleJob(**(LEAST | parameters)).to_yaml()))


def seed() -> PaddleJob:
    """The example of seed 002, as it is written there."""
    return PaddleJob(
        pservers=3,
        runtime_image="yancey1989/paddle-job",
        job_name="paddle-job",
        namespace="yanxu",
        use_gpu=False,
        cpu_num=3,
        trainer_package_path="/example/word2vec",
        entry_point="python train.py",
        cephfs_volume=CephFSVolume(monitors_addr="172.19.32.166:6789"),
    )


def test_the_example_of_the_seeds_is_servers_and_trainers_that_train_below_the_launcher() -> None:
    found = jobs(list(yaml.safe_load_all(seed().to_yaml())))
    assert {name: job["spec"]["completions"] for name, job in found.items()} == {
        "paddle-job-pserver": 3,
        "paddle-job-trainer": 3,
    }
    for job in found.values():
        main = trains(job)
        assert [*main["command"], *main["args"]] == ["paddle-launcher", "run", "--", "python", "train.py"]
        assert main["image"] == "yancey1989/paddle-job"
        assert main["workingDir"] == "/example/word2vec"
        assert main["resources"] == {"requests": {"cpu": "3", "memory": "1G"}}
        assert "/mnt/cephfs" in [mount["mountPath"] for mount in main["volumeMounts"]]
        assert job["metadata"]["namespace"] == "yanxu"


def test_cephfs_is_a_volume_and_a_claim_of_the_job_by_its_driver() -> None:
    found = list(yaml.safe_load_all(seed().to_yaml()))
    (volume,), (claim,) = of_kind(found, "PersistentVolume"), of_kind(found, "PersistentVolumeClaim")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
    assert volume["spec"]["claimRef"]["namespace"] == claim["metadata"]["namespace"] == "yanxu"
    assert volume["spec"]["csi"]["volumeAttributes"]["monitors"] == "172.19.32.166:6789"
    assert volume["spec"]["csi"]["nodeStageSecretRef"] == {"name": "cephfs-secret", "namespace": "yanxu"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    sources = [each.get("persistentVolumeClaim") for each in pod(jobs(found)["paddle-job-trainer"])["volumes"]]
    assert {"claimName": claim["metadata"]["name"]} in sources


@pytest.mark.parametrize("parameters", [LEAST, EVERYTHING], ids=["least", "everything"])
def test_every_object_has_only_fields_that_kubernetes_knows(parameters: dict[str, Any]) -> None:
    objects = made(**parameters)
    assert [each["kind"] for each in objects if not is_modelled(each)] == ["PodGroup"] * bool("queue" in parameters)
    for each in objects:
        if is_modelled(each):
            assert through_the_client(each) == with_quantities_as_text(each)


def test_every_parameter_is_where_kubernetes_looks_for_it() -> None:
    objects = made(**EVERYTHING)
    trainer, server = (jobs(objects)[f"words-{role}"] for role in ("trainer", "pserver"))
    wanted = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priorityClassName": "high",
        "serviceAccountName": "trainer",
        "schedulerName": "volcano",
    }
    for job in (trainer, server):
        assert missing(wanted, pod(job)) == []
        assert job["spec"]["template"]["metadata"]["labels"]["team"] == job["metadata"]["labels"]["team"] == "words"
        mounts = {mount["mountPath"]: mount.get("readOnly") for mount in trains(job)["volumeMounts"]}
        assert mounts.items() >= {"/mnt/cephfs": None, "/claim": True, "/nfs": None, "/dev/shm": None}.items()
        assert {"medium": "Memory", "sizeLimit": "512M"} in [each.get("emptyDir") for each in pod(job)["volumes"]]
        assert variables(job).items() >= {"EPOCHS": "3", "LAUNCHER_MAX_RESTARTS": "1"}.items()
        assert {"name": "TOKEN", "valueFrom": EVERYTHING["env"]["TOKEN"]} in trains(job)["env"]
    assert trains(trainer)["resources"]["limits"] == {"memory": "4G", "nvidia.com/gpu": "1"}
    assert trains(server)["resources"]["limits"] == {"memory": "4G"}
    assert of_kind(objects, "PodGroup")[0]["spec"] == {"minMember": 3, "queue": "research"}


@pytest.mark.parametrize(
    ("parameters", "mode"),
    [({}, "ps"), ({"pservers": 0}, "collective"), ({"pservers": 0, "trainers": 1}, "single")],
    ids=["servers", "none", "one pod"],
)
def test_the_launcher_understands_what_it_is_told_and_the_pods_make_one_gang(
    parameters: dict[str, Any], mode: str
) -> None:
    found = jobs(made(**parameters))
    configs = [read(job, index) for job in found.values() for index in range(job["spec"]["completions"])]
    assert {paddle.mode(each, ("python", "train.py")) for each in configs} == {mode}
    assert all(each.members == len(configs) for each in configs)
    assert sorted(each.discovery.rank or 0 for each in configs) == list(range(len(configs)))


def test_a_pod_with_several_gpus_has_a_trainer_for_each() -> None:
    (job,) = jobs(made(pservers=0, trainers=1, gpu_nums=4)).values()
    assert variables(job)["LAUNCHER_TRAINERS_PER_NODE"] == "gpus"
    assert read(job).mode == "collective"
    (job,) = jobs(made(pservers=0, gpu_nums=4, env={"LAUNCHER_TRAINERS_PER_NODE": 1})).values()
    assert variables(job)["LAUNCHER_TRAINERS_PER_NODE"] == "1"


@pytest.mark.parametrize(
    ("given", "spelled"),
    [("1E", "1E"), ("2P", "2P"), ("3T", "3T"), ("4G", "4G"), ("5M", "5M"), ("6K", "6k"), ("1Gi", "1Gi")],
)
def test_memory_is_spelled_as_kubernetes_does(given: str, spelled: str) -> None:
    main = trains(jobs(made(memory=given))["words-trainer"])
    assert main["resources"]["limits"]["memory"] == main["resources"]["requests"]["memory"] == spelled


@pytest.mark.parametrize(
    ("entry_point", "words"),
    [
        ("python train.py --name 'two words'", ["python", "train.py", "--name", "two words"]),
        (["python", "train.py", "a;b"], ["python", "train.py", "a;b"]),
        ("PYTHONPATH=. python train.py", ["/bin/sh", "-c", "PYTHONPATH=. python train.py"]),
        ("python train.py data/[ab].csv", ["/bin/sh", "-c", "python train.py data/[ab].csv"]),
        ("cd /data && python train.py", ["/bin/sh", "-c", "cd /data && python train.py"]),
        ("python train.py --out $HOME", ["/bin/sh", "-c", "python train.py --out $HOME"]),
    ],
)
def test_an_entry_point_is_what_a_shell_would_make_of_it(entry_point: str | list[str], words: list[str]) -> None:
    assert trains(jobs(made(entry_point=entry_point))["words-trainer"])["args"][2:] == words


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"job_name": "Words_1"}, "job_name: 'Words_1': expected lower-case letters, digits and -"),
        ({"job_name": "w" * 60}, "job_name: "),
        ({"entry_point": ""}, "entry_point: ''"),
        ({"entry_point": "python 'train.py"}, 'entry_point: "python \'train.py": No closing quotation'),
        ({"runtime_image": ""}, "runtime_image: empty"),
        ({"memory": "4 GB"}, "memory: '4 GB': expected a number with one of the suffixes E P T G M K"),
        ({"memory": 4}, "memory: 4: expected text, in quotes"),
        ({"cpu_nums": 0}, "cpu_nums: 0: expected a number above 0"),
        ({"cpu_nums": 1, "cpu_num": 2}, "cpu_num: 2: cpu_nums is 1"),
        ({"gpu_nums": 1, "use_gpu": False}, "use_gpu: False, but gpu_nums is 1"),
        ({"trainers": 0}, "trainers: 0: expected 1 or more"),
        ({"pservers": -1}, "pservers: -1: expected 0 or more"),
        ({"trainers": "3"}, "trainers: '3': expected a whole number"),
        ({"trainer_package_path": "example"}, "trainer_package_path: 'example': expected an absolute path"),
        ({"runtime_image": None}, "runtime_image: None: expected a value"),
        ({"trainers": None}, "trainers: None: expected a value"),
        ({"volumes": ClaimVolume("/a", "x")}, "volumes: ClaimVolume("),
        ({"volumes": [{"mount_path": "/a"}]}, "volumes: [{"),
        ({"cephfs_volume": "10.0.0.1"}, "cephfs_volume: '10.0.0.1': expected CephFSVolume(...)"),
        ({"env": ["A=1"]}, "env: ['A=1']: expected a mapping"),
        ({"gang_scheduling": "no"}, "gang_scheduling: 'no': expected True or False"),
        ({"queue": "research"}, "queue: 'research': "),
        ({"env": {"A": None}}, "env['A']: None"),
        ({"labels": {"a": 1}}, "labels['a']: 1: expected text"),
        ({"volumes": [ClaimVolume("data", "x")]}, "volumes[0].mount_path: 'data': expected an absolute path"),
        ({"volumes": [ClaimVolume("/a", "x"), ClaimVolume("/a/", "y")]}, "volumes[1].mount_path: '/a/': volumes[0] is"),
        ({"volumes": [Volume("/a", {})]}, "volumes[0].source: {}"),
        ({"cephfs_volume": CephFSVolume("a:1, b:2")}, "cephfs_volume.monitors_addr: 'a:1, b:2'"),
    ],
)
def test_a_wrong_parameter_is_told_before_anything_is_created(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(LEAST | parameters))
    assert str(caught.value).startswith(told)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(LEAST | {"memory": "much", "cpu_nums": -1, "entry_point": ""}))
    assert len(caught.value.problems) == 3


def test_what_the_launcher_would_refuse_is_refused_before_there_are_pods() -> None:
    with pytest.raises(ConfigProblems, match="LAUNCHER_PEER_TIMEOUT: 'soon'"):
        PaddleJob(**LEAST, env={"LAUNCHER_PEER_TIMEOUT": "soon"}).to_yaml()


def test_a_variable_that_the_program_does_not_get_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="words: .*PADDLE_TRAINER_ID is set by the launcher"):
        PaddleJob(**LEAST, env={"PADDLE_TRAINER_ID": "7"}).to_yaml()


def test_a_volume_of_cephfs_needs_a_namespace() -> None:
    with pytest.raises(ConfigProblems, match="namespace: missing"):
        PaddleJob(**LEAST, cephfs_volume=CephFSVolume("10.0.0.1:6789")).to_yaml()


def test_a_job_with_a_volume_that_the_launcher_knows_has_its_secret_there() -> None:
    assert of_kind(made(), "Secret")
    assert not of_kind(made(env={"JOB_PATH": "/claim"}, volumes=[ClaimVolume("/claim", "paddle")]), "Secret")


def test_the_same_file_trains_inside_and_submits_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[str] = []
    monkeypatch.setattr(PaddleJob, "submit", lambda job: submitted.append(job.job_name))
    assert dist_train(lambda: "trained", PaddleJob(**LEAST)) is None
    assert submitted == ["words"]
    monkeypatch.setenv("LAUNCHER_GENERATION", "0")
    assert inside_a_job()
    assert dist_train(lambda: "trained", PaddleJob(**LEAST)) == "trained"
    assert submitted == ["words"]


def test_a_job_does_not_submit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_GENERATION", "0")
    with pytest.raises(Failure, match="already runs inside a job"):
        PaddleJob(**LEAST).submit()


def test_programs_import_it_without_paddle_and_without_the_client() -> None:
    program = (
        "import sys\nsys.modules['paddle'] = None\nimport launcher.job\n"
        "launcher.job.PaddleJob(job_name='a', entry_point='python t.py', runtime_image='i')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('kubernetes', 'yaml', 'psutil')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
