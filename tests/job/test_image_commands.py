"""`render` reads what an image runs from its registry, for pod templates without a `command`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from launcher.errors import Exit
from tests.support.fake_cluster import FakeCluster
from tests.support.image_registry import ImageRegistry, basic, passwords
from tests.support.paths import PADDLEJOBS
from tests.support.render_command import messages, paddle_job, render
from tests.support.rendering import EXAMPLES, example, jobs, main_container
from tests.support.submitted import command

# The images of the examples that have no command, as their documents describe them: train.py is what they run.
ENTRYPOINTS = {"an/image": (["python3", "train.py"], None), "library/demo": (None, ["sh", "-c", "exec sleep 3600"])}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """Yield a registry with the images that the examples name, and with `team/both`, which has ENTRYPOINT and CMD."""
    started = ImageRegistry(tmp_path_factory.mktemp("registry"))
    for repository, (entrypoint, words) in ENTRYPOINTS.items():
        for version in ("1", "latest"):
            started.push(repository, version, entrypoint=entrypoint, command=words)
    started.push("team/both", entrypoint=["python3", "train.py"], command=["--epochs", "1"])
    started.push("team/none")
    started.push("team/shell", entrypoint=["sh", "-c", "echo $$ $(HOME) $HOME"])
    yield started
    started.close()


def words(stdout: str) -> dict[str, list[str]]:
    """Return what the launcher runs in each Job."""
    rendered = jobs(list(yaml.safe_load_all(stdout)))
    return {name: main_container(job)["args"][2:] for name, job in rendered.items()}


def worker(image: str, more: str = "") -> str:
    container = f"{{name: paddle, image: {image!r}{more}}}"
    return paddle_job(f"{{worker: {{replicas: 1, template: {{spec: {{containers: [{container}]}}}}}}}}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_rendered_as_it_is(registry: ImageRegistry, name: str) -> None:
    ended = render("--registry", registry.host, str(PADDLEJOBS / name))
    assert ended.returncode == 0, ended.stderr
    (job,) = (each for each in yaml.safe_load_all(example(name)) if each["kind"] == "PaddleJob")
    found = words(ended.stdout)
    for role in ("ps", "worker"):
        for container in job["spec"].get(role, {}).get("template", {}).get("spec", {}).get("containers", [])[:1]:
            if "command" not in container and len(job["spec"][role]["template"]["spec"]["containers"]) == 1:
                repository = "an/image" if container["image"] == "an/image:1" else "library/demo"
                entrypoint, default = ENTRYPOINTS[repository]
                assert found[f"{job['metadata']['name']}-{role}"] == (entrypoint or default)


@pytest.mark.parametrize(
    ("image", "more", "expected"),
    [
        ("team/both:1", "", ["python3", "train.py", "--epochs", "1"]),
        ("team/both:1", ", args: [--epochs, '9']", ["python3", "train.py", "--epochs", "9"]),
        ("team/both:1", ", command: [sh]", ["sh"]),
        ("demo:1", ", args: [ls, /]", ["ls", "/"]),
        ("demo:1", "", ["sh", "-c", "exec sleep 3600"]),
    ],
    ids=["ENTRYPOINT and CMD", "ENTRYPOINT and args", "command", "args alone", "CMD alone"],
)
def test_the_launcher_runs_what_kubernetes_would_run(
    registry: ImageRegistry, image: str, more: str, expected: list[str]
) -> None:
    ended = render("--strict", "--registry", registry.host, text=worker(image, more))
    assert ended.returncode == 0, ended.stderr
    assert words(ended.stdout) == {"job-worker": expected}


def test_kubernetes_expands_no_variable_that_the_image_leaves_to_its_shell(registry: ImageRegistry) -> None:
    """In `args`, Kubernetes replaces $(NAME), and $$ by $. It does not do this in an image."""
    ended = render("--registry", registry.host, text=worker("team/shell:1"))
    assert words(ended.stdout)["job-worker"] == ["sh", "-c", "echo $$$ $$(HOME) $HOME"]


def test_an_image_without_anything_to_run_is_an_error(registry: ImageRegistry) -> None:
    ended = render("--registry", registry.host, text=worker("team/none:1"))
    assert ended.returncode == Exit.CONFIG
    (said,) = messages(ended)
    assert "missing, and the image team/none:1 has neither ENTRYPOINT nor CMD" in said
    assert "--entrypoint" in said


def test_a_registry_that_does_not_answer_is_an_error_that_names_the_flag_for_it() -> None:
    ended = render("--registry", "localhost:1", str(PADDLEJOBS / "wide-and-deep.yaml"))
    assert ended.returncode == Exit.CONFIG
    assert ended.stdout == ""
    assert [line.partition(": ")[0] for line in messages(ended)] == [
        "spec.ps.template.spec.containers[0].command",
        "spec.worker.template.spec.containers[0].command",
    ]
    for line in messages(ended):
        assert "the image's ENTRYPOINT cannot be read: localhost:1: cannot be read: Connection refused" in line
        assert "--entrypoint" in line


def test_an_image_without_a_registry_names_both_flags() -> None:
    ended = render(str(PADDLEJOBS / "wide-and-deep.yaml"))
    assert ended.returncode == Exit.CONFIG
    assert all("--registry" in line and "--entrypoint" in line for line in messages(ended))


def test_an_entrypoint_on_the_command_line_needs_no_registry() -> None:
    ended = render("--entrypoint=python3 train.py", "--registry=localhost:1", text=worker("localhost:1/team/both"))
    assert words(ended.stdout) == {"job-worker": ["python3", "train.py"]}


def test_other_problems_of_the_file_are_told_with_it() -> None:
    text = worker("localhost:1/team/both:1").replace("spec: {", "spec: {withGloo: 7, ", 1)
    ended = render(text=text)
    assert [line.partition(": ")[0] for line in messages(ended)] == [
        "spec.worker.template.spec.containers[0].command",
        "spec.withGloo",
    ]


@pytest.mark.parametrize("registry_flag", ["", "a b", "http://host", "host/path", "-"])
def test_a_wrong_registry_is_an_error(registry_flag: str) -> None:
    ended = render(f"--registry={registry_flag}", text=worker("team/both:1"))
    assert ended.returncode in (Exit.USAGE, Exit.CONFIG)
    assert "registry" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_submit_reads_images_with_the_credentials_of_docker(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = ImageRegistry(tmp_path / "private", passwords(tmp_path))
    try:
        private.push("team/both", entrypoint=["python3", "train.py"], headers={"Authorization": basic()})
        (tmp_path / "job.yaml").write_text(worker(f"{private.host}/team/both:1"))
        (tmp_path / "docker").mkdir()
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
        denied = command("submit", "--no-inject", str(tmp_path / "job.yaml"), code=Exit.CONFIG)
        assert f"`docker login {private.host}`" in denied.stderr
        assert not cluster.objects
        auths = {"auths": {private.host: {"auth": basic().split()[1]}}}
        (tmp_path / "docker" / "config.json").write_text(json.dumps(auths))
        command("submit", "--no-inject", str(tmp_path / "job.yaml"))
        assert main_container(cluster.objects["jobs", "job-worker"])["args"] == ["run", "--", "python3", "train.py"]
    finally:
        private.close()


def test_ctrl_c_ends_a_command_that_reads_an_image(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        (tmp_path / "job.yaml").write_text(worker(f"localhost:{listening.getsockname()[1]}/team/both:1"))
        arguments = [sys.executable, "-m", "launcher", "render", "--no-inject", str(tmp_path / "job.yaml")]
        reading = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
        listening.settimeout(30)
        connection, _ = listening.accept()
        began = time.monotonic()
        reading.send_signal(signal.SIGINT)
        _, said = reading.communicate(timeout=20)
        connection.close()
    assert time.monotonic() - began < 10
    assert "Traceback" not in said
    assert reading.returncode != 0
