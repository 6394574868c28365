"""The shards of an elastic job: each has exactly one trainer, whatever the number of trainers is."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.base import shares
from launcher.errors import Exit, Failure


@pytest.mark.parametrize("count", range(1, 20))
def test_each_shard_has_exactly_one_trainer_and_trainers_have_about_as_many(count: int) -> None:
    for trainers in range(1, count + 1):
        dealt = [shares.share(count, trainers, trainer) for trainer in range(trainers)]
        assert [shard for share in dealt for shard in share] == list(range(count))
        sizes = [len(share) for share in dealt]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("count", "trainers", "trainer"), [(2, 3, 0), (3, 3, 3), (3, 3, -1), (0, 0, 0)])
def test_a_trainer_without_a_shard_is_refused(count: int, trainers: int, trainer: int) -> None:
    with pytest.raises(ValueError, match="trainer"):
        shares.share(count, trainers, trainer)


def shards(folder: Path, *numbers: object) -> Path:
    for number in numbers:
        (folder / str(number) / "data").mkdir(parents=True)
    return folder


def test_folders_with_other_names_are_no_shards(tmp_path: Path) -> None:
    shards(tmp_path, 0, 1, 2, "03", "output", "x1")
    (tmp_path / "3").mkdir()  # it has no data
    assert shares.count(str(tmp_path), 3) == 3


def test_a_shard_that_is_missing_between_others_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure) as failed:
        shares.count(str(shards(tmp_path, 0, 2)), 2)
    assert failed.value.code == Exit.NO_INPUT
    assert failed.value.message.startswith(f"{tmp_path}/1/data does not exist, but shard 2 does")


@pytest.mark.parametrize("folder", ["", "missing"])
def test_fewer_shards_than_trainers_are_named_with_the_command_that_makes_more(tmp_path: Path, folder: str) -> None:
    with pytest.raises(Failure) as failed:
        shares.count(str(tmp_path / folder), 5)
    assert failed.value.code == Exit.NO_INPUT
    assert "has 0 shards, but the job may have 5 trainers" in failed.value.message
    assert "SPLIT_COUNT=5" in failed.value.message
