"""A data set in a file, and the share of each trainer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.job import dataset_from_reader, dist_reader

SAMPLES = [(number, number * number, number / 4) for number in range(100)]


@pytest.mark.parametrize("trainers", [1, 2, 3, 7, 150])
def test_each_line_is_in_the_share_of_exactly_one_trainer(tmp_path: Path, trainers: int) -> None:
    path = tmp_path / "data.csv"
    dataset_from_reader(path, lambda: iter(SAMPLES))
    shares = [list(dist_reader(path, trainers, trainer)()) for trainer in range(trainers)]
    assert sorted(sample for share in shares for sample in share) == SAMPLES
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_line_number_modulo_trainers_decides_the_share(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n3,4\n5,6\n7,8\n")
    assert list(dist_reader(str(tmp_path / "data.csv"), 3, 1)()) == [(1, 2), (7, 8)]


def test_a_reader_can_be_used_for_several_passes(tmp_path: Path) -> None:
    dataset_from_reader(tmp_path / "data.csv", lambda: SAMPLES)
    reader = dist_reader(tmp_path / "data.csv", 2, 0)
    assert list(reader()) == list(reader())


@pytest.mark.parametrize("bad", [("a b",), ("1,2",), (), ([1, 2],)])
def test_a_sample_that_could_not_be_read_again_is_refused(tmp_path: Path, bad: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="sample 1 of the reader"):
        dataset_from_reader(tmp_path / "data.csv", lambda: [(1, 2), bad])
    assert not list(tmp_path.iterdir())


def test_a_reader_that_fails_does_not_change_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    dataset_from_reader(path, lambda: [(1,)])

    def breaks() -> object:
        yield (2,)
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError):
        dataset_from_reader(path, breaks)  # type: ignore[arg-type]
    assert path.read_text() == "1\n"
    assert [each.name for each in tmp_path.iterdir()] == ["data.csv"]


def test_a_line_without_valid_numbers_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n\n3,x\n")
    with pytest.raises(ValueError, match=r"data\.csv, line 3: 'x': expected a number"):
        list(dist_reader(tmp_path / "data.csv", 1, 0)())


@pytest.mark.parametrize(("trainers", "trainer"), [(3, 3), (3, -1), (0, 0)])
def test_a_trainer_id_out_of_range_is_refused(trainers: int, trainer: int) -> None:
    with pytest.raises(ValueError, match="trainer_id"):
        dist_reader("data.csv", trainers, trainer)


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the work directory of a trainer that has the shards 2 and 3 of an elastic job."""
    folders = [tmp_path / "data" / str(number) for number in (2, 3)]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / "data.csv").write_text(f"{number},1\n{number},2\n")
    monkeypatch.setenv("LAUNCHER_DATA_DIRS", os.pathsep.join(map(str, folders)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["data.csv", "data/data.csv"])
def test_in_an_elastic_job_a_share_is_all_lines_of_the_trainers_shards(shards: Path, name: str) -> None:
    assert list(dist_reader(name, 3, 1)()) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_in_an_elastic_job_a_file_that_all_trainers_have_is_shared_by_lines(shards: Path) -> None:
    (shards / "data.csv").write_text("7,1\n7,2\n7,3\n")
    assert list(dist_reader("data.csv", 3, 1)()) == [(7, 1)]


def test_a_shard_without_the_file_is_named(shards: Path) -> None:
    (shards / "data" / "3" / "data.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"3/data\.csv"):
        list(dist_reader("data.csv", 3, 1)())


def test_a_file_that_is_nowhere_is_named_as_it_was_given(shards: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'other\.csv'"):
        list(dist_reader("other.csv", 3, 1)())
