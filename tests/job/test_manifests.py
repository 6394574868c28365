"""The objects that PaddleJobs become: what Kubernetes makes of them, and what the launcher in their pods does."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import config, paddle
from launcher.config import JobConfig
from launcher.discovery import dns
from launcher.errors import FOR_GOOD
from launcher.job.from_yaml import Asked
from launcher.job.pod_env import SET_BY_LAUNCHER
from launcher.model import Member, Roster
from launcher.paddle.fleet import PROXIES
from launcher.run.join import finder_settings
from tests.support.jobs import until
from tests.support.nodes import Nodes
from tests.support.paths import K8S, REPOSITORY
from tests.support.rendering import (
    AS_IT_IS,
    FILES,
    INJECTED,
    SERVERS_AND_TRAINERS,
    Json,
    environment,
    from_text,
    given,
    is_modelled,
    jobs,
    missing,
    of_kind,
    pod,
    read,
    rendered,
    through_the_client,
    trains,
    variables,
    with_quantities_as_text,
)


@pytest.mark.parametrize("asked", [INJECTED, AS_IT_IS], ids=["injected", "as it is"])
@pytest.mark.parametrize("name", FILES)
def test_every_object_has_only_fields_that_kubernetes_knows(name: str, asked: Asked) -> None:
    modelled = [made for made in rendered(name, asked) if is_modelled(made)]
    assert modelled
    for made in modelled:
        assert through_the_client(made) == with_quantities_as_text(made)


def test_objects_beside_a_paddle_job_stay_as_they_are() -> None:
    beside = given("seed-5-claim.yaml")
    objects = from_text(f"{beside}---\n{given('seed-5-volume.yaml')}")
    assert objects[:2] == list(yaml.safe_load_all(beside))
    for made in objects[:2]:
        assert through_the_client(made) == with_quantities_as_text(made)


def test_a_field_that_kubernetes_does_not_know_would_show() -> None:
    job = jobs(rendered("seed-1-wide-and-deep.yaml"))["wide-ande-deep-ps"]
    pod(job)["tolertions"] = []
    assert through_the_client(job) != with_quantities_as_text(job)


@pytest.mark.parametrize("name", FILES)
def test_what_the_user_wrote_into_a_template_is_kept(name: str) -> None:
    (wanted,) = (each for each in yaml.safe_load_all(given(name)) if each["kind"] == "PaddleJob")
    made = jobs(rendered(name))
    for role in ("ps", "worker"):
        if role not in wanted["spec"]:
            continue
        template = wanted["spec"][role]["template"]
        for each in template["spec"]["containers"]:
            if each["name"] != "logs":  # all others train
                each.pop("command", None)
                each.pop("args", None)
        job = made[f"{wanted['metadata']['name']}-{role}"]
        assert missing(template, job["spec"]["template"]) == []
        assert job["spec"]["parallelism"] == job["spec"]["completions"] == wanted["spec"][role]["replicas"]


def test_pods_are_never_started_again_in_place_whatever_the_template_says() -> None:
    text = given("seed-5-volume.yaml").replace('restartPolicy: "Never"', "restartPolicy: OnFailure")
    assert {pod(job)["restartPolicy"] for job in jobs(from_text(text)).values()} == {"Never"}
    assert {pod(job)["restartPolicy"] for job in jobs(rendered("seed-2-resnet.yaml")).values()} == {"Never"}


def test_the_command_and_the_args_run_below_the_launcher() -> None:
    main = trains(jobs(rendered("seed-5-volume.yaml"))["paddlejob-demo-1-worker"])
    assert main["command"] == ["/launcher/paddle-launcher"]
    assert main["args"] == ["run", "--", "bash", "-c", "cd /nas/wide_and_deep; python3 train.py"]
    main = trains(jobs(rendered("seed-2-resnet.yaml"))["resnet-worker"])
    assert main["args"][1:] == ["--", "python", "-m", "paddle.distributed.launch", "train_fleet.py"]


def test_an_image_with_the_launcher_needs_nothing_brought_along() -> None:
    job = jobs(rendered("seed-5-volume.yaml", AS_IT_IS))["paddlejob-demo-1-ps"]
    assert trains(job)["command"] == ["paddle-launcher"]
    assert trains(job)["readinessProbe"]["exec"]["command"] == ["paddle-launcher", "alive"]
    assert "initContainers" not in pod(job)
    assert {volume["name"] for volume in pod(job)["volumes"]} == {"data", "paddle-launcher-secret"}


def test_the_launcher_is_brought_before_anything_else_starts_to_where_it_runs() -> None:
    job = jobs(rendered("whole-template.yaml"))["everything-worker"]
    bringing, *others = pod(job)["initContainers"]
    assert [each["name"] for each in others] == ["fetch", "metrics"]
    (volume,) = (mount["name"] for mount in bringing["volumeMounts"] if mount["mountPath"] == "/inject")
    assert {"name": volume, "mountPath": "/launcher", "readOnly": True} in trains(job)["volumeMounts"]
    assert {"name": volume, "emptyDir": {}} in pod(job)["volumes"]


def test_a_pod_that_may_not_be_roots_gets_a_launcher_from_somebody_else() -> None:
    (bringing, *_) = pod(jobs(rendered("whole-template.yaml"))["everything-worker"])["initContainers"]
    assert bringing["securityContext"]["runAsUser"] > 0
    (bringing,) = pod(jobs(rendered("seed-2-resnet.yaml"))["resnet-worker"])["initContainers"]
    assert "runAsUser" not in bringing["securityContext"]


@pytest.mark.parametrize("name", FILES)
def test_the_launcher_understands_what_it_is_told_and_the_roles_make_one_gang(name: str) -> None:
    made = jobs(rendered(name))
    configs = [read(job, index) for job in made.values() for index in range(job["spec"]["completions"])]
    assert len({each.shape for each in configs}) == 1
    assert all(each.members == len(configs) for each in configs)
    assert all(not each.warnings for each in configs)
    ranks = [each.discovery.rank for each in configs]
    assert sorted(rank for rank in ranks if rank is not None) == list(range(len(configs)))
    assert {each.discovery.job_id for each in configs} == {"job-uid"}
    assert {each.restarts.most for each in configs} == {3}
    modes = {paddle.mode(each, ("python3", "train.py")) for each in configs}
    assert modes == {"ps" if len(made) == 2 else "single" if len(configs) == 1 else "collective"}


@pytest.mark.parametrize("name", [name for name in FILES if name != "sample-set.yaml"])
def test_the_pods_find_the_first_worker_by_a_name_that_kubernetes_gives_it(name: str) -> None:
    """An Indexed Job's pod i has the host name <job>-<i>, below its subdomain, which is the Service's name."""
    objects = rendered(name)
    made = jobs(objects)
    (service,) = of_kind(objects, "Service")
    (worker,) = (job for name, job in made.items() if name.endswith("-worker"))
    host = f"{worker['metadata']['name']}-0.{service['metadata']['name']}"
    for job in made.values():
        assert pod(job)["subdomain"] == service["metadata"]["name"]
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert missing(service["spec"]["selector"], labels) == []
        index = 0 if job is not worker else 1
        told = environment(job, index) | {"LAUNCHER_WORKDIR": "/"}
        settings = _settings(config.read(told, {}, check_here=False), f"{job['metadata']['name']}-{index}")
        assert dns.hub_name(settings, index).startswith(f"{host}.") or dns.hub_name(settings, index) == host
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True


def _settings(read: JobConfig, host: str) -> Any:
    return replace(finder_settings(read, rejoin=False), host_name=host)


def test_the_policy_goes_by_the_exit_codes_of_the_container_that_trains() -> None:
    job = jobs(rendered("whole-template.yaml"))["everything-worker"]
    for_good, consequences, disrupted = job["spec"]["podFailurePolicy"]["rules"]
    assert for_good["action"] == "FailJob"
    assert for_good["onExitCodes"]["values"] == sorted(map(int, FOR_GOOD))
    assert for_good["onExitCodes"]["containerName"] == consequences["onExitCodes"]["containerName"] == "paddle"
    assert consequences["action"] == disrupted["action"] == "Ignore"
    assert consequences["onExitCodes"]["values"] == [69, 143]
    assert variables(job)["LAUNCHER_BACKOFF_LIMIT"] == str(job["spec"]["backoffLimit"])


def test_the_same_policy_is_in_our_manifests() -> None:
    manifests = K8S / "ps-and-workers" / "jobs.yaml"
    theirs = next(iter(yaml.safe_load_all(manifests.read_text())))["spec"]["podFailurePolicy"]
    text = yaml.safe_dump(jobs(rendered("seed-1-wide-and-deep.yaml"))["wide-ande-deep-ps"]["spec"]["podFailurePolicy"])
    assert yaml.safe_load(text.replace("containerName: paddle", "containerName: trainer")) == theirs


def test_each_run_has_a_secret_of_its_own_under_a_name_of_its_own() -> None:
    """A node may give pods what it still has of a Secret that was deleted and made again under its name."""
    first, second = (rendered("seed-5-volume.yaml") for _ in range(2))
    secrets = [of_kind(made, "Secret")[0] for made in (first, second)]
    values = [base64.b64decode(made["data"]["secret"]) for made in secrets]
    assert values[0] != values[1]
    assert all(len(bytes.fromhex(value.decode())) == 32 for value in values)
    assert all(made["immutable"] for made in secrets)
    assert secrets[0]["metadata"]["name"] != secrets[1]["metadata"]["name"]
    for made, secret in zip((first, second), secrets, strict=True):
        for job in jobs(made).values():
            mounts = {mount["name"]: mount["mountPath"] for mount in trains(job)["volumeMounts"]}
            (volume,) = (each for each in pod(job)["volumes"] if "secret" in each)
            assert volume["secret"]["secretName"] == secret["metadata"]["name"]
            assert variables(job)["LAUNCHER_SECRET_FILE"] == f"{mounts[volume['name']]}/secret"


def test_a_job_of_one_has_neither_names_nor_secrets() -> None:
    assert [made["kind"] for made in rendered("sample-set.yaml")] == ["Job"]


def test_gloo_is_what_paddle_is_told_and_all_start_together_then() -> None:
    made = jobs(rendered("seed-1-wide-and-deep.yaml"))
    members = [(f"pod-{rank}", f"uid-{rank}", f"10.0.0.{rank}", f"10.0.0.{rank}", rank) for rank in range(4)]
    roster = Roster(tuple(Member(*member, "trainer" if member[-1] < 2 else "pserver") for member in members))
    server = paddle.plan(read(made["wide-ande-deep-ps"]), (), ("python",), roster, 2).servers[0]
    trainer = paddle.plan(read(made["wide-ande-deep-worker"]), (), ("python",), roster, 0).trainers[0]
    for process in (server, trainer):
        assert process.env["PADDLE_WITH_GLOO"] == "1"
        assert process.env["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.0.0.2:7165", "the server's own port would be taken"
    assert server.ports == (), "a server that waits for trainers is not waited for"
    assert "PADDLE_WITH_GLOO" not in variables(jobs(rendered("seed-3-gpu-nodes.yaml"))["wide-ande-deep-ps"])


@pytest.mark.parametrize(("name", "mode"), [("seed-1-wide-and-deep.yaml", "ps"), ("seed-2-resnet.yaml", "collective")])
def test_whatever_the_launcher_tells_programs_itself_is_known_to_render(name: str, mode: str) -> None:
    for job in jobs(rendered(name)).values():
        index = int(job["spec"]["parallelism"]) - 1
        own = environment(job, index)
        first = paddle.plan(config.read(own, {}, check_here=False), (), ("python",), None, None)
        told = {name for process in (*first.servers, *first.trainers) for name in process.env} - set(PROXIES)
        sentinel = dict.fromkeys(told - own.keys() - {"LAUNCHER_WORKDIR"}, "mine")  # which the launcher reads itself
        read = config.read(own | sentinel, {}, check_here=False)
        plan = paddle.plan(read, (), ("python",), None, None)
        replaced = {
            name
            for process in (*plan.servers, *plan.trainers)
            for name in sentinel
            if process.env.get(name) not in (None, "mine")
        }
        assert replaced <= SET_BY_LAUNCHER[mode]
        if job["metadata"]["name"].endswith("-worker"):
            assert replaced == SET_BY_LAUNCHER[mode]


def test_on_the_nodes_own_network_names_resolve_and_no_two_pods_share_a_node() -> None:
    made = jobs(rendered("policy-and-host.yaml"))
    for job in made.values():
        assert pod(job)["hostNetwork"] is True
        assert pod(job)["dnsPolicy"] == "ClusterFirstWithHostNet"
    ports = {name: {port["hostPort"] for port in trains(job)["ports"]} for name, job in made.items()}
    server, worker = read(made["on-the-nodes-ps"]), read(made["on-the-nodes-worker"])
    assert {server.port, server.gang.port} <= ports["on-the-nodes-ps"]
    assert {worker.gang.port, worker.gang.port + 1} <= ports["on-the-nodes-worker"]
    assert ports["on-the-nodes-ps"] & ports["on-the-nodes-worker"]


def test_a_role_of_one_on_the_nodes_own_network_is_not_found_by_the_nodes_name() -> None:
    text = given("seed-2-resnet.yaml").replace("containers:", "hostNetwork: true\n        containers:")
    job = jobs(from_text(text))["resnet-worker"]
    assert pod(job)["dnsPolicy"] == "ClusterFirstWithHostNet"
    read = config.read(environment(job, 1), {}, check_here=False)
    assert dns.hub_name(_settings(read, "some-node"), 1).startswith("resnet-worker-0.resnet")


@pytest.mark.parametrize(
    ("policy", "kept"), [("Never", None), ("Always", 0), ("OnCompletion", None), ("OnFailure", None)]
)
def test_only_always_removes_what_has_ended(policy: str, kept: int | None) -> None:
    text = given("seed-1-wide-and-deep.yaml")
    for job in jobs(from_text(text.replace("cleanPodPolicy: Never", f"cleanPodPolicy: {policy}"))).values():
        assert job["spec"].get("ttlSecondsAfterFinished") == kept


def test_all_pods_are_in_the_pod_group_of_the_file_which_is_kept() -> None:
    objects = rendered("seed-4-volcano.yaml")
    (group,) = of_kind(objects, "PodGroup")
    assert group["spec"] == {"minMember": 4}
    assert objects[-1] == group, "what is beside a PaddleJob keeps its place"
    for job in jobs(objects).values():
        assert pod(job)["schedulerName"] == "volcano"
        assert job["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "wide-ande-deep"


def test_a_pod_group_is_made_where_there_is_none() -> None:
    text = given("seed-4-volcano.yaml").replace("kind: PodGroup", "kind: SomethingElse")
    (group,) = of_kind(from_text(text), "PodGroup")
    assert group["metadata"]["name"] == "wide-ande-deep"
    assert group["spec"] == {"minMember": 4}
    (group,) = of_kind(rendered("policy-and-host.yaml"), "PodGroup")
    assert group["spec"] == {
        "minMember": 3,
        "queue": "night",
        "priorityClassName": "batch",
        "minResources": {"cpu": "6", "memory": "12Gi"},
    }


def test_the_time_to_stop_follows_from_the_pods_grace() -> None:
    assert variables(jobs(rendered("whole-template.yaml"))["everything-worker"])["LAUNCHER_STOP_GRACE"] == "85"
    assert variables(jobs(rendered("seed-2-resnet.yaml"))["resnet-worker"])["LAUNCHER_STOP_GRACE"] == "25"


def test_variables_of_the_user_may_refer_to_those_of_the_pod() -> None:
    """Kubernetes puts into a value what came before it."""
    names = [entry["name"] for entry in trains(jobs(rendered("whole-template.yaml"))["everything-worker"])["env"]]
    assert names.index("POD_NAME") < names.index("WHERE")
    assert len(names) == len(set(names))


def test_the_pods_of_the_seeds_fifth_example_train_as_one_gang(tmp_path: Path) -> None:
    made = jobs(rendered("seed-5-volume.yaml"))
    (tmp_path / "wide_and_deep").mkdir()
    (tmp_path / "wide_and_deep" / "train.py").write_text(SERVERS_AND_TRAINERS)
    (tmp_path / "secret").write_text("the gang's own")
    pods = [(made[f"paddlejob-demo-1-{role}"], index) for role in ("worker", "ps") for index in range(2)]
    with Nodes(len(pods)) as nodes:
        running = [start(nodes, place, job, index, tmp_path) for place, (job, index) in enumerate(pods)]
        until(lambda: all(process.poll() is not None for process in running), 60)
    said = [(tmp_path / f"log-{place}").read_text() for place in range(len(pods))]
    assert [process.returncode for process in running] == [0, 0, 0, 0], said
    for index in range(2):
        assert f"trainer {index} reached 2" in said[index]


def start(nodes: Nodes, place: int, job: Json, index: int, folder: Path) -> subprocess.Popen[bytes]:
    """One pod's launcher on this machine: peers by their addresses, and what is mounted in pods below a folder."""
    workdir = folder / f"work-{place}"
    workdir.mkdir()
    own = {
        "LAUNCHER_PEERS": f"trainer={','.join(nodes.addresses[:2])};pserver={','.join(nodes.addresses[2:])}",
        "LAUNCHER_SECRET_FILE": str(folder / "secret"),
        "LAUNCHER_WORKDIR": str(workdir),
        "LAUNCHER_TERMINATION_LOG": str(folder / "none"),
        "CONF_PADDLE_NIC": nodes.devices[place],
        "POD_IP": nodes.addresses[place],
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
    }
    words = [word.replace("/nas", str(folder)) for word in trains(job)["args"]]
    command = [sys.executable, "-m", "launcher", *words]
    with (folder / f"log-{place}").open("wb") as log:
        return nodes.popen(command, env=environment(job, index) | own, stdout=log, stderr=subprocess.STDOUT)
