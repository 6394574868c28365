"""Run `paddle-launcher render` on small PaddleJobs that a test writes in one line."""

from __future__ import annotations

import os
import subprocess

from tests.support import forked
from tests.support.paths import REPOSITORY

Ended = subprocess.CompletedProcess[str]


_INJECT = "--launcher-image=an/inject:1"  # without such a flag, `render` prints how to build this image


def render(*arguments: str, text: str | None = None, **variables: str) -> Ended:
    """Run the command. If a text is given, it is the standard input. `variables`: more of the environment."""
    inject = [] if any(each.startswith(("--launcher-image", "--no-inject")) for each in arguments) else [_INJECT]
    return plain_render(*inject, *arguments, text=text, **variables)


def plain_render(*arguments: str, text: str | None = None, **variables: str) -> Ended:
    """Run the command with these arguments only."""
    command = ["render", *arguments, *(["-"] if text is not None else [])]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY)} | variables
    return forked.run(command, env=environment, text=text or "")


def messages(ended: Ended) -> list[str]:
    """Return the lines on standard error without the program's name."""
    lines = ended.stderr.splitlines()
    assert all(line.startswith(("render: ", "paddle-launcher: ")) for line in lines), ended.stderr
    return [line.partition(": ")[2] for line in lines]


def paddle_job(spec: str, name: str = "job") -> str:
    """Return a PaddleJob with this spec."""
    return f"apiVersion: batch.paddlepaddle.org/v1\nkind: PaddleJob\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def role(container: str = "", more: str = "", pod: str = "", replicas: object = 2) -> str:
    """Return a role of a PaddleJob, with additional fields for the container, the role and the pod."""
    main = f"{{name: paddle, image: i:1, command: [python3, train.py]{container}}}"
    return f"{{replicas: {replicas}{more}, template: {{spec: {{containers: [{main}]{pod}}}}}}}"


WORKER = f"worker: {role()}"
