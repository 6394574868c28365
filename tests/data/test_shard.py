"""`paddle-launcher shard`: each shard has whole lines and all other files, and is written to a volume."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from launcher.data import line_bounds, lock, mounts
from launcher.data import shard as command
from launcher.data.lock import Lock
from launcher.data.shard import shard
from launcher.errors import Exit, Failure
from tests.support import forked
from tests.support.logs import logged
from tests.support.paths import REPOSITORY
from tests.support.supervising import needs_root


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data set as in the 2016 examples: a file to split by lines, a file for all trainers, and a list of files."""
    folder = tmp_path / "dataset"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.txt").write_bytes(b"".join(b"line %d\r\n" % number for number in range(1000)) + b"the last")
    (folder / "test.txt").write_text("1\n2\n")
    (folder / "train.list").write_text("data/train.txt\n")
    (folder / "sub" / "dictionary").write_text("x")
    os.utime(folder / "train.txt", ns=(1, 1_234_567_890_123_456_789))
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "quick_start"
    folder.mkdir()
    (folder / "trainer_config.py").write_text("settings()")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "volume" / "job"


def split(
    data: Path, out: Path, count: int, *, config: Path | None = None, line_files: list[str] | None = None
) -> list[str]:
    with logged() as messages:
        shard(str(data), None if config is None else str(config), str(out), count, line_files=line_files)
    return messages


def launcher(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["shard", *arguments], env=environment)


def shares(out: Path, count: int, name: str = "train.txt") -> list[bytes]:
    return [(out / str(rank) / "data" / name).read_bytes() for rank in range(count)]


# What is made


def test_each_trainer_gets_its_share_of_the_lines_and_every_other_file(data: Path, config: Path, out: Path) -> None:
    split(data, out, 3, config=config)
    assert sorted(name for name in os.listdir(out) if not name.startswith(".")) == [
        *("0", "1", "2"),
        *("output", "quick_start"),
    ]
    assert b"".join(shares(out, 3)) == (data / "train.txt").read_bytes()
    assert all(share.endswith(b"\r\n") for share in shares(out, 2))
    sizes = [len(share) for share in shares(out, 3)]
    assert max(sizes) - min(sizes) < 30
    for rank in "012":
        assert (out / rank / "data" / "train.list").read_text() == "data/train.txt\n"
        assert (out / rank / "data" / "test.txt").read_text() == "1\n2\n"
        assert (out / rank / "data" / "sub" / "dictionary").read_text() == "x"
        assert (out / rank / "data" / "train.txt").stat().st_mtime_ns == 1_234_567_890_123_456_789
    assert (out / "quick_start" / "trainer_config.py").read_text() == "settings()"


def test_other_files_can_be_named_for_splitting(data: Path, out: Path) -> None:
    split(data, out, 2, line_files=["test.txt", "train.?xt"])
    assert shares(out, 2, "test.txt") == [b"1\n", b"2\n"]
    assert b"".join(shares(out, 2)) == (data / "train.txt").read_bytes()
    with pytest.raises(Failure, match=r"matches nothing\.txt; .*train\.txt") as failed:
        split(data, out, 2, line_files=["nothing.txt"])
    assert failed.value.code == Exit.NO_INPUT


@pytest.mark.parametrize("seed", range(40))
def test_shares_are_whole_lines_never_empty_and_about_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(line_bounds, "_WINDOW", 7)  # so that lines are longer than a window
    dice = random.Random(seed)
    count = dice.randint(1, 9)
    longest = dice.choice([1, 5, 300])
    content = [b"x" * dice.randint(0, longest) + b"\n" for _ in range(dice.randint(count, 60))]
    if dice.random() < 0.5:
        content[dice.choice([0, len(content) // 2, -1])] = b"y" * 5000 + b"\n"  # one giant line
    if dice.random() < 0.5:
        content[-1] = content[-1].rstrip(b"\n") or b"z"
    whole = b"".join(content)
    (tmp_path / "lines").write_bytes(whole)
    bounds = line_bounds.find_line_bounds(os.fsencode(tmp_path / "lines"), count)
    parts = [whole[start:end] for start, end in pairwise(bounds)]
    assert len(parts) == count
    assert b"".join(parts) == whole
    assert all(parts)
    assert all(part.endswith(b"\n") for part in parts[:-1])
    assert max(map(len, parts)) <= len(whole) / count + max(map(len, content)) + longest


def test_fewer_lines_than_trainers_are_reported_before_anything_is_replaced(data: Path, out: Path) -> None:
    split(data, out, 2)
    before = shares(out, 2)
    (data / "train.txt").write_text("one\ntwo\n")
    with pytest.raises(Failure, match="fewer lines than SPLIT_COUNT=3") as failed:
        split(data, out, 3)
    assert failed.value.code == Exit.NO_INPUT
    assert shares(out, 2) == before
    assert not (out / "2").exists()


def test_an_empty_or_missing_data_set_is_reported(tmp_path: Path, out: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, words in (("empty", "no files"), ("missing", "does not exist")):
        with pytest.raises(Failure, match=words) as failed:
            split(tmp_path / name, out, 2)
        assert failed.value.code == Exit.NO_INPUT


@pytest.mark.parametrize("name", ["0/.paddle-part-old-data", "0/.paddle-part-new-data", "0/data"])
def test_a_link_that_another_user_has_put_there_is_removed_but_not_its_target(
    data: Path, out: Path, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / ".paddle-launcher-shard.json").write_text("{}")
    (other / "file").write_text("kept")
    (out / "0").mkdir(parents=True)
    (out / name).symlink_to(other)
    split(data, out, 2)
    assert sorted(os.listdir(other)) == [".paddle-launcher-shard.json", "file"]
    assert not (out / "0" / "data").is_symlink()
    assert len(shares(out, 2)) == 2


@pytest.mark.parametrize("kind", ["a link", "a FIFO"])
def test_a_lock_that_is_no_file_is_named(data: Path, out: Path, tmp_path: Path, kind: str) -> None:
    lock_file = out / command._LOCK
    out.mkdir(parents=True)
    if kind == "a FIFO":
        os.mkfifo(lock_file)
    else:
        lock_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match="remove it") as failed:
        split(data, out, 2)
    assert str(lock_file) in failed.value.message
    assert not (tmp_path / "elsewhere").exists()


# Running it again


def test_running_it_twice_changes_nothing(data: Path, config: Path, out: Path) -> None:
    split(data, out, 2, config=config)
    before = _inodes(out)
    messages = split(data, out, 2, config=config)
    assert _inodes(out) == before
    assert all("exists already" in line for line in messages)


def test_a_changed_data_set_or_a_damaged_share_is_made_again(data: Path, out: Path) -> None:
    split(data, out, 2)
    (data / "train.txt").write_text("a\nb\nc\nd\n")
    split(data, out, 2)
    assert shares(out, 2) == [b"a\nb\n", b"c\nd\n"]
    (out / "1" / "data" / "train.txt").write_text("c")
    split(data, out, 2)
    assert shares(out, 2) == [b"a\nb\n", b"c\nd\n"]


def test_shards_of_an_earlier_split_for_more_trainers_are_removed(data: Path, out: Path) -> None:
    split(data, out, 4)
    messages = split(data, out, 2)
    assert sorted(os.listdir(out)) == ["0", "1", "output"]
    assert b"".join(shares(out, 2)) == (data / "train.txt").read_bytes()
    assert any(f"removed {out}/3/data" in line for line in messages)


@pytest.mark.parametrize("place", ["1/data", "2/data", "quick_start"])
def test_folders_of_another_program_are_named_and_kept(data: Path, config: Path, out: Path, place: str) -> None:
    (out / place).mkdir(parents=True)
    (out / place / "precious").write_text("x")
    with pytest.raises(Failure, match=f"{out}/{place}: not made by `paddle-launcher shard`:") as failed:
        split(data, out, 2, config=config)
    assert failed.value.code == Exit.CONFIG
    assert (out / place / "precious").exists()
    assert not (out / "0").exists()


def test_partial_shards_of_a_killed_run_are_removed(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "STALE_AFTER", 0.5)
    (out / "0" / ".paddle-part-new-data" / "sub").mkdir(parents=True)
    (out / "0" / ".paddle-part-new-data" / "train.txt").write_text("half a li")
    (out / "0" / ".paddle-part-new-data" / "stray").write_text("x")
    (out / "0" / ".paddle-part-old-data").mkdir()
    (out / command._LOCK).write_text("process 1 on a pod that is gone, 0123")
    messages = split(data, out, 2)
    assert "is locked by process 1 on a pod that is gone" in messages[0]
    assert sorted(os.listdir(out / "0")) == ["data"]
    assert sorted(os.listdir(out)) == ["0", "1", "output"]
    assert not (out / "0" / "data" / "stray").exists()
    assert b"".join(shares(out, 2)) == (data / "train.txt").read_bytes()


def test_a_second_run_at_the_same_time_is_refused(data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.1)
    over = threading.Event()
    with Lock(str(out / command._LOCK)) as first:

        def renew() -> None:
            while not over.wait(0.05):
                first.renew()

        renewing = threading.Thread(target=renew)
        renewing.start()
        try:
            with pytest.raises(
                Failure, match=r"another `paddle-launcher shard` \(process \d+ on .*is working in this folder"
            ) as failed:
                Lock(str(out / command._LOCK)).__enter__()
        finally:
            over.set()
            renewing.join()
        assert failed.value.code == Exit.CANNOT_WRITE
    split(data, out, 2)  # its holder has removed the lock


def test_a_run_that_lost_its_lock_stops(out: Path) -> None:
    with Lock(str(out / command._LOCK)) as first:
        first.renew()
        (out / command._LOCK).write_text("process 7 on another pod, 0123")
        first._next_touch = 0
        with pytest.raises(Failure, match="has taken the lock"):
            first.renew()
    assert (out / command._LOCK).exists()  # another process holds it


# The command


def test_the_environment_replaces_missing_arguments(data: Path, out: Path) -> None:
    ended = launcher("--data", str(data), "--anywhere", OUT_DIR=str(out), SPLIT_COUNT="2")
    assert ended.returncode == 0, ended.stderr
    assert len(shares(out, 2)) == 2


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "words"),
    [
        ([], {}, Exit.USAGE, "--data"),
        (["--data", "/x", "--dat", "/y"], {}, Exit.USAGE, "--dat"),
        (["--data", "/x"], {}, Exit.CONFIG, "OUT_DIR.*\n.*SPLIT_COUNT"),
        (["--data", "/x", "--out", "/y"], {"SPLIT_COUNT": "three"}, Exit.CONFIG, "'three'"),
        (["--data", "/x", "--out", "/y", "--count=0"], {}, Exit.CONFIG, "'0'"),
        (["--data", "/x", "--out", "/x/y", "--count=2", "--anywhere"], {}, Exit.CONFIG, "inside of the data set"),
    ],
)
def test_wrong_arguments_are_explained(
    arguments: list[str], environment: dict[str, str], code: Exit, words: str
) -> None:
    ended = launcher(*arguments, **environment)
    assert ended.returncode == code
    assert re.search(words, ended.stderr)


# Where it may write

POD = r"""
1 0 0:50 / / rw - overlay overlay rw,lowerdir=/l
2 1 0:51 / /proc rw - proc proc rw
3 1 0:52 / /dev rw - tmpfs tmpfs rw
4 3 0:53 / /dev/shm rw - tmpfs shm rw
5 1 8:1 /var/lib/kubelet/pods/1/etc-hosts /etc/hosts rw - ext4 /dev/sda1 rw
6 1 0:60 / /mnt rw shared:9 - nfs4 server:/export rw
7 1 8:1 /var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/scratch /scratch rw - ext4 /dev/sda1 rw
8 1 8:1 /home/work/mfs /data\040sets rw master:1 - xfs /dev/sdb rw
""".strip()
MACHINE = """
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 0:51 / /proc rw - proc proc rw
3 1 0:52 / /tmp rw - tmpfs tmpfs rw
""".strip()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/home/work/mfs/paddle-cluster-job", "own file system"),
        ("/mnt/paddle-cluster-job", ""),
        ("/mnt", ""),
        ("/mntx", "own file system"),
        ("/data sets/job", ""),
        ("/dev/shm/job", "memory"),
        ("/scratch/job", "emptyDir"),
    ],
)
def test_in_a_container_only_volumes_are_accepted(path: str, why: str) -> None:
    storage = mounts.ephemeral_storage(mounts.parse(POD), path, in_container=False)
    assert why in storage
    assert bool(why) == bool(storage)


def test_the_volumes_are_named() -> None:
    assert mounts.describe_volumes(mounts.parse(POD)) == ["/mnt (nfs4)", "/data sets (xfs)"]


def test_outside_of_a_container_every_folder_is_accepted() -> None:
    machine = mounts.parse(MACHINE)
    assert mounts.ephemeral_storage(machine, "/home/me", in_container=False) == ""
    assert mounts.ephemeral_storage(machine, "/tmp/job", in_container=False) == ""
    assert mounts.ephemeral_storage(machine, "/home/me", in_container=True) != ""


@needs_root
def test_in_a_real_container_its_own_file_system_is_refused_and_a_volume_is_accepted(
    data: Path, tmp_path: Path
) -> None:
    layers = tmp_path / "layers"
    for name in ("", "upper", "work", "root"):
        (layers / name).mkdir()
    root = layers / "root"
    (tmp_path / "nfs").mkdir()
    script = f"""
        mount -t tmpfs none {layers} && mkdir -p {layers}/upper {layers}/work {root} &&
        mount -t overlay -o lowerdir=/,upperdir={layers}/upper,workdir={layers}/work overlay {root} &&
        mkdir -p {root}/mnt && mount --rbind /proc {root}/proc && mount --rbind /dev {root}/dev &&
         mount --bind {tmp_path}/nfs {root}/mnt &&
        rm -f {root}/.dockerenv && exec chroot {root} "$@"
    """
    argv = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-m", "launcher", "shard"]
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "SPLIT_COUNT": "2"}

    def run(where: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv, "--data", str(data), "--out", where], capture_output=True, text=True, env=env, timeout=30
        )

    refused = run("/home/work/mfs/paddle-cluster-job")
    if re.search("^(mount|unshare):", refused.stderr, re.MULTILINE):
        pytest.skip(f"cannot mount: {refused.stderr}")
    assert refused.returncode == Exit.CONFIG, refused.stderr
    assert "would be lost with the pod" in refused.stderr
    assert "/mnt (" in refused.stderr
    accepted = run("/mnt/paddle-cluster-job")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert len(shares(tmp_path / "nfs" / "paddle-cluster-job", 2)) == 2


def _inodes(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_ino for path in folder.rglob("*")}
