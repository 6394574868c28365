"""`render` as a user meets it: what is on standard output, what on standard error, and the exit code."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from launcher.errors import Exit
from launcher.job import from_yaml
from launcher.job.findings import Findings
from launcher.job.manifests import objects
from tests.support.paths import PADDLEJOBS, REPOSITORY
from tests.support.rendering import INJECTED, given, missing

ENTRYPOINT = "--entrypoint=python3 train.py"
NOTES = {
    "seed-1-wide-and-deep.yaml": [],
    "seed-2-resnet.yaml": [],
    "seed-3-gpu-nodes.yaml": ["spec.cleanPodPolicy: OnCompletion"],
    "seed-4-volcano.yaml": [],
    "seed-5-volume.yaml": ["spec.cleanPolicy: the operator has no such field", "spec.cleanPolicy: OnCompletion"],
    "service-and-gloo.yaml": [
        "spec.cleanPodPolicy: 'Nerver': pods and logs are kept: the operator has no such policy: is Never meant?"
    ],
    "elastic.yaml": ["spec.worker.requests: 2: ignored", "spec.worker.limits: 4: ignored", "spec.elastic: 1: ignored"],
    "sample-set.yaml": [
        "spec.cleanPodPolicy: OnFailure",
        "spec.heter: ignored",
        "spec.sampleSetRef: pictures: ignored",
    ],
    "policy-and-host.yaml": [],
    "whole-template.yaml": ["spec.worker.template.spec.containers[0].name: logs"],
}


def render(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """With a text it is given on standard input."""
    command = [sys.executable, "-m", "launcher", "render", *words, *(["-"] if text is not None else [])]
    path = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=path, input=text, capture_output=True, text=True, timeout=30, check=False)


def said(ended: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on standard error, without who says them."""
    lines = ended.stderr.splitlines()
    assert all(line.startswith(("render: ", "paddle-launcher: ")) for line in lines), ended.stderr
    return [line.partition(": ")[2] for line in lines]


def job(spec: str, name: str = "job") -> str:
    """A PaddleJob with this specification."""
    return f"apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def role(container: str = "", more: str = "", pod: str = "", replicas: object = 2) -> str:
    """A role in one line, with more fields for the container, the role and the pod."""
    first = f"{{name: paddle, image: i, command: [python3, train.py]{container}}}"
    return f"{{replicas: {replicas}{more}, template: {{spec: {{containers: [{first}]{pod}}}}}}}"


WORKER = f"worker: {role()}"


@pytest.mark.parametrize("name", NOTES)
def test_the_seeds_examples_and_the_operators_fields_convert_and_what_cannot_be_is_told(name: str) -> None:
    ended = render(ENTRYPOINT, str(PADDLEJOBS / name))
    assert ended.returncode == 0, ended.stderr
    assert [each["kind"] for each in yaml.safe_load_all(ended.stdout)][-1:] != ["PaddleJob"]
    assert len(said(ended)) == len(NOTES[name]), ended.stderr
    for line, begin in zip(ended.stderr.splitlines(), NOTES[name], strict=True):
        assert line.startswith(f"render: {begin}")


@pytest.mark.parametrize("name", [name for name, notes in NOTES.items() if notes])
def test_strict_renders_nothing_that_is_not_as_asked_for(name: str) -> None:
    ended = render(ENTRYPOINT, "--strict", str(PADDLEJOBS / name))
    assert ended.returncode == Exit.CONFIG
    assert ended.stdout == ""
    for line, begin in zip(said(ended), NOTES[name], strict=False):
        assert line.startswith(begin)
    assert said(ended)[-1] == "nothing was rendered (--strict)"


@pytest.mark.parametrize("name", [name for name, notes in NOTES.items() if not notes])
def test_strict_has_nothing_against_the_rest(name: str) -> None:
    ended = render(ENTRYPOINT, "--strict", str(PADDLEJOBS / name))
    assert ended.returncode == 0
    assert ended.stderr == ""


def test_an_image_whose_command_is_not_known_is_an_error_that_says_what_to_give() -> None:
    ended = render(str(PADDLEJOBS / "seed-1-wide-and-deep.yaml"))
    assert ended.returncode == Exit.CONFIG
    assert ended.stdout == ""
    assert [line.partition(":")[0] for line in said(ended)] == [
        "spec.ps.template.spec.containers[0].command",
        "spec.worker.template.spec.containers[0].command",
    ]
    assert "--entrypoint" in ended.stderr


def test_an_entrypoint_goes_before_the_args_and_is_for_those_without_a_command() -> None:
    worker = '{replicas: 1, template: {spec: {containers: [{name: paddle, image: i, args: ["--lr", "1e-3"]}]}}}'
    ended = render(
        "--entrypoint", "env 'A=b c' python3 train.py", text=job(f"{{worker: {worker}, ps: {role(replicas=1)}}}")
    )
    made = [each for each in yaml.safe_load_all(ended.stdout) if each["kind"] == "Job"]
    words = [each["spec"]["template"]["spec"]["containers"][0]["args"] for each in made]
    assert words == [
        ["run", "--", "python3", "train.py"],
        ["run", "--", "env", "A=b c", "python3", "train.py", "--lr", "1e-3"],
    ]


def test_the_launchers_image_is_what_one_says() -> None:
    ended = render("--launcher-image=mine/inject:7", text=job(f"{{{WORKER}}}"))
    assert ended.stdout.count("image: mine/inject:7") == 1
    assert "inject" not in render("--no-inject", text=job(f"{{{WORKER}}}")).stdout


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "b"],
        ["--fast", "a"],
        ["--entrypoint", "", "a"],
        ["--entrypoint", "'", "a"],
        ["--no-inject", "--launcher-image=i", "a"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_ends_with_64(words: list[str]) -> None:
    ended = render(*words)
    assert ended.returncode == Exit.USAGE
    assert "Traceback" not in ended.stderr


def test_a_file_that_cannot_be_read_is_named() -> None:
    ended = render("/nowhere/job.yaml")
    assert ended.returncode == Exit.NO_INPUT
    assert ended.stderr == "paddle-launcher: /nowhere/job.yaml: cannot be read: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "standard input: not valid YAML: line 1, column 5: expected the node content"),
        ("a: 1\na: 2", "standard input: not valid YAML: line 2, column 1: a: duplicate key"),
        ("[1]", "document 1: [1]: expected a Kubernetes object"),
        ("", "expected a PaddleJob of batch.paddlepaddle.org/v1, found nothing"),
        ("kind: Pod\napiVersion: v1", "expected a PaddleJob of batch.paddlepaddle.org/v1, found Pod of v1"),
        ("kind: PaddleJob\napiVersion: kubeflow.org/v1", "found PaddleJob of kubeflow.org/v1"),
    ],
)
def test_what_is_no_paddle_job_ends_with_78(text: str, expected: str) -> None:
    ended = render(text=text)
    assert ended.returncode == Exit.CONFIG
    assert expected in ended.stderr
    assert ended.stdout == ""


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
        (f"{{{WORKER}, withGloo: 3}}", "spec.withGloo: 3: expected 0"),
        (f"{{{WORKER}, withGloo: yes}}", "spec.withGloo: True: expected a whole number"),
        (
            f"{{{WORKER}, intranet: PodIp}}",
            "spec.intranet: 'PodIp': expected one of PodIP, Service, Host: is PodIP meant?",
        ),
        (f"{{{WORKER}, cleanPodPolicy: 1}}", "spec.cleanPodPolicy: 1: expected text"),
        (
            f"{{worker: {role(', env: [{name: LAUNCHER_STOP_GRACE, value: soon}]')}}}",
            "spec.worker.template.spec.containers[0]: LAUNCHER_STOP_GRACE: 'soon': expected seconds",
        ),
        (
            f"{{{WORKER}, ps: {role(', args: [-m, paddle.distributed.launch, x.py]')}}}",
            "spec.ps.template.spec.containers[0]: -- python3 train.py -m paddle.distributed.launch: with",
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_field(spec: str, expected: str) -> None:
    ended = render(text=job(spec))
    assert ended.returncode == Exit.CONFIG
    assert len(said(ended)) == 1, ended.stderr
    assert said(ended)[0].startswith(expected)
    assert ended.stdout == ""


def test_all_that_is_wrong_is_told_at_once_and_by_name_where_there_are_several_jobs() -> None:
    wrong = job(f"{{worker: {role(replicas=0)}, withGloo: 7}}", "first")
    ended = render(text=f"{wrong}---\n{job('{}', 'second')}---\n{job(f'{{{WORKER}}}', 'third')}")
    assert ended.returncode == Exit.CONFIG
    assert [line.split(": ")[:2] for line in said(ended)] == [
        ["first", "spec.worker.replicas"],
        ["first", "spec.withGloo"],
        ["second", "spec.worker"],
    ]
    assert ended.stdout == ""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x" * 54, "fits"),
        ("x" * 55, "too long by 1: its last pod would be called"),
        ("Big", "'Big': expected lower-case letters"),
        ("3d", "'3d': expected lower-case letters, digits and -, starting with a letter"),
        ("a.b", "'a.b': expected lower-case letters"),
    ],
)
def test_names_that_would_be_refused_later_are_refused_before_anything_is_written(name: str, expected: str) -> None:
    """The longest name is that of a pod: <name>-worker-1."""
    ended = render(text=job(f"{{{WORKER}}}", f'"{name}"'))
    if name == "x" * 54:
        assert ended.returncode == 0
        return
    assert ended.returncode == Exit.CONFIG
    assert said(ended)[0].startswith(
        f"metadata.name: {expected}" if name[0] != "x" else f"metadata.name: {name!r}: {expected}"
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            f"{{{WORKER}, intrnet: Service}}",
            "spec.intrnet: ignored: a PaddleJob has no such field: is intranet meant?",
        ),
        (f"{{worker: {role(more=', minimum: 1')}}}", "spec.worker.minimum: ignored: a PaddleJob has no such field"),
        (
            f"{{{WORKER}, cleanPodPolicy: OnFailed}}",
            "spec.cleanPodPolicy: 'OnFailed': pods and logs are kept: the operator has no such policy: is OnFailure",
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
            "spec.worker.template.spec.containers[0].env: LAUNCHER_REJOIN_TIMEOT is no variable of the launcher",
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
def test_what_cannot_be_honoured_is_told_with_the_reason(spec: str, expected: str) -> None:
    ended = render(text=job(spec))
    assert ended.returncode == 0, ended.stderr
    assert len(said(ended)) == 1, ended.stderr
    assert said(ended)[0].startswith(expected)
    assert ended.stdout


def test_a_pod_group_of_the_file_that_is_too_small_is_told() -> None:
    text = given("seed-4-volcano.yaml").replace("minMember: 4", "minMember: 3")
    ended = render(ENTRYPOINT, text=text)
    assert said(ended) == [
        "PodGroup wide-ande-deep: spec.minMember: 3: kept, but the job has 4 pods and needs all: expected 4"
    ]


def test_a_variable_that_is_the_users_to_choose_is_the_users_without_a_word() -> None:
    env = '[{name: LAUNCHER_MAX_RESTARTS, value: "0"}, {name: LAUNCHER_JOB_ID, value: old}]'
    ended = render("--strict", text=job(f"{{worker: {role(f', env: {env}')}}}"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("name: LAUNCHER_MAX_RESTARTS\n          value: '0'") == 1
    assert ended.stdout.count("LAUNCHER_JOB_ID") == 1


def test_a_job_whose_volume_the_launcher_knows_has_its_secret_there() -> None:
    env = "[{name: JOB_PATH, value: /data}]"
    ended = render("--strict", text=job(f"{{worker: {role(f', env: {env}')}}}"))
    assert ended.returncode == 0, ended.stderr
    assert "Secret" not in ended.stdout
    assert "SECRET" not in ended.stdout


def test_a_secret_of_the_file_is_the_gangs() -> None:
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: job-gang}\nstringData: {secret: s3cret}\n"
    made = list(yaml.safe_load_all(render(text=f"{secret}---\n{job(f'{{{WORKER}}}')}").stdout))
    assert [each["kind"] for each in made] == ["Secret", "Service", "Job"]
    assert "secretName: job-gang" in yaml.safe_dump(made[2])


def test_other_objects_go_through_as_they_are_written_and_in_their_order() -> None:
    first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}   # kept\ndata:\n  when: 12:30\n  text: |\n    b: 1\n"
    last = "# of the last\nkind: Other\napiVersion: v1\n"
    ended = render(text=f"{first}---\n{job(f'{{{WORKER}}}')}--- {last}")
    assert ended.stdout.startswith(first)
    assert ended.stdout.endswith(f"--- {last}".replace("--- ", "---\n "))


def test_what_kubectl_gets_of_a_cluster_converts_too() -> None:
    got = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [yaml.safe_load(job(f"{{{WORKER}}}")) | {"status": {"phase": "Running"}}],
    }
    got["items"][0]["metadata"] |= {
        "uid": "1",
        "resourceVersion": "7",
        "generation": 1,
        "finalizers": ["finalizers.paddlepaddle.org"],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"},
    }
    ended = render("--strict", text=yaml.safe_dump(got))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("kind: Job") == 1
    assert "resourceVersion" not in ended.stdout
    assert "last-applied" not in ended.stdout


def test_texts_that_look_like_numbers_stay_texts_also_where_only_kubectl_thinks_so() -> None:
    words = ["1e-3", "0o17", "y", "2026-11-18", "12:30", "1_000", "0x1f", "+1", ".5", "null", "true", "~", "1.2.3", "-"]
    env = ", ".join(f'{{name: V{number}, value: "{word}"}}' for number, word in enumerate(words))
    ended = render(text=job(f"{{worker: {role(f', env: [{env}]')}}}"))
    assert ended.returncode == 0, ended.stderr
    for number, word in enumerate(words):
        (line,) = re.findall(rf"name: V{number}\n *value: (.*)", ended.stdout)
        plain = line == word
        assert yaml.safe_load(line) == word
        assert not plain or word == "1.2.3", f"{word} is written without quotes"


def test_what_is_used_twice_is_written_out_twice() -> None:
    text = job(f"{{ps: &same {role()}, worker: *same}}")
    ended = render(text=text)
    assert ended.returncode == 0, ended.stderr
    assert "&" not in ended.stdout
    merged = job(f"{{ps: &same {role()}, worker: {{<<: *same, replicas: 3}}}}")
    made = [each for each in yaml.safe_load_all(render(text=merged).stdout) if each["kind"] == "Job"]
    assert [each["spec"]["parallelism"] for each in made] == [2, 3]


def test_labels_of_the_job_are_on_all_its_objects_and_annotations_on_its_jobs() -> None:
    made = list(yaml.safe_load_all(render(str(PADDLEJOBS / "whole-template.yaml")).stdout))
    for each in made:
        assert each["metadata"]["namespace"] == "training"
        assert missing({"team": "search", "paddle-launcher/job": "everything"}, each["metadata"]["labels"]) == []
    assert made[-1]["metadata"]["annotations"] == {"example.com/cost-center": "42"}
    template = made[-1]["spec"]["template"]["metadata"]
    assert template["annotations"]["kubectl.kubernetes.io/default-container"] == "paddle"
    assert template["labels"]["paddle-res-type"] == "worker"


def test_whatever_is_wrong_in_a_file_is_told_by_its_field_and_breaks_nothing() -> None:
    """Each value of the examples in turn is another thing."""
    for name in ("whole-template.yaml", "policy-and-host.yaml", "seed-4-volcano.yaml"):
        documents = list(yaml.safe_load_all(given(name)))
        for path in places(documents):
            for value in (None, 7, True, "x", [], [3], {}, {"x": 3}):
                changed = copy.deepcopy(documents)
                put(changed, path, value)
                first, *others = changed
                if not isinstance(first, dict):
                    continue
                findings = Findings()
                made = from_yaml.to_job_spec(
                    first, [other for other in others if isinstance(other, dict)], INJECTED, findings
                )
                assert (made is None) == bool(findings.problems)
                if made:
                    objects(made)


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of all values below this one."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (key,)
        yield from ((key, *rest) for rest in places(value[key]))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def test_it_needs_no_client_of_kubernetes() -> None:
    program = "import sys; sys.modules['kubernetes'] = None; from launcher.__main__ import main; main()"
    command = [sys.executable, "-c", program, "render", str(PADDLEJOBS / "seed-2-resnet.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
