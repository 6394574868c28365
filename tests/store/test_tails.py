"""What was added to a timeline since the last time, and the end of a log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.base.files import Folder
from launcher.store.events import as_line, new_event
from launcher.store.tails import EventTail, last_line, read_log_end


def passes(tail: EventTail) -> list[int]:
    return [event["pass"] for event in tail.read()]


def lines(*numbers: int, text: str = "") -> bytes:
    return b"".join(as_line(new_event("pass", text=text or None, **{"pass": number})) for number in numbers)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_each_event_is_read_once_and_an_unfinished_line_when_it_is_whole(tmp_path: Path) -> None:
    path, tail = tmp_path / "events.jsonl", EventTail(Folder(str(tmp_path)))
    assert passes(tail) == []
    append(path, lines(0, 1) + lines(2)[:20])
    assert passes(tail) == [0, 1]
    assert passes(tail) == []
    append(path, lines(2)[20:])
    assert len(tail.read()) <= 1  # the two halves have different times, so the line may be no event
    append(path, b"garbage\n" + lines(3))
    assert passes(tail) == [3]


def test_of_a_long_timeline_only_the_end_is_read(tmp_path: Path) -> None:
    path, tail = tmp_path / "events.jsonl", EventTail(Folder(str(tmp_path)))
    append(path, lines(*range(3000)))
    found = passes(tail)
    assert found[-1] == 2999
    assert len(found) < 1500
    append(path, lines(*range(3000, 3030), text="x" * 64 * 1024))
    found = passes(tail)
    assert found[-1] == 3029
    assert len(found) < 20


def test_a_timeline_that_was_replaced_or_cut_is_read_again(tmp_path: Path) -> None:
    path, tail = tmp_path / "events.jsonl", EventTail(Folder(str(tmp_path)))
    append(path, lines(1, 2, 3))
    assert passes(tail) == [1, 2, 3]
    append(tmp_path / "new", lines(4, 5, 6))
    (tmp_path / "new").rename(path)
    assert passes(tail) == [4, 5, 6]
    os.truncate(path, 0)
    append(path, lines(7))
    assert passes(tail) == [7]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"one\n", "one"),
        (b"one\ntwo", "two"),
        (b"one\n\n  \n", "one"),
        (b"step 1/3\rstep 2/3\r", "step 2/3"),
        (b"\xff\n", "\ufffd"),
    ],
)
def test_the_last_line_is_the_last_that_is_not_empty(output: bytes, line: str) -> None:
    assert last_line(output) == line


def test_the_end_of_a_log_has_its_last_line_and_its_time(tmp_path: Path) -> None:
    folder, path = Folder(str(tmp_path)), tmp_path / "train.log"
    assert read_log_end(folder, "train.log") is None
    append(path, b"x" * 100_000 + b"\nPass=3 Batch=7\n")
    os.utime(path, (5, 5))
    found = read_log_end(folder, "train.log")
    assert found is not None
    assert (found.line, found.at) == ("Pass=3 Batch=7", 5.0)
