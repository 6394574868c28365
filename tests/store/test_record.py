"""The record of a job on the volume, with any files that it finds there."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import Failure
from launcher.model import Cause, CauseKind, Shape
from launcher.store.record import Record


@pytest.mark.parametrize("content", [None, "{}", '{"failed": 3}'])
def test_without_attempts_the_history_is_empty(tmp_path: Path, content: str | None) -> None:
    record = Record(str(tmp_path), "job-1")
    record.open()
    if content is not None:
        Path(record.attempts_file).write_text(content)
    history = record.history(Shape(1))
    assert (history.without_progress, history.generation) == (0, None)


@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 10**400, -1])
def test_an_attempts_file_that_leaves_no_room_for_a_generation_is_named(tmp_path: Path, number: int) -> None:
    record = Record(str(tmp_path), "job-1")
    record.open()
    Path(record.attempts_file).write_text(json.dumps({"without_progress": 0, "generations": [{"number": number}]}))
    with pytest.raises(Failure, match=f"{record.attempts_file} cannot be used: .*remove this file"):
        record.history(Shape(1))


def test_the_mark_of_another_job_of_the_same_name_does_not_complete_this_job(tmp_path: Path) -> None:
    old, new = Record(str(tmp_path), "job-1"), Record(str(tmp_path), "job-2")
    for record in (old, new):
        record.open()
    assert new.completed_before() == []
    old.mark_complete()
    assert (new.completed_before(), new.is_complete()) == (["job-1"], False)
    assert (old.completed_before(), old.is_complete()) == ([], True)


def test_a_role_finds_the_record_of_its_job_by_the_uid_of_its_own_controller(tmp_path: Path) -> None:
    trainers, servers = Record(str(tmp_path), None, "t-uid"), Record(str(tmp_path), None, "s-uid")
    for record in (trainers, servers):
        record.open()
    assert trainers.secret() == servers.secret()
    assert not trainers.earlier().is_complete()
    joint = Record(str(tmp_path), "t-uid+s-uid")
    assert joint.identity
    Path(joint.attempts_file).parent.mkdir()
    Path(joint.attempts_file).write_text('{"without_progress": 3}')
    assert [record.earlier().history(Shape(1)).without_progress for record in (trainers, servers)] == [3, 3]
    joint.mark_complete()
    assert trainers.earlier().is_complete()
    assert servers.earlier().is_complete()
    later = Record(str(tmp_path), None, "s-uid-2")
    assert not later.earlier().is_complete()
    assert later.completed_before() == ["t-uid+s-uid"]


def test_attempts_are_read_back_unchanged(tmp_path: Path) -> None:
    record = Record(str(tmp_path), "job-1")
    record.open()
    Path(record.attempts_file).write_text('{"without_progress": 4}')
    assert record.history(Shape(1)).without_progress == 4


def test_the_begin_mark_counts_only_for_its_own_job(tmp_path: Path) -> None:
    record = Record(str(tmp_path), "job-1")
    assert not record.has_begun()
    record.mark_begun()
    record.mark_begun()
    assert Record(str(tmp_path), "job-1").has_begun()
    assert not Record(str(tmp_path), "job-2").has_begun()


def test_a_job_without_an_identity_never_has_begun(tmp_path: Path) -> None:
    record = Record(str(tmp_path), None)
    record.open()
    record.mark_begun()
    assert not record.has_begun()


def test_if_the_volume_fails_a_job_does_not_count_as_new_and_keeps_its_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Record(str(tmp_path), "job-1")
    record.mark_begun()
    record.mark_complete()

    real = os.open

    def fails(path: str, *args: Any, **more: Any) -> int:
        if path in ("begun", "complete"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *args, **more)

    monkeypatch.setattr("launcher.base.entries.os.open", fails)
    for asked in (record.has_begun, record.is_complete, Record(str(tmp_path), "job-2").completed_before):
        with pytest.raises(Failure, match="cannot read"):
            asked()


def test_a_member_that_knows_the_cause_of_an_end_records_it_for_the_next_hub(tmp_path: Path) -> None:
    record = Record(str(tmp_path), "job")
    record.open()
    history = record.history(Shape(3))
    history.begin(0, None, 3)
    history.begin(1, None, 3)
    record.folder.write("attempts.json", json.dumps(history.content()).encode())
    lost = Cause(CauseKind.LOST, 0, "pod-0", "was lost without a message", 76)

    def causes() -> list[str | None]:
        known = (one["first_cause"] for one in record.history(Shape(3)).content()["generations"])
        return [cause and cause["what"] for cause in known]

    record.explain(0, lost, Shape(3))
    assert causes() == [None, None], "another one has begun since"
    record.explain(1, lost, Shape(3))
    assert causes() == [None, "was lost without a message"]
    record.explain(1, replace(lost, what="OOMKilled"), Shape(3))
    assert causes() == [None, "OOMKilled"]
    record.explain(1, replace(lost, kind=CauseKind.STOPPED, what="got SIGTERM"), Shape(3))
    assert causes() == [None, "OOMKilled"], "it had ended before that"
    record.explain(2, replace(lost, what="was lost again"), Shape(3))
    assert causes() == [None, "OOMKilled"], "that generation is not in the record"
