"""`render` on the command line: standard output, standard error and the exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from launcher.errors import Exit
from launcher.job.spec import INJECT_IMAGE
from tests.support.paths import PADDLEJOBS
from tests.support.render_command import WORKER, messages, paddle_job, plain_render, render, role

ENTRYPOINT = "--entrypoint=python3 train.py"
NOTES = {
    "wide-and-deep.yaml": [],
    "resnet.yaml": [],
    "gpu-nodes.yaml": ["spec.cleanPodPolicy: OnCompletion"],
    "volcano.yaml": [],
    "volume.yaml": ["spec.cleanPolicy: the operator has no such field", "spec.cleanPolicy: OnCompletion"],
    "service-and-gloo.yaml": [
        "spec.cleanPodPolicy: 'Nerver': pods and logs are kept: the operator has no such policy: did you mean Never?"
    ],
    "elastic.yaml": [],
    "sample-set.yaml": ["spec.cleanPodPolicy: OnFailure"],
    "samples-and-servers.yaml": [
        "spec.ps.template.spec.containers[0].image: demo: kept",
        "spec.worker.template.spec.containers[0].image: demo: kept",
    ],
    "restarting.yaml": [
        "spec.ps.template.spec.restartPolicy: OnFailure: replaced by Never",
        "spec.worker.template.spec.restartPolicy: OnFailure: replaced by Never",
        "spec.ps.template.spec.containers[0].image: demo: kept",
        "spec.worker.template.spec.containers[0].image: demo: kept",
    ],
    "policy-and-host.yaml": [],
    "whole-template.yaml": ["spec.worker.template.spec.containers[0].name: logs"],
}


@pytest.mark.parametrize("name", NOTES)
def test_examples_of_the_operator_are_rendered_and_notes_say_what_is_ignored_or_changed(name: str) -> None:
    ended = render(ENTRYPOINT, str(PADDLEJOBS / name))
    assert ended.returncode == 0, ended.stderr
    assert [each["kind"] for each in yaml.safe_load_all(ended.stdout)][-1:] != ["PaddleJob"]
    assert len(messages(ended)) == len(NOTES[name]), ended.stderr
    for line, begin in zip(ended.stderr.splitlines(), NOTES[name], strict=True):
        assert line.startswith(f"render: {begin}")


@pytest.mark.parametrize("name", [name for name, notes in NOTES.items() if notes])
def test_strict_refuses_a_file_with_notes(name: str) -> None:
    ended = render(ENTRYPOINT, "--strict", str(PADDLEJOBS / name))
    assert ended.returncode == Exit.CONFIG
    assert ended.stdout == ""
    for line, begin in zip(messages(ended), NOTES[name], strict=False):
        assert line.startswith(begin)
    assert messages(ended)[-1] == "nothing was rendered (--strict)"


@pytest.mark.parametrize("name", [name for name, notes in NOTES.items() if not notes])
def test_strict_renders_a_file_without_notes(name: str) -> None:
    ended = render(ENTRYPOINT, "--strict", str(PADDLEJOBS / name))
    assert ended.returncode == 0
    assert ended.stderr == ""


def test_the_entrypoint_flag_precedes_args_and_is_used_only_without_a_command() -> None:
    worker = '{replicas: 1, template: {spec: {containers: [{name: paddle, image: i, args: ["--lr", "1e-3"]}]}}}'
    ended = render(
        "--entrypoint", "env 'A=b c' python3 train.py", text=paddle_job(f"{{worker: {worker}, ps: {role(replicas=1)}}}")
    )
    rendered = [each for each in yaml.safe_load_all(ended.stdout) if each["kind"] == "Job"]
    words = [each["spec"]["template"]["spec"]["containers"][0]["args"] for each in rendered]
    assert words == [
        ["run", "--", "python3", "train.py"],
        ["run", "--", "env", "A=b c", "python3", "train.py", "--lr", "1e-3"],
    ]


def test_an_image_that_nobody_has_published_is_named_with_the_commands_that_build_it() -> None:
    ended = plain_render("--strict", text=paddle_job(f"{{{WORKER}}}"))
    assert ended.returncode == 0
    assert f"image: {INJECT_IMAGE}" in ended.stdout
    (said,) = messages(ended)
    assert said.startswith(f"{INJECT_IMAGE}: the pods copy the launcher from this image, which is in no registry")
    assert "docker build -f docker/inject.Dockerfile" in said
    assert "--launcher-image" in said
    assert plain_render("--no-inject", text=paddle_job(f"{{{WORKER}}}")).stderr == ""


def test_the_launcher_image_can_be_set_or_left_out() -> None:
    ended = render("--launcher-image=mine/inject:7", text=paddle_job(f"{{{WORKER}}}"))
    assert ended.stdout.count("image: mine/inject:7") == 1
    assert "inject" not in render("--no-inject", text=paddle_job(f"{{{WORKER}}}")).stdout


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


def test_other_objects_are_copied_as_they_are_and_in_order() -> None:
    first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}   # kept\ndata:\n  when: 12:30\n  text: |\n    b: 1\n"
    last = "# of the last\nkind: Other\napiVersion: v1\n"
    ended = render(text=f"{first}---\n{paddle_job(f'{{{WORKER}}}')}--- {last}")
    assert ended.stdout.startswith(first)
    assert ended.stdout.endswith(f"--- {last}".replace("--- ", "---\n "))


def test_the_output_of_kubectl_get_is_rendered_too() -> None:
    got = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [yaml.safe_load(paddle_job(f"{{{WORKER}}}")) | {"status": {"phase": "Running"}}],
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


def test_render_does_not_need_the_kubernetes_client() -> None:
    program = "import sys; sys.modules['kubernetes'] = None; from launcher.__main__ import main; main()"
    command = [sys.executable, "-c", program, "render", str(PADDLEJOBS / "resnet.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
