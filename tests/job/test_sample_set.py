"""`sampleSetRef`: the claim of a SampleSet in the workers."""

from __future__ import annotations

import pytest
import yaml

from launcher.errors import Exit
from tests.support.render_command import WORKER, messages, paddle_job, render, role
from tests.support.rendering import jobs, main_container, pod_spec, render_example

MOUNT = "volumeMounts: [{name: a, mountPath: /data/}]"


def test_the_claim_is_mounted_in_workers_and_not_in_servers() -> None:
    rendered = jobs(render_example("samples-and-servers.yaml"))
    volume = {"name": "paddle-launcher-samples", "persistentVolumeClaim": {"claimName": "pictures"}}
    mount = {"name": "paddle-launcher-samples", "mountPath": "/mnt/pictures"}  # writable, as with the operator
    assert volume in pod_spec(rendered["samples-demo-worker"])["volumes"]
    assert mount in main_container(rendered["samples-demo-worker"])["volumeMounts"]
    assert "pictures" not in yaml.safe_dump(rendered["samples-demo-ps"])


def test_the_volumes_and_mounts_of_the_template_are_kept() -> None:
    of_container = f", {MOUNT}"
    pod = ", volumes: [{name: a, emptyDir: {}}]"
    spec = f"{{worker: {role(of_container, pod=pod)}, sampleSetRef: {{name: words, mountPath: /words}}}}"
    ended = render("--strict", text=paddle_job(spec))
    assert ended.returncode == 0, ended.stderr
    (job,) = jobs(list(yaml.safe_load_all(ended.stdout))).values()
    assert [mount["mountPath"] for mount in main_container(job)["volumeMounts"]][:2] == ["/data/", "/words"]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("{mountPath: /a}", "spec.sampleSetRef.name: missing"),
        ("{name: words}", "spec.sampleSetRef.mountPath: missing"),
        ("{name: words, mountPath: a}", "spec.sampleSetRef.mountPath: 'a': expected an absolute path"),
        ("{name: words, mountPath: '/a:b'}", "spec.sampleSetRef.mountPath: '/a:b': expected an absolute path"),
        ("{name: 3, mountPath: /a}", "spec.sampleSetRef.name: 3: expected text"),
        ("{name: words, mountPath: /data}", "spec.sampleSetRef.mountPath: '/data': container paddle mounts another"),
        ("words", "spec.sampleSetRef: 'words': expected a mapping"),
    ],
)
def test_a_reference_that_cannot_be_mounted_is_an_error(reference: str, expected: str) -> None:
    ended = render(text=paddle_job(f"{{worker: {role(f', {MOUNT}')}, sampleSetRef: {reference}}}"))
    assert ended.returncode == Exit.CONFIG
    assert messages(ended)[0].startswith(expected)


def test_a_sample_set_of_another_namespace_is_an_error() -> None:
    text = paddle_job(f"{{{WORKER}, sampleSetRef: {{name: words, namespace: data, mountPath: /a}}}}")
    ended = render(text=text.replace("{name: job}", "{name: job, namespace: training}"))
    assert ended.returncode == Exit.CONFIG
    assert messages(ended)[0].startswith("spec.sampleSetRef.namespace: 'data': the job is in 'training', and pods can")


def test_a_namespace_that_the_job_must_get_is_noted() -> None:
    ended = render(text=paddle_job(f"{{{WORKER}, sampleSetRef: {{name: words, namespace: data, mountPath: /a}}}}"))
    assert ended.returncode == 0
    (said,) = messages(ended)
    assert said.startswith("spec.sampleSetRef.namespace: data: the job must be in this namespace, too: add metadata")
