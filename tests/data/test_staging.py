"""Staging: the shard and the configuration are copied completely or not at all, even if volumes fail or stall."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from launcher.data import files, progress, space, tree
from launcher.data.copier import Copier
from launcher.data.pool import Pool
from launcher.data.progress import Progress
from launcher.data.staging import Copy, Staging
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure
from tests.support.logs import logged
from tests.support.paths import REPOSITORY
from tests.support.supervising import needs_root

ENV = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder on the volume: two shards and a configuration, and an empty work directory next to the volume."""
    folder = tmp_path / "volume" / "job"
    for rank in (0, 1):
        (folder / str(rank) / "data").mkdir(parents=True)
        (folder / str(rank) / "data" / "train.txt").write_text(f"lines of {rank}\n")
    (folder / "quick_start").mkdir()
    (folder / "quick_start" / "trainer_config.py").write_text("settings()\n")
    (tmp_path / "work").mkdir()
    return folder


def configuration(job: Path) -> Copy:
    return Copy(str(job / "quick_start"), str(work(job)), "configuration", str(job))


def shard(job: Path, rank: int, destination: Path | None = None) -> Copy:
    target = destination or work(job) / "data"
    return Copy(str(job / str(rank) / "data"), str(target), f"shard of rank {rank}", str(job), 3)


def work(job: Path) -> Path:
    return job.parent.parent / "work"


def stage(job: Path, *copies: Copy) -> list[str]:
    """Run the copies as the launcher does. Return the messages."""

    async def run() -> None:
        staging = Staging(copies, str(work(job)), ENV)
        try:
            await staging.run()
        finally:
            await staging.close()

    with logged() as messages:
        asyncio.run(run())
    return messages


def failing(job: Path, *copies: Copy) -> Failure:
    with pytest.raises(Failure) as failed:
        stage(job, *copies)
    return failed.value


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


# The copy


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
    assert any("lead nowhere: dangling" in line for line in messages)
    assert any("folders outside of the source: folder" in line for line in messages)


def test_a_source_that_is_itself_a_link_is_followed(job: Path) -> None:
    (job / "2").mkdir()
    os.symlink("../0/data", job / "2" / "data")
    stage(job, shard(job, 2))
    assert (work(job) / "data" / "train.txt").read_text() == "lines of 0\n"


def test_a_fifo_is_left_out_and_named_and_hidden_names_are_left_out_only_at_the_top(job: Path) -> None:
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


def test_many_files_in_deep_and_wide_folders_all_arrive(job: Path) -> None:
    source = job / "0" / "data"
    for number in range(600):
        folder = source / str(number % 7) / str(number % 3)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_bytes(os.urandom(number * 7))
    stage(job, shard(job, 0))
    assert _contents(work(job) / "data") == _contents(source)


def test_a_large_file_copied_by_ranges_arrives_whole(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_RANGE", 300_000)
    data = os.urandom(1_000_003)
    source = job / "0" / "data"
    (source / "large").write_bytes(data)
    os.utime(source / "large", ns=(1, 5))
    for new_root in (True, False):
        target = work(job) / str(new_root)
        target.mkdir()
        with Pool() as pool:
            found = _walked(pool, source)
            tree.copy(pool, found, found.files, found.links, os.fsencode(target), new_root)
            assert pool.copied() == found.size()
        assert (target / "large").read_bytes() == data
        assert (target / "large").stat().st_mtime_ns == 5
        assert sorted(os.listdir(target)) == ["large", "train.txt"]


# The bytes of one file


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


# Missing or conflicting files


def test_a_missing_shard_is_reported_with_what_is_there_and_what_to_do(job: Path) -> None:
    failure = failing(job, configuration(job), shard(job, 2))
    assert failure.code == Exit.NO_INPUT
    assert failure.message == (
        f"shard of rank 2: {job}/2/data does not exist; {job} holds: 0, 1, quick_start: "
        "was the data set split for 2 trainers? Run `paddle-launcher shard` with SPLIT_COUNT=3"
    )
    assert os.listdir(work(job)) == []  # nothing was copied, not even the configuration


def test_an_empty_shard_and_a_file_in_its_place_are_reported(job: Path) -> None:
    (job / "0" / "data" / "train.txt").unlink()
    empty = failing(job, shard(job, 0))
    (job / "2").mkdir()
    (job / "2" / "data").write_text("a file")
    file = failing(job, shard(job, 2))
    assert (empty.code, file.code) == (Exit.NO_INPUT, Exit.NO_INPUT)
    assert f"{job}/0/data is empty" in empty.message
    assert f"{job}/2/data is not a folder" in file.message


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


# Later starts


def test_a_second_start_uses_what_is_there_and_copies_only_what_changed(job: Path) -> None:
    stage(job, configuration(job), shard(job, 0))
    first = (work(job) / "data" / "train.txt").stat().st_ino
    messages = stage(job, configuration(job), shard(job, 0))
    assert all("all are already in the destination, nothing to copy" in line for line in messages)
    assert (work(job) / "data" / "train.txt").stat().st_ino == first
    (job / "0" / "data" / "test.txt").write_text("new")
    (work(job) / "trainer_config.py").write_text("changed by hand, in the container")
    messages = stage(job, configuration(job), shard(job, 0))
    assert "1 file more there already" in messages[1]
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


def test_files_of_the_image_are_kept_and_never_mistaken_for_ours(job: Path) -> None:
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


def test_with_an_unreadable_record_all_is_copied_again(job: Path) -> None:
    stage(job, shard(job, 0))
    (work(job) / ".paddle-launcher-staged.json").write_text('{"version": 1, "destin')
    assert "copied" in stage(job, shard(job, 0))[0]


def test_leftovers_of_a_killed_start_are_removed(job: Path) -> None:
    (work(job) / ".paddle-part-data" / "sub").mkdir(parents=True)
    (work(job) / ".paddle-part-data" / "sub" / ".half").write_text("x")
    stage(job, shard(job, 0))
    assert sorted(os.listdir(work(job))) == [".paddle-launcher-staged.json", "data"]
    record = work(job) / ".paddle-launcher-staged.json"
    record.write_text(record.read_text().replace("true", "false"))
    (work(job) / "data" / ".paddle-part-17").write_text("x")
    stage(job, shard(job, 0))
    assert os.listdir(work(job) / "data") == ["train.txt"]


# During the copy


@pytest.mark.parametrize("what", ["grows", "is-touched", "vanishes"])
def test_a_file_that_changes_while_it_is_copied_is_named(job: Path, what: str) -> None:
    source = job / "0" / "data"
    with Pool() as pool:
        found = _walked(pool, source)
        if what == "grows":
            (source / "train.txt").write_text("more lines than before\n")
        elif what == "is-touched":
            os.utime(source / "train.txt", ns=(1, 1))
        else:
            (source / "train.txt").unlink()
        with pytest.raises(Failure) as failed:
            tree.copy(pool, found, found.files, found.links, os.fsencode(work(job)), new_root=True)
    assert failed.value.code == Exit.IO_FAILED
    assert str(source / "train.txt") in failed.value.message


@needs_root
@pytest.mark.parametrize(("options", "count", "size"), [("size=1m", 2, 800_000), ("nr_inodes=20", 40, 10)])
def test_too_little_space_is_reported_with_numbers_before_anything_is_copied(
    job: Path, options: str, count: int, size: int
) -> None:
    for number in range(count):
        (job / "0" / "data" / str(number)).write_bytes(b"x" * size)
    with mounted("-t", "tmpfs", "-o", options, "none", work(job)):
        failure = failing(job, shard(job, 0))
        assert failure.code == Exit.CANNOT_WRITE
        assert "are needed" in failure.message
        assert "are free" in failure.message
        assert str(work(job)) in failure.message
        assert os.listdir(work(job)) == []


@needs_root
def test_nothing_is_left_when_the_file_system_becomes_full_during_a_copy(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "check", lambda *_: None)
    (job / "0" / "data" / "large").write_bytes(b"x" * 3_000_000)
    copy = shard(job, 0).__dict__
    with mounted("-t", "tmpfs", "-o", "size=2m", "none", work(job)):
        request = {"copies": [copy], "record": str(work(job) / ".paddle-launcher-staged.json")}
        with Pool() as pool:
            copier = Copier(request, pool)
            with pytest.raises(Failure) as failed:
                copier.run()
            pool.close()
            copier.clean()
        assert failed.value.code == Exit.CANNOT_WRITE
        assert "No space left" in failed.value.message
        assert os.listdir(work(job)) == [".paddle-launcher-staged.json"]


@needs_root
def test_a_read_only_work_directory_is_reported(job: Path) -> None:
    with mounted("-t", "tmpfs", "-o", "ro", "none", work(job)):
        failure = failing(job, shard(job, 0))
    assert failure.code == Exit.CANNOT_WRITE
    assert "read-only" in failure.message


@needs_root
def test_close_returns_though_the_disk_stalls_and_an_incomplete_shard_is_never_renamed(
    job: Path, tmp_path: Path
) -> None:
    with frozen(job, tmp_path) as target:

        async def run() -> float:
            staging = Staging([shard(job, 0, target / "data")], str(target), {**ENV, "STUCK_IN": str(target)})
            running = asyncio.ensure_future(staging.run())
            await asyncio.get_running_loop().run_in_executor(None, until, lambda: _stuck(target))
            start = time.monotonic()
            await staging.close()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            return time.monotonic() - start

        assert asyncio.run(run()) < 5
        assert not (target / "data").exists()


@needs_root
def test_the_childs_death_is_noticed_though_its_workers_wait_for_a_stalled_disk(job: Path, tmp_path: Path) -> None:
    with frozen(job, tmp_path) as target:
        env = {**ENV, "STUCK_IN": str(target)}

        async def run() -> None:
            staging = Staging([shard(job, 0, target / "data")], str(target), env)
            running = asyncio.ensure_future(staging.run())
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, until, lambda: _stuck(target))
            os.kill(_parent(_stuck(target)[0]), signal.SIGKILL)
            with pytest.raises(Failure, match=r"code 137.*out of memory"):
                await asyncio.wait_for(running, 10)
            await staging.close()

        asyncio.run(run())


@needs_root
def test_the_child_ends_with_its_reader_though_the_disk_stalls(job: Path, tmp_path: Path) -> None:
    with frozen(job, tmp_path) as target:
        child = subprocess.Popen(
            [sys.executable, "-m", "launcher.data.stage_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ENV, "STUCK_IN": str(target)},
        )
        assert child.stdin is not None
        assert child.stdout is not None
        request = {"copies": [shard(job, 0, target / "data").__dict__], "record": str(target / "record")}
        child.stdin.write(json.dumps(request).encode() + b"\n")
        child.stdin.close()
        assert b"looking through" in child.stdout.readline()  # the next message would come 10 s later
        assert _stuck(target)
        child.stdout.close()
        child.wait(5)


def test_workers_do_not_outlive_the_child() -> None:
    code = (
        "import time\n"
        "from launcher.data.pool import Pool\n"
        "with Pool() as pool:\n"
        "    pool.on_tick = lambda: print(*(worker.pid for worker in pool._workers.values()), flush=True)\n"
        "    pool.run([(time.sleep, 60), (time.sleep, 60)])\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=ENV, text=True)
    assert holder.stdout is not None
    workers = [int(pid) for pid in holder.stdout.readline().split()]
    assert len(workers) == 2
    holder.kill()
    holder.communicate()
    until(lambda: not any(_alive(pid) for pid in workers))


def test_a_killed_worker_is_a_failure() -> None:
    with Pool() as pool:
        pool.call(time.sleep, 0)
        os.kill(next(iter(pool._workers.values())).pid, signal.SIGKILL)
        with pytest.raises(Failure, match=r"killed by signal 9.*memory"):
            pool.call(time.sleep, 5)


def test_there_are_many_workers_when_they_wait_and_few_when_they_compute() -> None:
    with Pool() as waiting:
        waiting.run([(time.sleep, 0.05)] * 300)  # long, so that a busy machine does not make it look like computing
        assert len(waiting._workers) > 16
    with Pool() as computing:
        computing.run([(sum, list(range(100_000)))] * 60)
        assert len(computing._workers) < 16


# Progress


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
        "shard of rank 1: 3.0 GiB of 10.0 GiB, nothing for 10 s: is a volume stalled?",
        "shard of rank 1: 3.0 GiB of 10.0 GiB, nothing for 20 s: is a volume stalled?",
    ]


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _walked(pool: Pool, source: Path) -> Tree:
    found = Tree(os.fsencode(source))
    tree.scan(pool, found)
    return found


def _raising(number: int) -> Callable[..., NoReturn]:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _stuck(folder: Path) -> list[str]:
    """Return the processes that were started for this folder and wait for a disk."""
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if _waits_for_disk(pid, os.fsencode(folder))]


def _parent(pid: str) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _waits_for_disk(pid: str, folder: bytes) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state == "D" and b"STUCK_IN=" + folder in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@contextlib.contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(arguments[-1])], check=True)


@contextlib.contextmanager
def frozen(job: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield a destination on a disk where writes never return, as on a stalled volume."""
    image, target = tmp_path / "image", tmp_path / "frozen"
    target.mkdir()
    with open(image, "wb") as file:
        file.truncate(32 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    with mounted("-o", "loop", image, target):
        subprocess.run(["fsfreeze", "-f", target], check=True)
        try:
            yield target
        finally:
            subprocess.run(["fsfreeze", "-u", target], check=True)
