"""Staging copies the shard and the configuration completely, and reports what is missing."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from launcher.data import files, inspection, progress, tree
from launcher.data.pool import Pool
from launcher.data.progress import Progress
from launcher.data.staging import Copy
from launcher.errors import Exit
from tests.support.staging import configuration, failing, scanned, shard, stage, work

# ---- the copy --------------------------------------------------------------------------------------------------------


def test_configuration_and_shard_are_copied_to_their_destinations(job: Path) -> None:
    messages = stage(job, configuration(job), shard(job, 1))
    assert (work(job) / "trainer_config.py").read_text() == "settings()\n"
    assert (work(job) / "data" / "train.txt").read_text() == "lines of 1\n"
    assert [line.split(":")[0] for line in messages] == ["configuration", "shard of rank 1"]
    assert "1 file, 11 bytes copied" in messages[1]


def test_names_modes_times_and_empty_folders_are_kept(job: Path) -> None:
    source = os.fsencode(job / "0" / "data")
    odd = [b"with space", b"new\nline", b"not utf-8 \xff\xfe", b"-rf", b"x" * 255]
    for name in odd:
        Path(os.fsdecode(source + b"/" + name)).write_bytes(name)
    os.makedirs(source + b"/sub/empty")
    os.chmod(source + b"/-rf", 0o555)
    os.chmod(source + b"/sub/empty", 0o750)
    for path in (b"/-rf", b"/sub/empty", b"/sub", b""):
        os.utime(source + path, ns=(1, 1_234_567_890_123_456_789))
    stage(job, shard(job, 0))
    target = os.fsencode(work(job) / "data")
    assert sorted(os.listdir(target)) == sorted([*odd, b"sub", b"train.txt"])
    assert all(Path(os.fsdecode(target + b"/" + name)).read_bytes() == name for name in odd)
    assert os.stat(target + b"/-rf").st_mode & 0o777 == 0o755  # the owner can always write
    assert os.stat(target + b"/sub/empty").st_mode & 0o777 == 0o750
    for path in (b"/-rf", b"/sub/empty", b"/sub", b""):
        assert os.stat(target + path).st_mtime_ns == 1_234_567_890_123_456_789


def test_links_still_have_a_target_after_the_copy(job: Path) -> None:
    source = job / "0" / "data"
    (job / "pool").mkdir()
    (job / "pool" / "part").write_text("shared part")
    os.symlink("train.txt", source / "inside")
    os.symlink("../../pool/part", source / "outside")
    os.symlink("../../pool", source / "folder")
    os.symlink("nowhere", source / "dangling")
    messages = stage(job, shard(job, 0))
    target = work(job) / "data"
    assert os.readlink(target / "inside") == "train.txt"
    assert not (target / "outside").is_symlink()
    assert (target / "outside").read_text() == "shared part"
    assert (target / "folder" / "part").read_text() == "shared part"
    assert os.readlink(target / "dangling") == "nowhere"
    assert any("their targets do not exist: dangling" in line for line in messages)
    assert any("folders outside of the source: folder" in line for line in messages)


def test_a_source_that_is_itself_a_link_is_followed(job: Path) -> None:
    (job / "2").mkdir()
    os.symlink("../0/data", job / "2" / "data")
    stage(job, shard(job, 2))
    assert (work(job) / "data" / "train.txt").read_text() == "lines of 0\n"


def test_fifos_and_hidden_names_in_the_top_folder_are_not_copied(job: Path) -> None:
    source = job / "0" / "data"
    os.mkfifo(source / "pipe")
    (source / ".snapshot").mkdir()
    (source / ".snapshot" / "old").write_text("x")
    (source / "sub").mkdir()
    (source / "sub" / ".keep").write_text("x")
    messages = stage(job, shard(job, 0))
    assert sorted(os.listdir(work(job) / "data")) == ["sub", "train.txt"]
    assert os.listdir(work(job) / "data" / "sub") == [".keep"]
    assert any("pipe" in line for line in messages)


def test_all_files_in_deep_and_wide_folders_are_copied(job: Path) -> None:
    source = job / "0" / "data"
    for number in range(600):
        folder = source / str(number % 7) / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(os.urandom(number * 7))
    stage(job, shard(job, 0))
    assert _contents(work(job) / "data") == _contents(source)


def test_a_large_file_is_copied_completely_in_ranges(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_RANGE", 300_000)
    data = os.urandom(1_000_003)
    source = job / "0" / "data"
    (source / "large").write_bytes(data)
    os.utime(source / "large", ns=(1, 5))
    for new_root in (True, False):
        target = work(job) / str(new_root)
        target.mkdir()
        with Pool() as pool:
            found = scanned(pool, source)
            tree.copy(pool, found, found.files, found.links, os.fsencode(target), new_root)
            assert pool.copied() == found.size()
        assert (target / "large").read_bytes() == data
        assert (target / "large").stat().st_mtime_ns == 5
        assert sorted(os.listdir(target)) == ["large", "train.txt"]


# ---- the bytes of one file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refused", [(), ("copy_file_range",), ("copy_file_range", "sendfile")], ids=str)
@pytest.mark.parametrize("how", ["error", "nothing"])
def test_each_method_of_copying_copies_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Sequence[str], how: str
) -> None:
    for name in refused:
        monkeypatch.setattr(os, name, _raising(errno.EXDEV) if how == "error" else lambda *_: 0)
    data = os.urandom(3 * 1024 * 1024 + 17)
    (tmp_path / "a").write_bytes(data)
    before = progress.copied_bytes()
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        copied = files.copy_bytes(source.fileno(), target.fileno(), 5, len(data) - 5, 3)
    assert copied == progress.copied_bytes() - before == len(data) - 5
    assert (tmp_path / "b").read_bytes() == b"\0\0\0" + data[5:]


def test_copying_continues_after_a_short_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.copy_file_range
    monkeypatch.setattr(os, "copy_file_range", lambda a, b, count, *at: real(a, b, min(count, 70_001), *at))
    data = os.urandom(1024 * 1024)
    (tmp_path / "a").write_bytes(data)
    with open(tmp_path / "a", "rb") as source, open(tmp_path / "b", "wb") as target:
        files.copy_bytes(source.fileno(), target.fileno(), 0, len(data), 0)
    assert (tmp_path / "b").read_bytes() == data


# ---- missing or conflicting files ------------------------------------------------------------------------------------


SHARD = (
    "`paddle-launcher shard --data DATA --out JOB --count 3` "
    "(DATA: the data set, JOB: the job's folder; in a data Job: SPLIT_COUNT=3)"
)


def test_a_missing_shard_is_reported_with_the_existing_shards_and_what_to_do(job: Path) -> None:
    failure = failing(job, configuration(job), shard(job, 2))
    assert failure.code == Exit.NO_INPUT
    assert failure.message == (
        f"shard of rank 2: {job}/2/data does not exist; {job} contains: 0, 1, quick_start: "
        f"was the data set split for 2 trainers? Run {SHARD}"
    )
    assert os.listdir(work(job)) == []  # nothing was copied, not even the configuration


def test_a_shard_that_is_missing_between_others_is_reported_as_missing_alone(job: Path) -> None:
    """The data set was split for enough trainers, so the message does not ask how often it was split."""
    (job / "0").rename(job / "2")
    message = failing(job, shard(job, 0)).message
    assert message == (
        f"shard of rank 0: {job}/0/data does not exist; {job} contains: 1, 2, quick_start: shard 2 exists, so was the "
        f"folder 0 deleted or renamed? {SHARD} makes it again"
    )


AGAIN = f"split the data set again: {SHARD}"


def test_a_shard_whose_list_names_only_files_without_a_byte_has_no_samples(job: Path) -> None:
    """A trainer of Paddle v0 without samples hangs for ever, and all others wait for it."""
    data = job / "0" / "data"
    (data / "train.txt").write_text("")
    (data / "more").touch()
    (data / "dict.txt").write_text("words, which are no samples")
    (data / "train.list").write_text("data/train.txt\n\n./data/more\n")
    failure = failing(job, configuration(job), shard(job, 0))
    assert failure.code == Exit.NO_INPUT
    has = f"./data/more, data/train.txt have 0 bytes, in {data}"
    assert failure.message == f"shard of rank 0 has no samples: {has}: {AGAIN}"
    assert os.listdir(work(job)) == []


def test_a_shard_whose_list_names_no_file_has_no_samples(job: Path) -> None:
    (job / "0" / "data" / "train.list").write_text(" \n")
    assert "has no samples: train.list has 0 bytes" in failing(job, shard(job, 0)).message


@pytest.mark.parametrize(
    "named", ["data/train.txt", "data/full", "{}/elsewhere", "day=7", "/dev/null", "data/sub", "a\0b"]
)
def test_a_shard_whose_list_names_a_file_with_bytes_or_something_else_is_copied(job: Path, named: str) -> None:
    """A program may give any meaning to the names."""
    data = job / "0" / "data"
    (data / "empty").touch()
    (data / "full").write_text("samples")
    (data / "sub").mkdir()
    (job / "elsewhere").write_text("samples")
    (data / "train.list").write_text(f"data/empty\n{named.format(job)}\n")
    stage(job, shard(job, 0))
    assert (work(job) / "data" / "full").read_text() == "samples"


def test_a_list_may_name_files_outside_of_the_shard_that_have_no_byte(job: Path) -> None:
    (job / "elsewhere").touch()
    (job / "0" / "data" / "train.list").write_text(f"{job}/elsewhere\n")
    assert f"has no samples: {job}/elsewhere has 0 bytes" in failing(job, shard(job, 0)).message


def test_without_a_list_a_shard_has_no_samples_if_no_file_in_it_has_a_byte(job: Path) -> None:
    data = job / "0" / "data"
    (data / "train.txt").write_text("")
    (data / "part").touch()
    assert "has no samples: part, train.txt have 0 bytes" in failing(job, shard(job, 0)).message
    (data / "part").write_text("1")
    stage(job, shard(job, 0))
    (data / "part").unlink()
    os.symlink("../../1", data / "others")  # a folder outside, with any content
    stage(job, shard(job, 0))


def test_a_configuration_may_consist_of_empty_files(job: Path) -> None:
    (job / "quick_start" / "trainer_config.py").write_text("")
    stage(job, configuration(job))


def test_an_empty_shard_and_a_file_in_its_place_are_reported(job: Path) -> None:
    (job / "0" / "data" / "train.txt").unlink()
    empty = failing(job, shard(job, 0))
    (job / "2").mkdir()
    (job / "2" / "data").write_text("a file")
    file = failing(job, shard(job, 2))
    assert (empty.code, file.code) == (Exit.NO_INPUT, Exit.NO_INPUT)
    assert f"{job}/0/data is empty" in empty.message
    assert f"{job}/2/data is not a folder" in file.message


def test_more_shards_than_trainers_are_reported_with_both_numbers_and_what_to_do(job: Path) -> None:
    for number in (2, 3, 4):
        shutil.copytree(job / "0", job / str(number), dirs_exist_ok=True)
    failure = failing(job, shard(job, 0))
    assert failure.code == Exit.NO_INPUT
    assert failure.message.startswith("5 shards for 3 trainers: ")
    for part in (
        f"{job}/3/data to {job}/4/data",
        "run 5 trainers",
        "`paddle-launcher shard --data DATA --out JOB --count 3`",
    ):
        assert part in failure.message
    assert not (work(job) / "data").exists()
    on_purpose = replace(shard(job, 0), allow_unused=True)
    (warning,) = [line for line in stage(job, on_purpose) if "5 shards for 3 trainers" in line]
    assert "LAUNCHER_ALLOW_UNUSED_SHARDS" in warning
    assert (work(job) / "data" / "train.txt").exists()


def test_other_folders_with_numbers_are_no_unused_shards(job: Path) -> None:
    for name in ("2016/data", "3", "output/data", "04/data"):
        (job / name).mkdir(parents=True)
    (job / "3" / "data").write_text("a file")
    stage(job, shard(job, 0))


def test_a_folder_after_the_shards_that_cannot_be_examined_is_no_unused_shard(job: Path) -> None:
    """It may belong to another user, or be a link to itself."""
    (job / "3").symlink_to("3")
    stage(job, shard(job, 0))


def test_very_many_unused_shards_are_counted_in_few_steps_and_up_to_a_limit(job: Path) -> None:
    every = job / "every"  # as in the folder of an automounter, each number is there
    (every / "data").mkdir(parents=True)
    for number in range(3, 250):
        (job / str(number)).symlink_to("every")
    assert failing(job, shard(job, 0)).message.startswith("250 shards for 3 trainers: ")
    for number in range(250, 10_200):
        (job / str(number)).symlink_to("every")
    message = failing(job, shard(job, 0)).message
    assert message.startswith("10003 or more shards for 3 trainers: ")
    assert f"{job}/10002/data: run" in message


def test_a_missing_configuration_or_volume_names_the_variables_to_check(job: Path) -> None:
    missing = Copy(str(job / "recommendation"), str(work(job)), "configuration", str(job))
    assert "check TRAIN_CONFIG_DIR" in failing(job, missing).message
    nowhere = Copy("/no/volume/job/0/data", str(work(job) / "data"), "shard of rank 0", "/no/volume/job", 3)
    assert "check JOB_PATH and JOB_NAME" in failing(job, nowhere).message


def test_a_folder_is_not_copied_into_itself(job: Path) -> None:
    same = shard(job, 0, job / "0" / "data")
    inside = shard(job, 0, job / "0" / "data" / "sub")
    (job / "0" / "data" / "0").mkdir()
    (job / "0" / "data" / "0" / "train.txt").write_text("would land in the source")
    above = shard(job, 0, job)
    for copy in (same, inside, above):
        assert failing(job, copy).code == Exit.CONFIG
    assert stage(job, Copy(str(job / "quick_start"), str(job), "configuration", str(job)))  # beside others: harmless


def test_a_file_where_the_data_should_go_is_named(job: Path) -> None:
    (work(job) / "data").write_text("a file")
    failure = failing(job, shard(job, 0))
    assert failure.code == Exit.CANNOT_WRITE
    assert str(work(job) / "data") in failure.message


# ---- later starts ----------------------------------------------------------------------------------------------------


def test_a_second_start_copies_only_changed_files(job: Path) -> None:
    stage(job, configuration(job), shard(job, 0))
    first = (work(job) / "data" / "train.txt").stat().st_ino
    messages = stage(job, configuration(job), shard(job, 0))
    assert all("all files are already in the destination; nothing to copy" in line for line in messages)
    assert (work(job) / "data" / "train.txt").stat().st_ino == first
    (job / "0" / "data" / "test.txt").write_text("new")
    (work(job) / "trainer_config.py").write_text("changed by hand, in the container")
    messages = stage(job, configuration(job), shard(job, 0))
    assert "not copied, because already in the destination: 1 file" in messages[1]
    assert (work(job) / "data" / "train.txt").stat().st_ino == first
    assert (work(job) / "data" / "test.txt").read_text() == "new"
    assert (work(job) / "trainer_config.py").read_text() == "settings()\n"


def test_another_rank_replaces_the_shard_and_leaves_the_users_own_files(job: Path) -> None:
    (job / "0" / "data" / "parts").mkdir()
    (job / "0" / "data" / "parts" / "only-of-0").write_text("x")
    (job / "0" / "data" / "turns").write_text("a file here, a folder there")
    (job / "1" / "data" / "turns").mkdir()
    (job / "1" / "data" / "turns" / "file").write_text("x")
    stage(job, shard(job, 0))
    (work(job) / "data" / "cache").write_text("the trainer's")
    stage(job, shard(job, 1))
    assert sorted(os.listdir(work(job) / "data")) == ["cache", "train.txt", "turns"]
    assert (work(job) / "data" / "train.txt").read_text() == "lines of 1\n"
    assert os.listdir(work(job) / "data" / "turns") == ["file"]


def test_files_of_the_image_are_kept_and_never_treated_as_copied_files(job: Path) -> None:
    (work(job) / "data").mkdir()
    (work(job) / "data" / "vocabulary").write_text("of the image")
    (work(job) / "data" / "train.txt").write_text("LINES OF 0\n")  # the same size and time
    (work(job) / "data" / ".paddle-part-0").write_text("left by an earlier start")
    for folder in (work(job) / "data", job / "0" / "data"):
        os.utime(folder / "train.txt", ns=(0, 0))
    stage(job, shard(job, 0))
    assert (work(job) / "data" / "vocabulary").read_text() == "of the image"
    assert (work(job) / "data" / "train.txt").read_text() == "lines of 0\n"
    assert sorted(os.listdir(work(job) / "data")) == ["train.txt", "vocabulary"]


@pytest.mark.parametrize(
    "record",
    [
        '{"version": 1, "destin',
        "[" * 200_000,
        '{"version": 1, "destinations": [1]}',
        '{"version": 1, "destinations": {"DATA": 5}}',
        '{"version": 1, "destinations": {"DATA": {"complete": true, "names": 5}}}',
        '{"version": 1, "destinations": {"DATA": {"complete": "yes", "names": []}}}',
        '{"version": 1, "destinations": {"DATA": {"complete": true, "names": ["\\ud800"]}}}',
        '{"version": 1, "destinations": {"DATA": {"complete": true, "names": ["../mine"]}}}',
        '{"version": 1, "destinations": {"DATA": {"complete": true, "names": ["MINE"]}}}',
        '{"version": 2, "destinations": {}}',
    ],
)
def test_with_a_record_that_cannot_be_used_all_files_are_copied_again(job: Path, record: str) -> None:
    """A path that leads out of the destination would let the launcher remove a file there."""
    stage(job, shard(job, 0))
    mine, data = work(job) / "mine", work(job) / "data"
    mine.write_text("not copied")
    spoiled = record.replace("DATA", str(data)).replace("MINE", str(mine))
    (work(job) / ".paddle-launcher-staged.json").write_text(spoiled)
    assert "1 file, 11 bytes copied" in stage(job, shard(job, 0))[-1]
    assert mine.read_text() == "not copied"


def test_a_record_that_is_a_fifo_is_named(job: Path) -> None:
    stage(job, shard(job, 0))
    record = work(job) / ".paddle-launcher-staged.json"
    record.unlink()
    os.mkfifo(record)
    assert failing(job, shard(job, 0)).message.startswith(f"{record} is a FIFO, not a file: ")


def test_a_file_with_a_stale_handle_is_copied_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the volume was replaced on the server: the handle that NFS has cached is stale."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(100_000))
    (tmp_path / "b").mkdir()
    real, calls = os.pread, []

    def stale_once(*args: int) -> bytes:
        calls.append(args)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(*args)

    monkeypatch.setattr(os, "pread", stale_once)
    found = os.stat(tmp_path / "a" / "file")
    file = (b"file", 0, found.st_size, found.st_size, found.st_mtime_ns, found.st_mode)
    files.copy_files(os.fsencode(tmp_path / "a"), os.fsencode(tmp_path / "b"), [(0, file)], True, False)
    assert (tmp_path / "b" / "file").read_bytes() == bytes(100_000)
    assert len(calls) > 1


@pytest.mark.parametrize(
    ("call", "read"),
    [
        ("open", lambda folder: inspection.read_head(os.fsencode(folder / "train.list"), 4)),
        ("read", lambda folder: inspection.read_head(os.fsencode(folder / "train.list"), 4)),
        ("listdir", lambda folder: inspection.list_names(str(folder))),
    ],
)
def test_a_stale_handle_of_a_shard_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, read: Callable[[Path], object]
) -> None:
    (tmp_path / "train.list").write_text("data")
    real, calls = getattr(os, call), []

    def stale_once(*args: object) -> object:
        calls.append(args)
        if len(calls) == 1:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return real(*args)

    monkeypatch.setattr(os, call, stale_once)
    assert read(tmp_path) in (b"data", ["train.list"])
    assert len(calls) == 2


def test_partial_copies_of_a_killed_start_are_removed(job: Path) -> None:
    (work(job) / ".paddle-part-data" / "sub").mkdir(parents=True)
    (work(job) / ".paddle-part-data" / "sub" / ".half").write_text("x")
    stage(job, shard(job, 0))
    assert sorted(os.listdir(work(job))) == [".paddle-launcher-staged.json", "data"]
    record = work(job) / ".paddle-launcher-staged.json"
    record.write_text(record.read_text().replace("true", "false"))
    (work(job) / "data" / ".paddle-part-17").write_text("x")
    stage(job, shard(job, 0))
    assert os.listdir(work(job) / "data") == ["train.txt"]


# ---- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_logged_after_two_seconds_and_then_every_ten(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    reports = Progress(clock=lambda: now[0])
    reports.begin("shard of rank 1", 10 * 2**30)
    for second in range(1, 41):
        now[0] = second
        reports.update(min(second, 12) * 2**28)
    assert caplog.messages == [
        "shard of rank 1: 512.0 MiB of 10.0 GiB, 256.0 MiB/s, about 38 s left",
        "shard of rank 1: 3.0 GiB of 10.0 GiB, 256.0 MiB/s, about 28 s left",
        "shard of rank 1: 3.0 GiB of 10.0 GiB, no progress for 10 s: is a volume stalled?",
        "shard of rank 1: 3.0 GiB of 10.0 GiB, no progress for 20 s: is a volume stalled?",
    ]


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _raising(number: int) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail
