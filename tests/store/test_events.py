"""Each event is one whole line, whatever the volume does, and the status files are what the events say."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.store import events
from launcher.store.events import EventLog, Timeline, fold_job, fold_member, new_event
from tests.support.paths import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "launcher" / "store" / "events.schema.json").read_bytes())
CAUSE = {"kind": "trainer", "rank": 1, "role": "both", "pod": "pod-1", "what": "trainer ended", "code": 9, "tail": []}
RUNS = {"number": 3, "began": "2026-11-19T11:10:00Z", "after_pass": 7, "ended": None, "first_cause": None}
FAILED = {**RUNS, "ended": "2026-11-19T11:11:00Z", "first_cause": CAUSE}


def names(folder: Path) -> list[str]:
    return [str(event["event"]) for event in events.read(Folder(str(folder)))]


def opened(folder: Path) -> EventLog:
    log = EventLog()
    log.open(Folder(str(folder)))
    return log


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a switch: while it is on, the volume takes half of what is written, and then is full."""
    real = os.write
    state = {"full": False}

    def write(fd: int, data: Any) -> int:
        if not state["full"]:
            return real(fd, data)
        if len(data) > 1:
            return real(fd, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    return lambda on: state.update(full=on)


# ---- writing ---------------------------------------------------------------------------------------------------------


def test_events_wait_until_the_folder_may_be_written(tmp_path: Path) -> None:
    log = EventLog()
    log.add(new_event("staging_begun"))
    assert log.flush(8)
    assert not (tmp_path / "events.jsonl").exists()
    log.open(Folder(str(tmp_path)))
    log.add(new_event("staging_ended", bytes=1))
    assert log.flush(8)
    assert names(tmp_path) == ["staging_begun", "staging_ended"]


def test_events_on_hold_are_written_when_the_folder_may_be_written_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.hold()
    log.add(new_event("warning", text="meanwhile"))
    assert log.flush(8)
    assert not (tmp_path / "events.jsonl").exists()
    log.open(Folder(str(tmp_path)))
    assert log.flush(8)
    assert names(tmp_path) == ["warning"]


def test_events_of_later_launchers_follow_those_of_earlier_ones(tmp_path: Path) -> None:
    for pod in ("first", "second"):
        log = opened(tmp_path)
        log.add(new_event("warning", text=pod))
        assert log.flush(8)
    assert [event["text"] for event in events.read(Folder(str(tmp_path)))] == ["first", "second"]


def test_a_full_volume_leaves_whole_lines_and_nothing_twice(tmp_path: Path, full: Callable[[bool], None]) -> None:
    log = opened(tmp_path)
    log.add(new_event("warning", text="before"))
    assert log.flush(8)
    full(True)
    for number in range(3):
        log.add(new_event("warning", text=f"while full {number}"))
        assert log.flush(8)
    assert (tmp_path / "events.jsonl").read_bytes().count(b"\n") == 1
    full(False)
    assert log.flush(8)
    texts = [event["text"] for event in events.read(Folder(str(tmp_path)))]
    assert texts == ["before", "while full 0", "while full 1", "while full 2"]


def test_a_volume_that_stalls_delays_no_caller_and_the_oldest_events_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, reached = threading.Event(), threading.Event()
    real = Folder.append

    def append(folder: Folder, name: str, lines: bytes) -> None:
        reached.set()
        assert gate.wait(30)
        real(folder, name, lines)

    monkeypatch.setattr(Folder, "append", append)
    log = opened(tmp_path)
    log.add(new_event("warning", text="first"))
    assert reached.wait(8)
    for number in range(events._WAITING + 5):
        log.add(new_event("warning", text=str(number)))
    assert not log.flush(0)
    gate.set()
    assert log.flush(8)
    found = events.read(Folder(str(tmp_path)))
    assert [each.get("text", each.get("count")) for each in found[:3]] == ["first", 5, "5"]
    assert len(found) == events._WAITING + 2


def test_a_line_that_a_power_loss_has_cut_is_ended_and_ignored(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.add(new_event("warning", text="before"))
    assert log.flush(8)
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"v":1,"at":"2026-11-19T11:10:00.000Z","eve')
    again = opened(tmp_path)
    again.add(new_event("warning", text="after"))
    assert again.flush(8)
    assert [event["text"] for event in events.read(Folder(str(tmp_path)))] == ["before", "after"]


def test_a_link_in_place_of_the_file_is_renamed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "program.sh").write_text("train\n")
    (tmp_path / "events.jsonl").symlink_to("program.sh")
    log = opened(tmp_path)
    log.add(new_event("stop_requested"))
    assert log.flush(8)
    assert (tmp_path / "program.sh").read_text() == "train\n"
    assert names(tmp_path) == ["stop_requested"]


def test_a_volume_with_a_fault_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(folder: Folder, name: str, lines: bytes) -> None:
        raise Failure(Exit.IO_FAILED, "the disk has a fault")

    caplog.set_level("INFO")
    monkeypatch.setattr(Folder, "append", fails)
    log = opened(tmp_path)
    for _ in range(3):
        log.add(new_event("stop_requested"))
        assert log.flush(8)
    assert caplog.messages == ["the disk has a fault"]


def test_a_number_that_json_does_not_know_is_a_text() -> None:
    line = events.as_line(new_event("pass", loss=math.nan, accuracy=0.5))
    assert json.loads(line)["loss"] == "nan"


# ---- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[" * 200_000,
        b'{"v":2,"at":"2026-11-19T11:10:00.000Z","event":"phase"}',
        b'{"v":1,"at":"2026-11-19","event":"phase"}',
        b'{"v":1,"at":7,"event":"phase"}',
        b'{"v":1,"at":"2026-11-19T11:10:00.000Z","event":["phase"]}',
        b'{"v":1,"at":"2026-11-19T11:10:00.000Z","event":"pass","pass":NaN}',
        b'{"v":1,"at":"2026-11-19T11:10:00.000Z","event":"pass","pass":' + b"9" * 400 + b"}",
        b'{"v":1,"at":"2026-11-19T11:10:00.000Z","event":"warning","text":"\xff"}',
        b'{"v":1,"at":"2026-11-19T11:10:00.000Z","event":"warning","text":"' + b"x" * 3_000_000 + b'"}',
    ],
    ids=range(10),
)
def test_lines_that_no_launcher_has_written_are_left_out(tmp_path: Path, line: bytes) -> None:
    good = events.as_line(new_event("stop_requested"))
    (tmp_path / "events.jsonl").write_bytes(good + line + b"\n" + good)
    assert names(tmp_path) == ["stop_requested", "stop_requested"]


def test_the_members_of_a_large_gang_with_long_names_are_read(tmp_path: Path) -> None:
    member = {"rank": 999, "role": "both", "pod": "p" * 253, "uid": "u" * 36, "address": "10.100.100.100"}
    log = opened(tmp_path)
    log.add(new_event("gang", job="large", members=[member] * 1000))
    assert log.flush(30)
    (gang,) = events.read(Folder(str(tmp_path)))
    assert len(gang["members"]) == 1000


def test_of_a_huge_file_only_the_end_is_read(tmp_path: Path) -> None:
    lines = [events.as_line(new_event("warning", text=str(number))) for number in range(100)]
    (tmp_path / "events.jsonl").write_bytes(b"".join(lines))
    texts = [int(event["text"]) for event in events.iterate(Folder(str(tmp_path)), 1000)]
    assert texts == list(range(texts[0], 100))
    assert 5 < len(texts) < 20


def test_without_a_file_there_are_no_events(tmp_path: Path) -> None:
    assert events.read(Folder(str(tmp_path), "node_7")) == []


# ---- folding ---------------------------------------------------------------------------------------------------------


def test_the_status_is_what_the_events_of_a_member_say() -> None:
    timeline = Timeline(fold_member)
    timeline.add("staging_begun")
    timeline.add("joined", job="job", role="both", rank=1, pod="pod-1", uid="uid-1")
    timeline.add("generation", generation=3, after_pass=7)
    timeline.add("phase", generation=3, phase="training")
    timeline.add("pass", generation=3, **{"pass": 8})
    assert {key: timeline.content[key] for key in ("phase", "generation", "last_pass", "exit_code")} == {
        "phase": "training",
        "generation": 3,
        "last_pass": 8,
        "exit_code": None,
    }
    timeline.add("ended", generation=3, exit_code=9, first_cause=CAUSE)
    assert (timeline.content["exit_code"], timeline.content["first_cause"]) == (9, CAUSE)


def test_a_launcher_that_joins_again_keeps_its_generation_and_a_new_pod_does_not() -> None:
    status: Any = {"pod": "pod-1", "generation": 3, "last_pass": 8, "phase": "gathering"}
    joined = {"job": "job", "role": "both", "rank": 1}
    again = fold_member(status, new_event("joined", pod="pod-1", **joined))
    assert (again["generation"], again["last_pass"], again["phase"]) == (3, 8, None)
    assert fold_member(status, new_event("joined", pod="pod-9", **joined))["generation"] is None


def test_the_job_is_what_the_events_of_the_hub_say() -> None:
    timeline = Timeline(fold_job)
    timeline.add("gang", job="job", members=[{"pod": "pod-0"}])
    timeline.add("generation_begun", generation=RUNS)
    assert timeline.content["generations"] == [RUNS]
    timeline.add("generation_ended", generation=FAILED)
    timeline.add("gang", job="job", members=[{"pod": "pod-9"}])
    assert (timeline.content["generations"], timeline.content["members"]) == ([FAILED], [{"pod": "pod-9"}])
    timeline.add("ended", exit_code=9, first_cause=CAUSE)
    assert (timeline.content["exit_code"], timeline.content["first_cause"]) == (9, CAUSE)


def test_a_clock_that_was_set_is_an_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline, now = Timeline(fold_member), time.time
    timeline.log.open(Folder(str(tmp_path)))
    timeline.add("pass", **{"pass": 1})
    monkeypatch.setattr(time, "time", lambda: now() + 259_200)
    timeline.add("pass", **{"pass": 2})
    assert timeline.log.flush(30)
    assert names(tmp_path) == ["pass", "clock_set", "pass"]
    assert events.read(Folder(str(tmp_path)))[1]["seconds"] == pytest.approx(259_200, abs=1)


def test_the_schema_knows_each_event_that_is_written() -> None:
    for event in (
        new_event("pass", generation=0, **{"pass": 1}),
        new_event("generation_ended", generation=FAILED),
        new_event("peer_lost", generation=0, peer={"role": "both", "rank": 1, "pod": "pod-1"}, why="its node is gone"),
        new_event("process_ended", generation=0, process="trainer", exit_code=137, tail=["line"]),
        new_event("clock_set", seconds=-7200.0),
        new_event("generation_begun", generation={**FAILED, "trainers": 3}),
        new_event("newcomers", generation=0, count=1),
        new_event("pass_repeated", generation=1, **{"pass": 3}),
        new_event("pass_repeated", generation=1),
    ):
        jsonschema.validate(json.loads(events.as_line(event)), SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(dict(new_event("pass", generation=0)), SCHEMA)
