"""Collective training in a job whose size changes at random moments: each line counts once in each saved pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import resized
from tests.support.jobs import Job
from tests.support.nodes import Nodes
from tests.wheels.outcome import WITHIN

_ELASTIC = {
    "CONF_PADDLE_GRADIENT_NUM": f"{resized.LEAST}:{resized.MOST}",
    "LAUNCHER_MODE": "collective",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SETTLE": "2",
}


@pytest.mark.timeout(120 + 60 * resized.CHANGES)
@pytest.mark.parametrize("version", ["paddle_2", "paddle_3"])
def test_a_job_that_grows_and_shrinks_learns_what_one_process_learns(
    version: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue(version)
    with Nodes(resized.MOST) as nodes:
        job = Job(nodes, resized.make_resized(tmp_path), tmp_path, resized.MOST, **_ELASTIC)
        folder = job.output.parent
        flags = ("--", python, *resized.program(str(folder)))

        def scale(size: int) -> None:
            running = [rank for rank, launcher in job.launchers.items() if launcher.poll() is None]
            for rank in set(range(size)) - set(running):
                job.start(rank, flags=flags)
            for rank in set(running) - set(range(size)):
                job.launchers[rank].terminate()
                assert job.code(rank, WITHIN) == 143, job.stderr(rank)

        story = resized.Story(folder, scale, job.stderr)
        scale(2)
        story.play()
        story.complete()
        size = [*resized.targets()][-1]
        assert [job.code(rank, WITHIN) for rank in range(size)] == [0] * size, job.stderr()
        assert job.nothing_left()
    passes = story.assert_each_line_once_per_pass()
    assert story.loss() == pytest.approx(story.loss_of_one(python, passes), abs=resized.TOLERANCE)
