"""Links in a data set: another user may have made them, and may read the shards but not what the links lead to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from launcher.data import tree
from launcher.data.pool import Pool
from launcher.data.shard import shard
from launcher.data.tree import Tree
from launcher.errors import Exit, Failure

LINKS = {
    "absolute": ["key -> {home}/key"],
    "relative": ["sub/key -> ../../home/key"],
    "to a folder": ["keys -> ../home"],
    "without a target yet": ["token -> /var/run/secrets/none/token"],
    "by a link within": ["deep/er/up -> ../../sub", "key -> deep/er/up/../../home/key"],
    "with the name of the file to split": ["train.txt -> {home}/key"],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "dataset"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.txt").write_text("1\n2\n3\n4\n")
    (folder / "test.txt").write_text("5\n")
    return folder


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file outside of the data set."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "key").write_text("private\n" * 4)
    return tmp_path / "home" / "key"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "volume" / "job"


def contents(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
def test_a_link_out_of_the_data_set_is_refused_and_nothing_is_copied(
    data: Path, out: Path, private: Path, links: list[str]
) -> None:
    for link in links:
        name, _, target = link.partition(" -> ")
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).unlink(missing_ok=True)
        (data / name).symlink_to(target.format(home=private.parent))
    with pytest.raises(Failure, match=r"data set: .* is a link to .*, outside of .*--follow-links") as failed:
        shard(str(data), None, str(out), 2, line_files=None)
    assert failed.value.code == Exit.CONFIG
    assert "private" not in contents(out)


def test_a_link_out_of_the_configuration_is_refused_too(data: Path, tmp_path: Path, out: Path, private: Path) -> None:
    (tmp_path / "quick_start").mkdir()
    (tmp_path / "quick_start" / "trainer_config.py").write_text("settings()")
    (tmp_path / "quick_start" / "key").symlink_to(private)
    with pytest.raises(Failure, match="configuration: key is a link to "):
        shard(str(data), str(tmp_path / "quick_start"), str(out), 2, line_files=None)
    assert "private" not in contents(out)


def test_links_are_followed_if_the_user_trusts_them(data: Path, out: Path, private: Path) -> None:
    (data / "key").symlink_to(private)
    shard(str(data), None, str(out), 2, line_files=None, follow_links=True)
    assert (out / "1" / "data" / "key").read_text() == private.read_text()


def test_links_within_the_data_set_stay_links(data: Path, tmp_path: Path, out: Path) -> None:
    (tmp_path / "another name").symlink_to(data)
    (data / "same").symlink_to("test.txt")
    (data / "sub" / "none").symlink_to("nowhere")
    (data / "long way").symlink_to(tmp_path / "another name" / "test.txt")
    shard(str(tmp_path / "another name"), None, str(out), 2, line_files=None)
    made = out / "0" / "data"
    assert os.readlink(made / "same") == "test.txt"
    assert os.readlink(made / "sub" / "none") == "nowhere"
    assert (made / "long way").read_text() == "5\n"


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("replaced", ["sub/key", "sub"])
def test_a_path_that_becomes_a_link_after_the_scan_is_not_followed(
    tmp_path: Path, private: Path, monkeypatch: pytest.MonkeyPatch, replaced: str, large: bool
) -> None:
    if large:
        monkeypatch.setattr(tree, "_RANGE", 8)
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    target.mkdir()
    shutil.copy2(private, source / "sub" / "key")
    with Pool() as pool:
        found = Tree(os.fsencode(source), confined=True)
        tree.scan(pool, found)
        (source / replaced).rename(tmp_path / "aside")
        (source / replaced).symlink_to(private if replaced == "sub/key" else private.parent)
        with pytest.raises(Failure, match="sub/key changed while it was copied"):
            tree.copy(pool, found, found.files, found.links, os.fsencode(target), new_root=True)
    assert contents(target) == ""
