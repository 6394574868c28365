"""A full, read-only or stalled volume is named, and never prevents a stop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import IN_A_PASS, Job, until
from tests.support.nodes import Nodes
from tests.support.supervising import needs_root
from tests.support.verdicts import first_sentence

pytestmark = needs_root

MANY = ("--config=trainer_config.lr.py", "--num_passes=1000", "--log_period=1")


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture
def tiny_job(three_nodes: Nodes, data_volume: Path, tmp_path: Path) -> Iterator[Job]:
    """Yield a job on a volume of 2 MiB in memory."""
    volume = tmp_path / "tiny"
    volume.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", volume)
    try:
        shutil.copytree(data_volume, volume, dirs_exist_ok=True)
        yield Job(three_nodes, volume, tmp_path, STANDIN_BATCH_SECONDS="0.01")
    finally:
        three_nodes.end()
        run("umount", "-l", volume)


@pytest.fixture
def disk_job(three_nodes: Nodes, data_volume: Path, tmp_path: Path) -> Iterator[Job]:
    """Yield a job on its own ext4, which can be frozen."""
    image, volume = tmp_path / "disk", tmp_path / "disk-volume"
    volume.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    run("mkfs.ext4", "-q", image)
    run("mount", "-o", "loop", image, volume)
    try:
        shutil.copytree(data_volume, volume, dirs_exist_ok=True)
        yield Job(three_nodes, volume, tmp_path, STANDIN_BATCH_SECONDS="0.05")
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", volume], check=False, capture_output=True)
        three_nodes.end()
        run("umount", "-l", volume)


def use_up_files(volume: Path) -> None:
    """Use up all inodes of a volume in memory."""
    system = os.statvfs(volume)
    run("mount", "-o", f"remount,nr_inodes={system.f_files - system.f_ffree + 20}", volume)
    try:
        for number in range(100):
            (volume / f"filler-{number}").touch()
    except OSError:
        return
    raise AssertionError("the volume takes any number of files")


def fill(volume: Path) -> Path:
    filler = volume / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    return filler


def test_a_volume_that_is_full_at_the_start_ends_with_73_before_training(tiny_job: Job) -> None:
    assert tiny_job.volume
    fill(tiny_job.volume)
    assert tiny_job.start().codes() == [73, 73, 73], tiny_job.stderr()
    assert str(tiny_job.output) in tiny_job.termination(0)
    assert "space" in tiny_job.termination(0)


def test_a_volume_that_is_read_only_at_the_start_ends_with_73(tiny_job: Job) -> None:
    run("mount", "-o", "remount,ro", tiny_job.volume)
    assert tiny_job.start().codes() == [73, 73, 73], tiny_job.stderr()
    assert "read-only" in tiny_job.termination(0).lower()


def test_a_volume_that_fills_up_while_training_is_named_and_does_not_stop_the_job(tiny_job: Job) -> None:
    assert tiny_job.volume
    # No model is saved, because this test is only about files of the launcher.
    tiny_job.start(flags=(*MANY, f"--save_dir={tiny_job.folder / 'models'}")).until_training()
    filler = fill(tiny_job.volume)
    until(lambda: "train.log" in tiny_job.stderr(1), 30, "the full volume is named")
    size = (tiny_job.output / "node_1" / "train.log").stat().st_size
    filler.unlink()
    until(lambda: (tiny_job.output / "node_1" / "train.log").stat().st_size > size, 30, "the log grows again")
    tiny_job.launchers[1].terminate()
    assert tiny_job.codes() == [69, 143, 69], tiny_job.stderr()


def test_a_job_whose_last_pass_was_cut_by_a_full_volume_is_not_complete(tiny_job: Job) -> None:
    """Paddle v0 loses a small parameter without an error, and ends with 0."""
    job = tiny_job
    assert job.volume
    job.hold("pass-1-save").start(1, 2).start(0, POD_UID="uid-0")
    half = job.output / "pass-00001" / "___fc_layer_0__.w0"
    until(lambda: half.exists() and half.stat().st_size > 16, 30, job.stderr())
    filler = fill(job.volume)
    job.release()
    assert job.codes() == [73, 69, 69], job.stderr()
    lost = half.parent / "___fc_layer_0__.wbias"
    assert (lost.stat().st_size, (half.parent / "done").exists()) == (0, True), "this is a faithful stand-in"
    what = f"{half.parent} is not whole: its file {lost.name} is empty: is the volume full?"
    for rank in range(3):
        assert what in job.termination(rank)
    assert first_sentence(job.output).startswith(f"The job failed: rank 0 (pod pod-0): {what}")
    assert not (job.output / ".launcher" / "job-1" / "complete").exists()
    filler.unlink()
    # The hub's container starts again, so the hub need not wait until its own lease has expired.
    assert job.start(1, 2).start(0, POD_UID="uid-0").codes() == [0, 0, 0], job.stderr()
    assert lost.stat().st_size > 0
    (moved,) = job.output.glob("incomplete-*/pass-00001")
    assert f"pass-00001: its file {lost.name} is empty" in job.stderr(0)
    assert (moved / "done").exists()


def in_the_last_pass(job: Job) -> Job:
    """Start a job that saves its models elsewhere, and hold it in its last pass."""
    flags = ("--config=trainer_config.lr.py", "--num_passes=2", f"--save_dir={job.folder / 'models'}")
    job.hold("pass-1").start(flags=flags)
    until(lambda: (job.folder / "models" / "pass-00000" / "done").exists(), 30, job.stderr())
    return job


def test_a_job_is_complete_although_its_volume_is_full_and_the_next_job_does_not_wait(tiny_job: Job) -> None:
    """The mark and the release of the lease need no free block."""
    job = in_the_last_pass(tiny_job)
    assert job.volume
    filler = fill(job.volume)
    assert job.release().codes() == [0, 0, 0], job.stderr()
    assert (job.output / ".launcher" / "job-1" / "complete").exists()
    assert "released" in json.loads((job.output / ".launcher" / ".leases" / "0").read_text())
    filler.unlink()
    assert job.start(LAUNCHER_JOB_ID="job-2").codes() == [0, 0, 0], job.stderr()
    assert "for the end of another gang" not in job.stderr()
    assert "for the last processes" not in job.stderr()


def test_a_job_whose_mark_does_not_fit_on_the_volume_is_not_complete(tiny_job: Job) -> None:
    """The volume can have no more files. The next start would not know that the job is complete, and would train."""
    job = in_the_last_pass(tiny_job)
    assert job.volume
    use_up_files(job.volume)
    job.release()
    assert job.codes() == [73, 69, 69], job.stderr()
    mark = job.output / ".launcher" / "job-1" / "complete"
    what = f"all members have trained, but the mark of completion is missing: cannot write {mark}: No space left"
    for rank in range(3):
        assert what in job.termination(rank)
    assert first_sentence(job.output).startswith(f"The job failed: rank 0 (pod pod-0): {what}")
    assert not mark.exists()


def test_a_volume_that_is_stalled_at_the_start_ends_with_74(disk_job: Job) -> None:
    run("fsfreeze", "--freeze", disk_job.volume)
    disk_job.start(LAUNCHER_VOLUME_TIMEOUT="1")
    until(lambda: all("exit code 74" in disk_job.termination(rank) for rank in range(3)), 20)
    assert "has not answered" in disk_job.termination(2)
    run("fsfreeze", "--unfreeze", disk_job.volume)
    assert disk_job.codes() == [74, 74, 74]


@pytest.mark.slow
def test_a_volume_that_is_silent_for_too_long_ends_the_job_and_is_named(disk_job: Job) -> None:
    disk_job.start_in_a_pass(LAUNCHER_SILENCE="15", LAUNCHER_STALL_TIMEOUT="0")
    run("fsfreeze", "--freeze", disk_job.volume)
    until(lambda: all("exit code " in disk_job.termination(rank) for rank in range(3)), 90, disk_job.stderr())
    run("fsfreeze", "--unfreeze", disk_job.volume)
    assert disk_job.codes() == [74, 69, 69], disk_job.stderr()
    sentence = first_sentence(disk_job.output)
    assert sentence.startswith("The job failed: rank 0 (pod pod-0): "), sentence
    assert "volume" in sentence


def test_a_stop_reaches_all_members_while_the_volume_is_stalled(disk_job: Job) -> None:
    disk_job.hold(IN_A_PASS).start(
        flags=MANY, LAUNCHER_STOP_GRACE="2"
    ).until_training()  # children that wait for the volume need the whole grace period
    run("fsfreeze", "--freeze", disk_job.volume)
    disk_job.release()  # each trainer logs its next batch to the stalled volume
    until(lambda: "has been blocked for" in disk_job.stderr(1), 30, f"the stall is named\n{disk_job.stderr()}")
    disk_job.launchers[1].terminate()
    until(lambda: all("got SIGTERM" in disk_job.termination(rank) for rank in range(3)), 10)
    run("fsfreeze", "--unfreeze", disk_job.volume)  # only now, blocked writers can end
    assert disk_job.codes() == [69, 143, 69], disk_job.stderr()
    assert disk_job.nothing_left()
