"""What `render` and `PaddleJob` report before there are pods."""

from __future__ import annotations

import warnings

import pytest

from launcher.errors import Exit
from launcher.job import PaddleJob
from tests.support.render_command import WORKER, messages, paddle_job, render
from tests.support.rendering import REQUIRED_PARAMETERS

MOVING = ["paddle", "paddle:latest", "registry:5000/team/paddle", "registry:5000/team/paddle:latest"]
FIXED = ["paddle:1", "registry:5000/team/paddle:v1.2", "paddle@sha256:abc", "paddle:latest@sha256:abc"]


@pytest.mark.parametrize("image", MOVING)
def test_an_image_that_may_change_is_noted(image: str) -> None:
    text = paddle_job(f"{{{WORKER}}}").replace("i:1", image)
    ended = render(text=text)
    assert ended.returncode == 0
    (note,) = messages(ended)
    assert note.startswith(f"spec.worker.template.spec.containers[0].image: {image}: kept, but an image with ")
    with pytest.warns(UserWarning, match=f"words: runtime_image: {image}: kept") as warned:
        PaddleJob(**(REQUIRED_PARAMETERS | {"runtime_image": image})).to_yaml()
    assert len(warned) == 1, "one for both roles"
    assert render("--strict", text=text).returncode == Exit.CONFIG


@pytest.mark.parametrize("image", FIXED)
def test_an_image_with_a_version_or_a_digest_is_not_noted(image: str) -> None:
    assert render("--strict", text=paddle_job(f"{{{WORKER}}}").replace("i:1", image)).stderr == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PaddleJob(**(REQUIRED_PARAMETERS | {"runtime_image": image})).to_yaml()


def test_the_launchers_own_image_is_noted_too() -> None:
    (note,) = messages(render("--launcher-image=mine/inject", text=paddle_job(f"{{{WORKER}}}")))
    assert note.startswith("--launcher-image: mine/inject: kept, but an image with no tag")
    with pytest.warns(UserWarning, match="words: launcher_image: mine/inject:latest: kept"):
        PaddleJob(**REQUIRED_PARAMETERS, launcher_image="mine/inject:latest").to_yaml()
