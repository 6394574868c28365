"""What `status` says about the members of a job, from the files on the volume."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.status import describe

HOLDER = LeaseOwner("gang-1", "job-1", "pod-0", "", 155.0)


class Volume:
    """The folder of a job with two members, as the launchers have left it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "output"
        self.leases = LeaseFiles(str(self.output))

    def write(self, name: str, content: object, age: float = 0.0) -> Path:
        path = self.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
        at = time.time() - age
        os.utime(path, (at, at))
        return path

    def member(self, rank: int, phase: str, age: float, **more: object) -> None:
        status = {"role": "both", "rank": rank, "pod": f"pod-{rank}", "phase": phase, "since": "then", **more}
        self.write(f"node_{rank}/status.json", status, age)

    def lease(self, age: float, *, released: bool = False) -> None:
        self.leases.take(0, HOLDER)
        if released:
            self.leases.release(HOLDER.gang, 0)
        for file in (self.output / ".launcher" / ".leases").iterdir():
            os.utime(file, (time.time() - age, time.time() - age))

    def shown(self) -> str:
        return describe(str(self.folder), as_json=False)

    def members(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(describe(str(self.folder), as_json=True))["members"]
        return found


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    return Volume(tmp_path)


def test_a_member_that_trains_is_shown_as_it_is_for_as_long_as_its_hub_renews_the_lease(volume: Volume) -> None:
    volume.member(0, "training", 9000)
    volume.lease(5)
    assert " training  " in volume.shown()
    assert "not written" not in volume.shown()
    assert "silent_seconds" not in volume.members()[0]


@pytest.mark.parametrize("released", [True, False])
def test_a_killed_launcher_is_shown_with_the_time_since_it_has_written(volume: Volume, released: bool) -> None:
    """The lease is released if only one launcher was killed. No launcher renews it if all were killed."""
    volume.member(0, "failed", 90, exit_code=76)
    volume.member(1, "training", 95)
    volume.lease(90, released=released)
    first, second = volume.shown().splitlines()[1:3]
    assert "failed" in first
    assert "not written" not in first
    assert "training? not written for 95 s" in second
    assert "not written: this launcher was killed, or could not write to the volume when it ended" in volume.shown()
    assert "silent_seconds" not in volume.members()[0]
    assert 95 <= volume.members()[1]["silent_seconds"] < 120


def test_a_launcher_that_has_just_written_is_never_shown_as_silent(volume: Volume) -> None:
    """Its gang may be about to end."""
    volume.member(0, "ending", 2)
    volume.lease(2, released=True)
    assert "not written" not in volume.shown()


def test_a_launcher_that_waits_for_a_new_pod_is_not_shown_as_silent(volume: Volume) -> None:
    volume.member(0, "gathering", 200)
    volume.lease(200, released=True)
    assert "not written" not in volume.shown()


@pytest.mark.parametrize(("ended", "silent"), [("2026-01-02T00:00:00Z", True), (None, False)])
def test_without_a_lease_the_end_of_the_job_shows_who_has_not_written(
    volume: Volume, ended: str | None, silent: bool
) -> None:
    volume.write("job.json", {"ended": ended, "members": [{"pod": "pod-0", "rank": 0}]})
    volume.member(0, "training", 7300)
    assert ("training? not written for 2 h" in volume.shown()) is silent


@pytest.mark.parametrize("spoiled", ["", "{", "[1]", "{}"])
def test_a_spoiled_lease_is_no_reason_to_fail(volume: Volume, spoiled: str) -> None:
    volume.member(0, "training", 90)
    volume.lease(90)
    path = volume.output / ".launcher" / ".leases" / "0"
    path.write_text(spoiled)
    assert "training" in volume.shown()


def test_the_newest_saved_pass_is_shown_since_the_last_finished_pass_may_not_be_saved(volume: Volume) -> None:
    volume.member(0, "training", 0, last_pass=3)
    assert "saved pass" not in volume.shown()
    for number, done in ((1, True), (2, True), (3, False)):
        folder = volume.output / f"pass-{number:05d}"
        folder.mkdir()
        (folder / "w").write_text("w")
        if done:
            (folder / "done").touch()
    assert f"newest saved pass: 2 ({volume.output}/pass-00002)" in volume.shown()
    assert json.loads(describe(str(volume.folder), as_json=True))["saved_pass"] == 2


def test_generations_of_different_sizes_show_their_sizes(volume: Volume) -> None:
    volume.member(0, "training", 0)
    volume.lease(0)
    stop = {"kind": "stopped", "rank": 2, "role": "both", "pod": "pod-2", "what": "got SIGTERM"}
    grows = {
        "kind": "resized",
        "rank": None,
        "role": None,
        "pod": "pod-0",
        "what": "the job grows from 2 to 3 trainers",
    }
    generations = [
        {"number": 0, "began": "a", "ended": "b", "after_pass": None, "trainers": 3, "first_cause": stop},
        {"number": 1, "began": "c", "ended": "d", "after_pass": 1, "trainers": 2, "first_cause": grows},
        {"number": 2, "began": "e", "ended": None, "after_pass": 2, "trainers": 3, "first_cause": None},
    ]
    volume.write("job.json", {"job": "job", "members": [], "generations": generations})
    shown = volume.shown()
    assert "trainers" in shown
    assert "a change of size to 2: rank 2 (pod-2): got SIGTERM" in shown
    assert "the job grows from 2 to 3 trainers" in shown
    for generation in generations:
        generation["trainers"] = 3
    volume.write("job.json", {"job": "job", "members": [], "generations": generations[::2]})
    assert "trainers" not in volume.shown()
