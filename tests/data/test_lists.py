"""The lists of several shards as one, as Paddle v0 reads them in the work directory."""

from __future__ import annotations

from pathlib import Path

from launcher.data import lists


def shard(workdir: Path, name: str, **files: str) -> bytes:
    folder = workdir / "data" / name
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file.replace("_", ".")).write_text(text)
    return bytes(folder)


def merged(workdir: Path, *shards: bytes) -> dict[str, list[str]]:
    lists.merge(bytes(workdir / "data"), bytes(workdir), shards)
    return {path.name: path.read_text().splitlines() for path in (workdir / "data").glob("*.list")}


def test_the_list_of_training_names_the_files_of_all_shards_and_the_list_of_tests_those_of_one(tmp_path: Path) -> None:
    both = {"train_list": "data/train.txt\n", "test_list": "./data/test.txt\n"}
    found = merged(tmp_path, shard(tmp_path, "3", **both), shard(tmp_path, "4", **both))
    assert found == {"train.list": ["data/3/train.txt", "data/4/train.txt"], "test.list": ["data/3/test.txt"]}


def test_names_of_other_files_stay_as_they_are(tmp_path: Path) -> None:
    found = merged(tmp_path, shard(tmp_path, "0", train_list=f"/elsewhere/a\n\n  {tmp_path}/data/b \nday=7\n../c\n"))
    assert found == {"train.list": ["/elsewhere/a", f"{tmp_path}/data/0/b", "day=7", "../c"]}


def test_a_shard_without_a_list_adds_nothing(tmp_path: Path) -> None:
    found = merged(tmp_path, shard(tmp_path, "0"), shard(tmp_path, "1", train_list="data/a\n"))
    assert found == {"train.list": ["data/1/a"]}
