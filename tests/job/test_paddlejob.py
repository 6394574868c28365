"""`PaddleJob(...)` in Python: what its parameters become, and the messages for wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from launcher import paddle
from launcher.job import CephFSVolume, ClaimVolume, ConfigProblems, Failure, PaddleJob, Volume, dist_train, inside_a_job
from launcher.model import Shape
from tests.support.rendering import (
    ALL_PARAMETERS,
    REQUIRED_PARAMETERS,
    Json,
    has_model,
    jobs,
    main_container,
    missing,
    of_kind,
    plain_variables,
    pod_spec,
    quantities_as_text,
    read_config,
    through_the_model,
)


def objects_of(**parameters: Any) -> list[Json]:
    """Return the objects of a job, read from its YAML."""
    return list(yaml.safe_load_all(PaddleJob(**(REQUIRED_PARAMETERS | parameters)).to_yaml()))


def original() -> PaddleJob:
    """Return the example from the documentation of paddle.job, unchanged."""
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


def test_the_example_of_paddle_job_has_servers_and_trainers_below_the_launcher() -> None:
    rendered = jobs(list(yaml.safe_load_all(original().to_yaml())))
    assert {name: job["spec"]["completions"] for name, job in rendered.items()} == {
        "paddle-job-pserver": 3,
        "paddle-job-trainer": 3,
    }
    for job in rendered.values():
        main = main_container(job)
        assert [*main["command"], *main["args"]] == ["paddle-launcher", "run", "--", "python", "train.py"]
        assert main["image"] == "yancey1989/paddle-job"
        assert main["workingDir"] == "/example/word2vec"
        assert main["resources"] == {"requests": {"cpu": "3", "memory": "1G"}}
        assert "/mnt/cephfs" in [mount["mountPath"] for mount in main["volumeMounts"]]
        assert job["metadata"]["namespace"] == "yanxu"


def test_cephfs_becomes_a_volume_and_a_claim_for_its_csi_driver() -> None:
    rendered = list(yaml.safe_load_all(original().to_yaml()))
    (volume,), (claim,) = of_kind(rendered, "PersistentVolume"), of_kind(rendered, "PersistentVolumeClaim")
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
    assert volume["spec"]["claimRef"]["namespace"] == claim["metadata"]["namespace"] == "yanxu"
    assert volume["spec"]["csi"]["volumeAttributes"]["monitors"] == "172.19.32.166:6789"
    assert volume["spec"]["csi"]["nodeStageSecretRef"] == {"name": "cephfs-secret", "namespace": "yanxu"}
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    sources = [each.get("persistentVolumeClaim") for each in pod_spec(jobs(rendered)["paddle-job-trainer"])["volumes"]]
    assert {"claimName": claim["metadata"]["name"]} in sources


@pytest.mark.parametrize("parameters", [REQUIRED_PARAMETERS, ALL_PARAMETERS], ids=["required", "all"])
def test_every_object_has_only_fields_that_kubernetes_knows(parameters: dict[str, Any]) -> None:
    objects = objects_of(**parameters)
    assert [each["kind"] for each in objects if not has_model(each)] == ["PodGroup"] * bool("queue" in parameters)
    for each in objects:
        if has_model(each):
            assert through_the_model(each) == quantities_as_text(each)


def test_each_parameter_becomes_the_right_field() -> None:
    objects = objects_of(**ALL_PARAMETERS)
    trainer, server = (jobs(objects)[f"words-{role}"] for role in ("trainer", "pserver"))
    wanted = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priorityClassName": "high",
        "serviceAccountName": "trainer",
        "schedulerName": "volcano",
    }
    for job in (trainer, server):
        assert missing(wanted, pod_spec(job)) == []
        assert job["spec"]["template"]["metadata"]["labels"]["team"] == job["metadata"]["labels"]["team"] == "words"
        mounts = {mount["mountPath"]: mount.get("readOnly") for mount in main_container(job)["volumeMounts"]}
        assert mounts.items() >= {"/mnt/cephfs": None, "/claim": True, "/nfs": None, "/dev/shm": None}.items()
        assert {"medium": "Memory", "sizeLimit": "512M"} in [each.get("emptyDir") for each in pod_spec(job)["volumes"]]
        assert plain_variables(job).items() >= {"EPOCHS": "3", "LAUNCHER_MAX_RESTARTS": "1"}.items()
        assert {"name": "TOKEN", "valueFrom": ALL_PARAMETERS["env"]["TOKEN"]} in main_container(job)["env"]
    assert main_container(trainer)["resources"]["limits"] == {"memory": "4G", "nvidia.com/gpu": "1"}
    assert main_container(server)["resources"]["limits"] == {"memory": "4G"}
    assert of_kind(objects, "PodGroup")[0]["spec"] == {"minMember": 3, "queue": "research"}


@pytest.mark.parametrize(
    ("parameters", "mode"),
    [({}, "ps"), ({"pservers": 0}, "collective"), ({"pservers": 0, "trainers": 1}, "single")],
    ids=["servers", "none", "one pod"],
)
def test_the_launchers_of_all_pods_read_the_configuration_of_one_gang(parameters: dict[str, Any], mode: str) -> None:
    rendered = jobs(objects_of(**parameters))
    configs = [read_config(job, index) for job in rendered.values() for index in range(job["spec"]["completions"])]
    assert {paddle.mode(each, ("python", "train.py")) for each in configs} == {mode}
    assert all(each.members == len(configs) for each in configs)
    assert sorted(each.discovery.rank or 0 for each in configs) == list(range(len(configs)))


HETERS: dict[str, Any] = {"trainers": 2, "pservers": 1, "heters": 2}


def test_heter_workers_are_a_third_job_and_all_roles_are_one_gang() -> None:
    rendered = jobs(objects_of(**HETERS))
    roles = {"words-trainer": "trainer", "words-pserver": "pserver", "words-heter": "heter"}
    assert {name: job["spec"]["completions"] for name, job in rendered.items()} == {
        "words-trainer": 2,
        "words-pserver": 1,
        "words-heter": 2,
    }
    configs = [(name, read_config(job, i)) for name, job in rendered.items() for i in range(job["spec"]["completions"])]
    for name, found in configs:
        assert (found.shape, found.role) == (Shape(trainers=2, pservers=1, heters=2), roles[name])
    assert sorted(found.discovery.rank or 0 for _, found in configs) == list(range(5))


def test_all_roles_of_a_job_with_heter_workers_are_scheduled_together() -> None:
    assert of_kind(objects_of(**HETERS, gang_scheduling=True), "PodGroup")[0]["spec"] == {"minMember": 5}


def test_heter_workers_have_the_gpus_of_a_job() -> None:
    rendered = jobs(objects_of(**HETERS, gpu_nums=1, memory="4G"))
    limits = {name: main_container(job)["resources"]["limits"] for name, job in rendered.items()}
    assert limits.pop("words-heter") == {"memory": "4G", "nvidia.com/gpu": "1"}
    assert list(limits.values()) == [{"memory": "4G"}] * 2
    devices = {name: plain_variables(job).get("HETER_DEVICE_TYPE") for name, job in rendered.items()}
    assert devices == {"words-heter": "gpu", "words-trainer": None, "words-pserver": None}
    on_cpu = jobs(objects_of(**HETERS, gpu_nums=1, env={"HETER_DEVICE_TYPE": "cpu"}))["words-heter"]
    assert plain_variables(on_cpu)["HETER_DEVICE_TYPE"] == "cpu"


def test_each_heter_worker_knows_its_stage() -> None:
    job = jobs(objects_of(**HETERS, env={"LAUNCHER_STAGE": "2,3"}))["words-heter"]
    assert [read_config(job, index).stage(index) for index in range(2)] == [2, 3]


def test_a_pod_with_several_gpus_has_a_trainer_for_each() -> None:
    (job,) = jobs(objects_of(pservers=0, trainers=1, gpu_nums=4)).values()
    assert plain_variables(job)["LAUNCHER_TRAINERS_PER_NODE"] == "gpus"
    assert read_config(job).mode == "collective"
    (job,) = jobs(objects_of(pservers=0, gpu_nums=4, env={"LAUNCHER_TRAINERS_PER_NODE": 1})).values()
    assert plain_variables(job)["LAUNCHER_TRAINERS_PER_NODE"] == "1"


@pytest.mark.parametrize(
    ("given", "spelled"),
    [("1E", "1E"), ("2P", "2P"), ("3T", "3T"), ("4G", "4G"), ("5M", "5M"), ("6000K", "6000k"), ("1Gi", "1Gi")],
)
def test_memory_has_the_suffix_that_kubernetes_knows(given: str, spelled: str) -> None:
    main = main_container(jobs(objects_of(memory=given))["words-trainer"])
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
def test_an_entry_point_runs_in_a_shell_only_if_it_needs_one(entry_point: str | list[str], words: list[str]) -> None:
    assert main_container(jobs(objects_of(entry_point=entry_point))["words-trainer"])["args"][2:] == words


@pytest.mark.parametrize(
    ("parameters", "message"),
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
        ({"heters": -1}, "heters: -1: expected 0 or more"),
        ({"heters": "2"}, "heters: '2': expected a whole number"),
        ({"heters": 2, "pservers": 0}, "heters: 2: expected pservers, too: without parameter servers no heter worker"),
        (
            {"heters": 10000, "job_name": "w" * 53},
            f"job_name: '{'w' * 53}': too long by 1: its last pod would be called",
        ),
        ({"heters": 2, "env": {"LAUNCHER_STAGE": "2,2,3"}}, "env: LAUNCHER_STAGE: '2,2,3'"),
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
def test_a_wrong_parameter_is_refused_when_the_job_is_made(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(REQUIRED_PARAMETERS | parameters))
    assert str(caught.value).startswith(message)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(REQUIRED_PARAMETERS | {"memory": "much", "cpu_nums": -1, "entry_point": ""}))
    assert len(caught.value.problems) == 3


def test_problems_of_all_kinds_are_reported_at_once() -> None:
    wrong = {
        "job_name": 5,
        "trainers": "three",
        "memory": "512",
        "shared_memory": "64",
        "gang_scheduling": "yes",
        "queue": "research",
        "volumes": [ClaimVolume("a", "")],
        "labels": {"a": 1},
        "entry_point": "python 'train.py",
        "env": {"LAUNCHER_SILENCE": "1", "JOB_PATH": "volume"},
    }
    with pytest.raises(ConfigProblems) as caught:
        PaddleJob(**(REQUIRED_PARAMETERS | wrong))
    paths = [re.split(r"[.\[:]", problem)[0] for problem in caught.value.problems]
    assert sorted({*paths}) == sorted({*wrong} - {"queue"})
    assert {"env: JOB_PATH: 'volume'", "env: LAUNCHER_SILENCE: '1'"} <= {
        problem.partition(": expected")[0] for problem in caught.value.problems
    }


@pytest.mark.parametrize(
    ("quantity", "meant"), [("512", "512M or 512Mi"), ("4", "4M or 4Mi"), ("1.5", "1.5M or 1.5Mi"), ("8K", "8M or 8Mi")]
)
def test_a_memory_of_a_few_bytes_is_refused(quantity: str, meant: str) -> None:
    for parameter in ("memory", "shared_memory"):
        with pytest.raises(ConfigProblems) as caught:
            PaddleJob(**(REQUIRED_PARAMETERS | {parameter: quantity}))
        assert re.fullmatch(
            rf"{parameter}: '{quantity}': is \d+(\.\d)? bytes, too little for any program: expected {meant}\?",
            str(caught.value),
        )


@pytest.mark.parametrize("quantity", ["2147483648", "1M", "1Mi", "512000K", "0.5G", "4Gi"])
def test_a_memory_in_bytes_that_is_enough_is_kept(quantity: str) -> None:
    PaddleJob(**(REQUIRED_PARAMETERS | {"memory": quantity}))


def test_a_variable_that_the_launcher_would_refuse_is_refused_before_there_are_pods() -> None:
    with pytest.raises(ConfigProblems, match="LAUNCHER_PEER_TIMEOUT: 'soon'"):
        PaddleJob(**REQUIRED_PARAMETERS, env={"LAUNCHER_PEER_TIMEOUT": "soon"})


def test_a_variable_without_effect_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="words: .*PADDLE_TRAINER_ID is set by the launcher"):
        PaddleJob(**REQUIRED_PARAMETERS, env={"PADDLE_TRAINER_ID": "7"}).to_yaml()


def test_cephfs_needs_a_namespace() -> None:
    with pytest.raises(ConfigProblems, match="namespace: missing"):
        PaddleJob(**REQUIRED_PARAMETERS, cephfs_volume=CephFSVolume("10.0.0.1:6789")).to_yaml()


def test_a_job_with_job_path_has_no_secret_object() -> None:
    assert of_kind(objects_of(), "Secret")
    assert not of_kind(objects_of(env={"JOB_PATH": "/claim"}, volumes=[ClaimVolume("/claim", "paddle")]), "Secret")


def test_the_same_file_trains_inside_and_submits_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    submitted: list[str] = []
    monkeypatch.setattr(PaddleJob, "submit", lambda job: submitted.append(job.job_name))
    assert dist_train(lambda: "trained", PaddleJob(**REQUIRED_PARAMETERS)) is None
    assert submitted == ["words"]
    monkeypatch.setenv("LAUNCHER_GENERATION", "0")
    assert inside_a_job()
    assert dist_train(lambda: "trained", PaddleJob(**REQUIRED_PARAMETERS)) == "trained"
    assert submitted == ["words"]


def test_a_job_does_not_submit_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAUNCHER_GENERATION", "0")
    with pytest.raises(Failure, match="already runs inside a job"):
        PaddleJob(**REQUIRED_PARAMETERS).submit()


def test_programs_import_the_job_module_without_paddle_and_without_the_client() -> None:
    program = (
        "import sys\nsys.modules['paddle'] = None\nimport launcher.job\n"
        "launcher.job.PaddleJob(job_name='a', entry_point='python t.py', runtime_image='i')\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('kubernetes', 'yaml', 'psutil')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
