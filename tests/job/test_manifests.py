"""The objects of a job: whether Kubernetes knows their fields, and what the launcher does in their pods."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from launcher import config, paddle
from launcher.config import JobConfig
from launcher.discovery import dns
from launcher.discovery.finder import FinderSettings
from launcher.errors import FOR_GOOD
from launcher.job.from_yaml import RenderOptions
from launcher.job.pod_env import SET_BY_LAUNCHER
from launcher.model import Member, Roster, Shape
from launcher.paddle.fleet import PROXIES
from launcher.run.join import finder_settings
from tests.support.jobs import until
from tests.support.nodes import Nodes
from tests.support.paths import K8S, REPOSITORY
from tests.support.rendering import (
    EXAMPLES,
    INJECTED,
    NOT_INJECTED,
    SERVERS_AND_TRAINERS,
    Json,
    environment,
    example,
    has_model,
    jobs,
    main_container,
    missing,
    of_kind,
    plain_variables,
    pod_spec,
    quantities_as_text,
    read_config,
    render_example,
    render_text,
    through_the_model,
)


@pytest.mark.parametrize("options", [INJECTED, NOT_INJECTED], ids=["injected", "not injected"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_object_has_only_fields_that_kubernetes_knows(name: str, options: RenderOptions) -> None:
    modelled = [rendered for rendered in render_example(name, options) if has_model(rendered)]
    assert modelled
    for rendered in modelled:
        assert through_the_model(rendered) == quantities_as_text(rendered)


def test_other_objects_of_a_file_are_not_changed() -> None:
    beside = example("claim.yaml")
    objects = render_text(f"{beside}---\n{example('volume.yaml')}")
    assert objects[:2] == list(yaml.safe_load_all(beside))
    for rendered in objects[:2]:
        assert through_the_model(rendered) == quantities_as_text(rendered)


def test_a_field_that_kubernetes_does_not_know_is_detected() -> None:
    job = jobs(render_example("wide-and-deep.yaml"))["wide-ande-deep-ps"]
    pod_spec(job)["tolertions"] = []
    assert through_the_model(job) != quantities_as_text(job)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_fields_of_the_users_template_are_kept(name: str) -> None:
    (wanted,) = (each for each in yaml.safe_load_all(example(name)) if each["kind"] == "PaddleJob")
    rendered = jobs(render_example(name))
    for role in ("ps", "worker"):
        if role not in wanted["spec"]:
            continue
        template = wanted["spec"][role]["template"]
        template["spec"].pop("restartPolicy", None)  # always Never
        for each in template["spec"]["containers"]:
            if each["name"] != "logs":  # the main container
                each.pop("command", None)
                each.pop("args", None)
        job = rendered[f"{wanted['metadata']['name']}-{role}"]
        assert missing(template, job["spec"]["template"]) == []
        assert job["spec"]["parallelism"] == job["spec"]["completions"] == wanted["spec"][role]["replicas"]


def test_the_restart_policy_is_always_never() -> None:
    text = example("volume.yaml").replace('restartPolicy: "Never"', "restartPolicy: OnFailure")
    assert {pod_spec(job)["restartPolicy"] for job in jobs(render_text(text)).values()} == {"Never"}
    assert {pod_spec(job)["restartPolicy"] for job in jobs(render_example("resnet.yaml")).values()} == {"Never"}


def test_the_launcher_runs_command_and_args() -> None:
    main = main_container(jobs(render_example("volume.yaml"))["paddlejob-demo-1-worker"])
    assert main["command"] == ["/launcher/paddle-launcher"]
    assert main["args"] == ["run", "--", "bash", "-c", "cd /nas/wide_and_deep; python3 train.py"]
    main = main_container(jobs(render_example("resnet.yaml"))["resnet-worker"])
    assert main["args"][1:] == ["--", "python", "-m", "paddle.distributed.launch", "train_fleet.py"]


def test_an_image_with_the_launcher_needs_no_init_container() -> None:
    job = jobs(render_example("volume.yaml", NOT_INJECTED))["paddlejob-demo-1-ps"]
    assert main_container(job)["command"] == ["paddle-launcher"]
    assert main_container(job)["readinessProbe"]["exec"]["command"] == ["paddle-launcher", "alive"]
    assert "initContainers" not in pod_spec(job)
    assert {volume["name"] for volume in pod_spec(job)["volumes"]} == {"data", "paddle-launcher-secret"}


def test_the_first_init_container_copies_the_launcher_to_the_volume_it_runs_from() -> None:
    job = jobs(render_example("whole-template.yaml"))["everything-worker"]
    inject, *others = pod_spec(job)["initContainers"]
    assert [each["name"] for each in others] == ["fetch", "metrics"]
    (volume,) = (mount["name"] for mount in inject["volumeMounts"] if mount["mountPath"] == "/inject")
    assert {"name": volume, "mountPath": "/launcher", "readOnly": True} in main_container(job)["volumeMounts"]
    assert {"name": volume, "emptyDir": {}} in pod_spec(job)["volumes"]


def test_the_init_container_does_not_run_as_root_if_the_pod_may_not() -> None:
    (inject, *_) = pod_spec(jobs(render_example("whole-template.yaml"))["everything-worker"])["initContainers"]
    assert inject["securityContext"]["runAsUser"] > 0
    (inject,) = pod_spec(jobs(render_example("resnet.yaml"))["resnet-worker"])["initContainers"]
    assert "runAsUser" not in inject["securityContext"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_launchers_of_all_roles_read_the_configuration_of_one_gang(name: str) -> None:
    rendered = jobs(render_example(name))
    configs = [read_config(job, index) for job in rendered.values() for index in range(job["spec"]["completions"])]
    assert len({each.shape for each in configs}) == 1
    for each in configs:
        assert each.least + each.shape.pservers <= len(configs) <= each.members
        assert each.is_elastic or len(configs) == each.members
    assert all(not each.warnings for each in configs)
    ranks = [each.discovery.rank for each in configs]
    assert sorted(rank for rank in ranks if rank is not None) == list(range(len(configs)))
    assert {each.discovery.job_id for each in configs} == {"job-uid"}
    assert {each.restarts.max_restarts for each in configs} == {3}
    modes = {paddle.mode(each, ("python3", "train.py")) for each in configs}
    assert modes == {"ps" if len(rendered) > 1 else "single" if len(configs) == 1 else "collective"}


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "sample-set.yaml"])
def test_the_pods_find_the_first_worker_by_the_host_name_that_kubernetes_gives_it(name: str) -> None:
    """Pod i of an Indexed Job has the host name <job>-<i>.<subdomain>, and the subdomain is the Service."""
    objects = render_example(name)
    rendered = jobs(objects)
    (service,) = of_kind(objects, "Service")
    (worker,) = (job for name, job in rendered.items() if name.endswith("-worker"))
    host = f"{worker['metadata']['name']}-0.{service['metadata']['name']}"
    for job in rendered.values():
        assert pod_spec(job)["subdomain"] == service["metadata"]["name"]
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert missing(service["spec"]["selector"], labels) == []
        index = 0 if job is not worker else 1
        variables = environment(job, index) | {"LAUNCHER_WORKDIR": "/"}
        settings = _settings(config.read(variables, {}, check_here=False), f"{job['metadata']['name']}-{index}")
        assert dns.hub_name(settings, index).startswith(f"{host}.") or dns.hub_name(settings, index) == host
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True


def _settings(job_config: JobConfig, host: str) -> FinderSettings:
    return replace(finder_settings(job_config, rejoin=False), host_name=host)


def test_the_pod_failure_policy_uses_the_exit_codes_of_the_main_container() -> None:
    job = jobs(render_example("whole-template.yaml"))["everything-worker"]
    for_good, consequences, disrupted = job["spec"]["podFailurePolicy"]["rules"]
    assert for_good["action"] == "FailJob"
    assert for_good["onExitCodes"]["values"] == sorted(map(int, FOR_GOOD))
    assert for_good["onExitCodes"]["containerName"] == consequences["onExitCodes"]["containerName"] == "paddle"
    assert consequences["action"] == disrupted["action"] == "Ignore"
    assert consequences["onExitCodes"]["values"] == [69, 143]
    assert plain_variables(job)["LAUNCHER_BACKOFF_LIMIT"] == str(job["spec"]["backoffLimit"])


def test_the_manifests_in_k8s_have_the_same_pod_failure_policy() -> None:
    manifests = K8S / "ps-and-workers" / "jobs.yaml"
    theirs = next(iter(yaml.safe_load_all(manifests.read_text())))["spec"]["podFailurePolicy"]
    text = yaml.safe_dump(jobs(render_example("wide-and-deep.yaml"))["wide-ande-deep-ps"]["spec"]["podFailurePolicy"])
    assert yaml.safe_load(text.replace("containerName: paddle", "containerName: trainer")) == theirs


def test_each_role_of_a_job_with_heter_workers_is_a_job_that_knows_all_roles() -> None:
    rendered = jobs(render_example("heter.yaml"))
    assert {name: job["spec"]["completions"] for name, job in rendered.items()} == {
        "clicks-ps": 1,
        "clicks-worker": 2,
        "clicks-heter": 2,
    }
    for name, job in rendered.items():
        found = read_config(job, job["spec"]["completions"] - 1)
        assert found.shape == Shape(trainers=2, pservers=1, heters=2)
        assert found.role == {"clicks-ps": "pserver", "clicks-worker": "trainer", "clicks-heter": "heter"}[name]
        assert found.discovery.service == "trainer=clicks-worker.clicks"
    worker = read_config(rendered["clicks-heter"], 1)
    assert (worker.discovery.rank, worker.stage(1)) == (4, 3)


def test_a_heter_worker_on_the_network_of_its_node_takes_the_port_on_which_it_listens() -> None:
    on_host = example("heter.yaml").replace("cleanPodPolicy: Never", "intranet: Host")
    ports = main_container(jobs(render_text(on_host))["clicks-heter"])["ports"]
    assert [port["hostPort"] for port in ports] == [7164, 7168]


@pytest.mark.parametrize("name", ["heter", "job", "job-indexed", "ps-and-workers", "single", "statefulset"])
def test_volcano_waits_for_all_pods_of_a_job_in_k8s(name: str) -> None:
    """More than that could never be scheduled, fewer would start without the others."""
    folder = K8S / "options" / "volcano" / name
    texts = [path.read_text() for path in (K8S / name).glob("*.yaml")]
    specs = [each.get("spec", {}) for text in texts for each in yaml.safe_load_all(text)]
    pods = sum(spec.get("completions") or spec.get("replicas") or 1 for spec in specs if "template" in spec)
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    annotations = [yaml.safe_load(patch["patch"])[0]["value"] for patch in component["patches"]]
    groups = [yaml.safe_load((folder / resource).read_text()) for resource in component.get("resources", [])]
    if groups:
        assert [group["spec"]["minMember"] for group in groups] == [pods]
        assert annotations == [{"scheduling.k8s.io/group-name": groups[0]["metadata"]["name"]}]
    else:
        assert annotations == [{"scheduling.volcano.sh/group-min-member": str(pods)}]


def test_each_rendering_has_a_new_secret_with_a_new_name() -> None:
    """A node may still have a deleted Secret in its cache, and mount it for a new Secret of the same name."""
    first, second = (render_example("volume.yaml") for _ in range(2))
    secrets = [of_kind(rendered, "Secret")[0] for rendered in (first, second)]
    values = [base64.b64decode(rendered["data"]["secret"]) for rendered in secrets]
    assert values[0] != values[1]
    assert all(len(bytes.fromhex(value.decode())) == 32 for value in values)
    assert all(rendered["immutable"] for rendered in secrets)
    assert secrets[0]["metadata"]["name"] != secrets[1]["metadata"]["name"]
    for rendered, secret in zip((first, second), secrets, strict=True):
        for job in jobs(rendered).values():
            mounts = {mount["name"]: mount["mountPath"] for mount in main_container(job)["volumeMounts"]}
            (volume,) = (each for each in pod_spec(job)["volumes"] if "secret" in each)
            assert volume["secret"]["secretName"] == secret["metadata"]["name"]
            assert plain_variables(job)["LAUNCHER_SECRET_FILE"] == f"{mounts[volume['name']]}/secret"


def test_a_job_of_one_pod_has_no_service_and_no_secret() -> None:
    assert [rendered["kind"] for rendered in render_example("sample-set.yaml")] == ["Job"]


def test_with_gloo_servers_and_trainers_have_its_variables_and_start_together() -> None:
    rendered = jobs(render_example("wide-and-deep.yaml"))
    members = [(f"pod-{rank}", f"uid-{rank}", f"10.0.0.{rank}", f"10.0.0.{rank}", rank) for rank in range(4)]
    roster = Roster(tuple(Member(*member, "trainer" if member[-1] < 2 else "pserver") for member in members))
    server = paddle.plan(read_config(rendered["wide-ande-deep-ps"]), (), ("python",), roster, 2).servers[0]
    trainer = paddle.plan(read_config(rendered["wide-ande-deep-worker"]), (), ("python",), roster, 0).trainers[0]
    for process in (server, trainer):
        assert process.env["PADDLE_WITH_GLOO"] == "1"
        assert process.env["PADDLE_GLOO_HTTP_ENDPOINT"] == "10.0.0.2:7165", "the server's own port would be taken"
    assert server.ports == (), "trainers do not wait for a server that waits for them"
    assert "PADDLE_WITH_GLOO" not in plain_variables(jobs(render_example("gpu-nodes.yaml"))["wide-ande-deep-ps"])


@pytest.mark.parametrize(("name", "mode"), [("wide-and-deep.yaml", "ps"), ("resnet.yaml", "collective")])
def test_render_knows_all_variables_that_the_launcher_sets_for_programs(name: str, mode: str) -> None:
    for job in jobs(render_example(name)).values():
        index = int(job["spec"]["parallelism"]) - 1
        own = environment(job, index)
        first = paddle.plan(config.read(own, {}, check_here=False), (), ("python",), None, None)
        given = {name for process in (*first.servers, *first.trainers) for name in process.env} - set(PROXIES)
        sentinel = dict.fromkeys(given - own.keys() - {"LAUNCHER_WORKDIR"}, "mine")  # LAUNCHER_WORKDIR is an input
        job_config = config.read(own | sentinel, {}, check_here=False)
        plan = paddle.plan(job_config, (), ("python",), None, None)
        replaced = {
            name
            for process in (*plan.servers, *plan.trainers)
            for name in sentinel
            if process.env.get(name) not in (None, "mine")
        }
        assert replaced <= SET_BY_LAUNCHER[mode]
        if job["metadata"]["name"].endswith("-worker"):
            assert replaced == SET_BY_LAUNCHER[mode]


def test_on_the_host_network_names_resolve_and_no_two_pods_share_a_node() -> None:
    rendered = jobs(render_example("policy-and-host.yaml"))
    for job in rendered.values():
        assert pod_spec(job)["hostNetwork"] is True
        assert pod_spec(job)["dnsPolicy"] == "ClusterFirstWithHostNet"
    ports = {name: {port["hostPort"] for port in main_container(job)["ports"]} for name, job in rendered.items()}
    server, worker = read_config(rendered["on-the-nodes-ps"]), read_config(rendered["on-the-nodes-worker"])
    assert {server.port, server.gang.port} <= ports["on-the-nodes-ps"]
    assert {worker.gang.port, worker.gang.port + 1} <= ports["on-the-nodes-worker"]
    assert ports["on-the-nodes-ps"] & ports["on-the-nodes-worker"]


def test_on_the_host_network_a_job_without_servers_is_found_by_its_own_name() -> None:
    text = example("resnet.yaml").replace("containers:", "hostNetwork: true\n        containers:")
    job = jobs(render_text(text))["resnet-worker"]
    assert pod_spec(job)["dnsPolicy"] == "ClusterFirstWithHostNet"
    job_config = config.read(environment(job, 1), {}, check_here=False)
    assert dns.hub_name(_settings(job_config, "some-node"), 1).startswith("resnet-worker-0.resnet")


@pytest.mark.parametrize(
    ("policy", "ttl"), [("Never", None), ("Always", 0), ("OnCompletion", None), ("OnFailure", None)]
)
def test_only_the_policy_always_deletes_ended_jobs(policy: str, ttl: int | None) -> None:
    text = example("wide-and-deep.yaml")
    for job in jobs(render_text(text.replace("cleanPodPolicy: Never", f"cleanPodPolicy: {policy}"))).values():
        assert job["spec"].get("ttlSecondsAfterFinished") == ttl


def test_all_pods_belong_to_the_pod_group_of_the_file() -> None:
    objects = render_example("volcano.yaml")
    (group,) = of_kind(objects, "PodGroup")
    assert group["spec"] == {"minMember": 4}
    assert objects[-1] == group, "other objects keep their place"
    for job in jobs(objects).values():
        assert pod_spec(job)["schedulerName"] == "volcano"
        assert job["spec"]["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "wide-ande-deep"


def test_a_pod_group_is_made_if_the_file_has_none() -> None:
    text = example("volcano.yaml").replace("kind: PodGroup", "kind: SomethingElse")
    (group,) = of_kind(render_text(text), "PodGroup")
    assert group["metadata"]["name"] == "wide-ande-deep"
    assert group["spec"] == {"minMember": 4}
    (group,) = of_kind(render_example("policy-and-host.yaml"), "PodGroup")
    assert group["spec"] == {
        "minMember": 3,
        "queue": "night",
        "priorityClassName": "batch",
        "minResources": {"cpu": "6", "memory": "12Gi"},
    }


def test_the_stop_grace_follows_from_the_grace_period_of_the_pod() -> None:
    assert (
        plain_variables(jobs(render_example("whole-template.yaml"))["everything-worker"])["LAUNCHER_STOP_GRACE"] == "85"
    )
    assert plain_variables(jobs(render_example("resnet.yaml"))["resnet-worker"])["LAUNCHER_STOP_GRACE"] == "25"


def test_variables_of_the_user_may_refer_to_those_of_the_pod() -> None:
    """Kubernetes expands a reference only to a variable that comes before it."""
    names = [
        entry["name"]
        for entry in main_container(jobs(render_example("whole-template.yaml"))["everything-worker"])["env"]
    ]
    assert names.index("POD_NAME") < names.index("WHERE")
    assert len(names) == len(set(names))


def test_servers_and_trainers_of_an_example_train_as_one_gang(tmp_path: Path) -> None:
    rendered = jobs(render_example("volume.yaml"))
    (tmp_path / "wide_and_deep").mkdir()
    (tmp_path / "wide_and_deep" / "train.py").write_text(SERVERS_AND_TRAINERS)
    (tmp_path / "secret").write_text("shared")
    pods = [(rendered[f"paddlejob-demo-1-{role}"], index) for role in ("worker", "ps") for index in range(2)]
    with Nodes(len(pods)) as nodes:
        running = [start(nodes, place, job, index, tmp_path) for place, (job, index) in enumerate(pods)]
        until(lambda: all(process.poll() is not None for process in running), 60)
    logs = [(tmp_path / f"log-{place}").read_text() for place in range(len(pods))]
    assert [process.returncode for process in running] == [0, 0, 0, 0], logs
    for index in range(2):
        assert f"trainer {index} reached 2" in logs[index]


def start(nodes: Nodes, place: int, job: Json, index: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start the launcher of one pod on a node of this machine, with the volumes of the pod in a folder."""
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
    words = [word.replace("/nas", str(folder)) for word in main_container(job)["args"]]
    command = [sys.executable, "-m", "launcher", *words]
    with (folder / f"log-{place}").open("wb") as log:
        return nodes.popen(command, env=environment(job, index) | own, stdout=log, stderr=subprocess.STDOUT)
