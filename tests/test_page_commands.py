"""Commands of the pages that need neither a cluster nor Paddle, as they are written there."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.jobs import FLAGS, JOB, fresh
from tests.support.page_tests import run_by
from tests.support.paths import PADDLEJOBS, REPOSITORY, STANDIN
from tests.support.reader import DOCKER, Reader

KUBECTL = """\
cat > "$CALLS/applied"
"""


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """Return a reader whose folder is a clone of this repository, with a stand-in for docker."""
    made = Reader(tmp_path, PATH=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin")
    for name in ("docker", "requirements"):
        (made.folder / name).symlink_to(REPOSITORY / name)
    made.stand_in("docker", DOCKER)
    return made


@pytest.fixture
def trained(reader: Reader, data_volume: Path, tmp_path: Path) -> Path:
    """Return the folder of a job that is complete, in the reader's folder."""
    volume = fresh(data_volume, tmp_path)
    done = reader.bash(
        f"PATH={STANDIN}:$PATH JOB_PATH={volume} JOB_NAME={JOB} TRAIN_CONFIG_DIR=quick_start "
        f"paddle-launcher local --nodes 3 {' '.join(FLAGS)}"
    )
    assert done.returncode == 0, done.stderr
    shutil.move(volume / JOB, reader.folder)
    return reader.folder / JOB


def test_a_program_runs_by_itself(reader: Reader) -> None:
    (reader.folder / "train.py").write_text('import os\nprint("trainer", os.environ["PADDLE_TRAINER_ID"])\n')
    (printed,) = reader.follow_all(run_by("test_a_program_runs_by_itself"))
    assert printed == "trainer 0\n"


def test_the_schema_of_all_variables_is_written(reader: Reader) -> None:
    reader.follow_all(run_by("test_the_schema_of_all_variables_is_written"))
    schema = json.loads((reader.folder / "variables.schema.json").read_text())
    assert "JOB_NAME" in json.dumps(schema)


def test_commands_that_read_the_folder_of_a_job(reader: Reader, trained: Path) -> None:
    (trained / "output" / "report.html").unlink()
    events, report = reader.follow_all(run_by("test_commands_that_read_the_folder_of_a_job"))
    found = [json.loads(line) for line in events.splitlines()]
    assert len(found) == 3 + 2 * 3, "the newest three events, and two passes of each member"
    assert {event["event"] for event in found[3:]} == {"pass"}
    assert "quick-start.html" in report
    for page in (trained / "output" / "report.html", reader.folder / "quick-start.html"):
        assert "The job is complete" in page.read_text()


@pytest.mark.usefixtures("trained")
def test_a_job_is_watched_to_its_end(reader: Reader) -> None:
    (printed,) = reader.follow_all(run_by("test_a_job_is_watched_to_its_end"))
    assert f"{JOB}: the job is complete" in printed


def test_a_paddlejob_is_rendered_with_an_image_that_was_built(reader: Reader) -> None:
    reader.stand_in("kubectl", KUBECTL)
    shutil.copy(PADDLEJOBS / "resnet.yaml", reader.folder / "job.yaml")
    reader.follow_all(run_by("test_a_paddlejob_is_rendered_with_an_image_that_was_built"))
    build, push = (call for call in reader.calls_of("docker") if call != "info")
    assert (build, push) == ("build -f docker/inject.Dockerfile -t your/inject:1 .", "push your/inject:1")
    applied = list(yaml.safe_load_all((reader.calls / "applied").read_text()))
    (job,) = (made for made in applied if made["kind"] == "Job")
    (init,) = job["spec"]["template"]["spec"]["initContainers"]
    assert init["image"] == "your/inject:1"


def test_the_image_of_the_init_container(reader: Reader) -> None:
    reader.follow_all(run_by("test_the_image_of_the_init_container"))
    assert "push your/inject:1" in reader.calls_of("docker")
