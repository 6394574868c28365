"""The fields of a PaddleJob in YAML: problems, notes, and what they become."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from launcher.errors import Exit
from launcher.job import from_yaml
from launcher.job.findings import Findings
from launcher.job.manifests import objects
from tests.support.paths import PADDLEJOBS
from tests.support.render_command import WORKER, messages, paddle_job, render, role
from tests.support.rendering import INJECTED, example, missing

ENTRYPOINT = "--entrypoint=python3 train.py"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("null", "spec: missing"),
        ("[]", "spec: []: expected a mapping"),
        (f"{{ps: {role()}}}", "spec.worker: missing"),
        (f"{{{WORKER}, tasks: []}}", "spec.tasks: only an unreleased version of the operator has this field"),
        (f"{{worker: {role(replicas=0)}}}", "spec.worker.replicas: 0: expected 1 or more"),
        (f"{{ps: {role(replicas=0)}, {WORKER}}}", "spec.ps.replicas: 0: expected 1 or more: leave ps out"),
        (f"{{worker: {role(replicas='two')}}}", "spec.worker.replicas: 'two': expected a whole number"),
        (f"{{worker: {role(replicas='true')}}}", "spec.worker.replicas: True: expected a whole number"),
        ("{worker: {template: {spec: {containers: [{name: a, command: [b]}]}}}}", "spec.worker.replicas: missing"),
        ("{worker: {replicas: 2}}", "spec.worker.template: missing"),
        ("{worker: {replicas: 2, template: {}}}", "spec.worker.template.spec: missing"),
        (
            "{worker: {replicas: 2, template: {spec: {}}}}",
            "spec.worker.template.spec.containers: expected at least one container",
        ),
        (
            "{worker: {replicas: 2, template: {spec: {containers: [{command: [a]}]}}}}",
            "spec.worker.template.spec.containers[0].name: missing",
        ),
        (
            f"{{worker: {role(', args: [--batch, 64]')}}}",
            "spec.worker.template.spec.containers[0].args[1]: 64: expected text, in quotes",
        ),
        (
            f"{{worker: {role(', env: [{name: A, value: 1}]')}}}",
            "spec.worker.template.spec.containers[0].env[0].value: 1: expected text, in quotes",
        ),
        (
            f"{{worker: {role(pod=', volumes: [{name: paddle-launcher}]')}}}",
            "spec.worker.template.spec.volumes[0].name: 'paddle-launcher': reserved for the launcher",
        ),
        (
            f"{{worker: {role(', volumeMounts: [{name: a, mountPath: /launcher/}]')}}}",
            "spec.worker.template.spec.containers[0].volumeMounts[0].mountPath: '/launcher'",
        ),
        (
            f"{{{WORKER}, heter: {role()}}}",
            "spec.heter: expected ps, too: without parameter servers no heter worker can",
        ),
        (f"{{ps: {role()}, {WORKER}, heter: {role(replicas=0)}}}", "spec.heter.replicas: 0: expected 1 or more: leave"),
        (f"{{ps: {role()}, {WORKER}, heter: {{replicas: 1}}}}", "spec.heter.template: missing"),
        (f"{{{WORKER}, withGloo: 3}}", "spec.withGloo: 3: expected 0"),
        (f"{{{WORKER}, withGloo: yes}}", "spec.withGloo: True: expected a whole number"),
        (
            f"{{{WORKER}, intranet: PodIp}}",
            "spec.intranet: 'PodIp': expected one of PodIP, Service, Host: did you mean PodIP?",
        ),
        (f"{{{WORKER}, serviceMode: Pod}}", "spec.serviceMode: 'Pod': expected one of PodIP, Service, Host"),
        (f"{{{WORKER}, cleanPodPolicy: 1}}", "spec.cleanPodPolicy: 1: expected text"),
        (
            f"{{worker: {role(', env: [{name: LAUNCHER_STOP_GRACE, value: soon}]')}}}",
            "spec.worker.template.spec.containers[0]: LAUNCHER_STOP_GRACE: 'soon': expected seconds",
        ),
        (
            f"{{{WORKER}, ps: {role(', args: [-m, paddle.distributed.launch, x.py]')}}}",
            "spec.ps.template.spec.containers[0]: -- python3 train.py -m paddle.distributed.launch: "
            "Paddle's launcher never ends",
        ),
    ],
)
def test_a_problem_names_its_field(spec: str, expected: str) -> None:
    ended = render(text=paddle_job(spec))
    assert ended.returncode == Exit.CONFIG
    assert len(messages(ended)) == 1, ended.stderr
    assert messages(ended)[0].startswith(expected)
    assert ended.stdout == ""


def test_problems_of_a_template_and_of_its_job_are_reported_together_with_the_notes() -> None:
    container = ", resources: {limits: {memory: 512}}, env: [{name: LAUNCHER_SILENCE, value: short}]"
    volumes = ", volumes: [{name: paddle-launcher}, {name: shm, emptyDir: {medium: Memory, sizeLimit: 64}}]"
    policy = 'schedulingPolicy: {minResources: {memory: "4"}}'
    ended = render(text=paddle_job(f"{{worker: {role(container, pod=volumes)}, {policy}, intranett: Host}}", "No_Name"))
    assert ended.returncode == Exit.CONFIG
    worker = "spec.worker.template.spec"
    assert sorted(line.split(": ")[0] for line in messages(ended)) == sorted(
        [
            "spec.intranett",
            "metadata.name",
            "spec.schedulingPolicy.minResources.memory",
            f"{worker}.volumes[0].name",
            f"{worker}.volumes[1].emptyDir.sizeLimit",
            f"{worker}.containers[0].resources.limits.memory",
            f"{worker}.containers[0]",
        ]
    )
    assert "512: is 512 bytes, too little for any program: expected 512M or 512Mi?" in ended.stderr


def test_all_problems_are_reported_at_once_and_several_jobs_by_name() -> None:
    wrong = paddle_job(f"{{worker: {role(replicas=0)}, withGloo: 7}}", "first")
    ended = render(text=f"{wrong}---\n{paddle_job('{}', 'second')}---\n{paddle_job(f'{{{WORKER}}}', 'third')}")
    assert ended.returncode == Exit.CONFIG
    assert [line.split(": ")[:2] for line in messages(ended)] == [
        ["first", "spec.worker.replicas"],
        ["first", "spec.withGloo"],
        ["second", "spec.worker"],
    ]
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("x" * 55, "too long by 1: its last pod would be called"),
        ("Big", "expected lower-case letters, digits and -"),
        ("3d", "expected lower-case letters, digits and -, starting with a letter"),
        ("a.b", "expected lower-case letters, digits and -"),
    ],
)
def test_a_name_that_kubernetes_would_refuse_later_is_refused(name: str, problem: str) -> None:
    ended = render(text=paddle_job(f"{{{WORKER}}}", f'"{name}"'))
    assert ended.returncode == Exit.CONFIG
    assert messages(ended)[0].startswith(f"metadata.name: {name!r}: {problem}")


def test_the_longest_name_that_leaves_room_for_the_names_of_pods_is_accepted() -> None:
    ended = render(text=paddle_job(f"{{{WORKER}}}", "x" * (63 - len("-worker-1"))))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            f"{{{WORKER}, intrnet: Service}}",
            "spec.intrnet: ignored: a PaddleJob has no such field: did you mean intranet?",
        ),
        (
            f"{{{WORKER}, intranet: PodIP, serviceMode: Host}}",
            "spec.serviceMode: ignored: intranet is set, too, and has replaced this field",
        ),
        (f"{{worker: {role(more=', minimum: 1')}}}", "spec.worker.minimum: ignored: a PaddleJob has no such field"),
        (
            f"{{{WORKER}, cleanPodPolicy: OnFailed}}",
            "spec.cleanPodPolicy: 'OnFailed': pods and logs are kept: the operator has no such policy: did you mean",
        ),
        (f"{{{WORKER}, withGloo: 1}}", "spec.withGloo: 1: ignored: without ps"),
        (
            f"{{worker: {role(pod=', restartPolicy: OnFailure')}}}",
            "spec.worker.template.spec.restartPolicy: OnFailure: replaced by Never",
        ),
        (f"{{worker: {role(pod=', subdomain: mine')}}}", "spec.worker.template.spec.subdomain: mine: replaced"),
        (f"{{worker: {role(pod=', dnsPolicy: Default')}}}", "spec.worker.template.spec.dnsPolicy: Default: kept"),
        (f"{{{WORKER}, intranet: Host}}", "spec.worker.template.spec.containers[0].env: CONF_PADDLE_NIC: unset"),
        (
            f"{{worker: {role(', env: [{name: CONF_PADDLE_GRADIENT_NUM, value: {q}9{q}}]'.replace('{q}', chr(34)))}}}",
            "spec.worker.template.spec.containers[0].env[0]: CONF_PADDLE_GRADIENT_NUM is set from the job: '2'",
        ),
        (
            f"{{worker: {role(', env: [{name: PADDLE_PORT, value: {q}36000{q}}]'.replace('{q}', chr(34)))}}}",
            "spec.worker.template.spec.containers[0].env[0]: PADDLE_PORT is set by the launcher",
        ),
        (
            f"{{worker: {role(', env: [{name: LAUNCHER_REJOIN_TIMEOT, value: many}]')}}}",
            "spec.worker.template.spec.containers[0].env: LAUNCHER_REJOIN_TIMEOT is ignored, because the launcher",
        ),
        (
            f"{{worker: {role()}, schedulingPolicy: {{minAvailable: 1}}}}",
            "spec.schedulingPolicy.minAvailable: 1: kept, but the job has 2 pods and needs all",
        ),
        (
            f"{{worker: {role(pod=', schedulerName: mine')}, schedulingPolicy: {{queue: a}}}}",
            "spec.*.template.spec.schedulerName: mine: kept",
        ),
    ],
)
def test_a_note_names_its_field_and_the_reason(spec: str, expected: str) -> None:
    ended = render(text=paddle_job(spec))
    assert ended.returncode == 0, ended.stderr
    assert len(messages(ended)) == 1, ended.stderr
    assert messages(ended)[0].startswith(expected)
    assert ended.stdout


@pytest.mark.parametrize("value", ["PodIP", "Service", "Host"])
def test_the_first_name_of_intranet_has_the_same_effect(value: str) -> None:
    alone = f"worker: {role(replicas=1)}"  # its objects have no secret, which differs each time
    first, later = (render(text=paddle_job(f"{{{alone}, {name}: {value}}}")) for name in ("serviceMode", "intranet"))
    assert first.returncode == 0, first.stderr
    assert (first.stdout, first.stderr) == (later.stdout, later.stderr)
    assert ("hostNetwork: true" in first.stdout) == (value == "Host")


def test_a_pod_group_of_the_file_that_is_too_small_is_noted() -> None:
    text = example("volcano.yaml").replace("minMember: 4", "minMember: 3")
    ended = render(ENTRYPOINT, text=text)
    assert messages(ended) == [
        "PodGroup wide-ande-deep: spec.minMember: 3: kept, but the job has 4 pods and needs all: expected 4"
    ]


def test_a_default_of_the_launcher_can_be_changed_without_a_note() -> None:
    env = '[{name: LAUNCHER_MAX_RESTARTS, value: "0"}, {name: LAUNCHER_JOB_ID, value: old}]'
    ended = render("--strict", text=paddle_job(f"{{worker: {role(f', env: {env}')}}}"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("name: LAUNCHER_MAX_RESTARTS\n          value: '0'") == 1
    assert ended.stdout.count("LAUNCHER_JOB_ID") == 1


def test_a_job_with_job_path_has_no_secret_object() -> None:
    env = "[{name: JOB_PATH, value: /data}]"
    ended = render("--strict", text=paddle_job(f"{{worker: {role(f', env: {env}')}}}"))
    assert ended.returncode == 0, ended.stderr
    assert "Secret" not in ended.stdout
    assert "SECRET" not in ended.stdout


def test_a_secret_of_the_file_is_used_for_the_gang() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: job-gang}\nstringData: {secret: s3cret}\n"
    rendered = list(yaml.safe_load_all(render(text=f"{secret}---\n{paddle_job(f'{{{WORKER}}}')}").stdout))
    assert [each["kind"] for each in rendered] == ["Secret", "Service", "Job"]
    assert "secretName: job-gang" in yaml.safe_dump(rendered[2])


def test_all_objects_have_the_labels_of_the_job_and_its_kubernetes_jobs_the_annotations() -> None:
    rendered = list(yaml.safe_load_all(render(str(PADDLEJOBS / "whole-template.yaml")).stdout))
    for each in rendered:
        assert each["metadata"]["namespace"] == "training"
        assert missing({"team": "search", "paddle-launcher/job": "everything"}, each["metadata"]["labels"]) == []
    assert rendered[-1]["metadata"]["annotations"] == {"example.com/cost-center": "42"}
    template = rendered[-1]["spec"]["template"]["metadata"]
    assert template["annotations"]["kubectl.kubernetes.io/default-container"] == "paddle"
    assert template["labels"]["paddle-res-type"] == "worker"


def test_any_wrong_value_in_a_file_is_a_problem_and_never_a_crash() -> None:
    """Replace each value of the examples in turn by values of other types."""
    for name in ("whole-template.yaml", "policy-and-host.yaml", "volcano.yaml", "sample-set.yaml"):
        documents = list(yaml.safe_load_all(example(name)))
        for path in paths(documents):
            for value in (None, 7, True, "x", [], [3], {}, {"x": 3}):
                changed = copy.deepcopy(documents)
                put(changed, path, value)
                first, *others = changed
                if not isinstance(first, dict):
                    continue
                findings = Findings()
                others = [other for other in others if isinstance(other, dict)]
                job_spec = from_yaml.to_job_spec(first, others, INJECTED, findings)
                assert (job_spec is None) == bool(findings.problems)
                if job_spec:
                    objects(job_spec)


def paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the keys that lead to each value."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (key,)
        yield from ((key, *rest) for rest in paths(value[key]))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new
