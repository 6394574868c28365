"""Marks of a role that has failed for good, and which members see them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from launcher.store.failure_marks import FailureMarks


def member(folder: Path, identity: str, me: str) -> FailureMarks:
    made = FailureMarks(str(folder), identity, me)
    made.begin()
    return made


def set_back(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def test_a_mark_is_seen_by_each_member_that_waits_for_that_role_of_that_job(tmp_path: Path) -> None:
    server, trainer = member(tmp_path, "s-uid", "pserver-1"), member(tmp_path, "t-uid", "trainer-0")
    assert trainer.of("s-uid", "pserver") is trainer.of(None, "pserver") is trainer.of("unknown", "pserver") is None
    server.mark("exit code 66: no shard")
    for identity in ("s-uid", None):
        mark = trainer.of(identity, "pserver")
        assert mark
        assert mark.text.startswith("exit code 66: no shard (see ")
        assert not mark.is_old
    assert trainer.of("s-uid", "trainer") is trainer.of("other", "pserver") is None


def test_a_member_that_starts_again_removes_its_mark_under_any_identity(tmp_path: Path) -> None:
    trainer = member(tmp_path, "t-uid", "trainer-0")
    for identity in ("s-uid", "s-uid-2"):
        member(tmp_path, "s-uid", "pserver-1").mark("exit code 78: wrong")
        member(tmp_path, "s-uid", "pserver-10")
        assert trainer.of("s-uid", "pserver")
        member(tmp_path, identity, "pserver-1")
        assert trainer.of("s-uid", "pserver") is trainer.of(None, "pserver") is None


def test_without_the_other_identity_marks_much_older_than_the_own_job_do_not_count(tmp_path: Path) -> None:
    member(tmp_path, "s-uid", "pserver-1").mark("exit code 66: last week's")
    set_back(tmp_path / ".launcher" / "failed" / "s-uid" / "pserver-1", 1000)
    trainer = member(tmp_path, "t-uid", "trainer-0")
    assert trainer.of(None, "pserver") is None
    assert trainer.of("s-uid", "pserver")


def test_without_the_other_identity_the_newest_pods_of_that_role_count(tmp_path: Path) -> None:
    trainer = member(tmp_path, "t-uid", "trainer-0")
    member(tmp_path, "s-uid", "pserver-x").mark("exit code 78: of the Job before")
    assert trainer.of(None, "pserver")
    set_back(tmp_path / ".launcher" / "failed" / "s-uid" / "since-pserver", 60)
    member(tmp_path, "s-uid-2", "pserver-y")
    assert trainer.of(None, "pserver") is None


def test_pods_whose_names_change_remove_the_marks_of_those_before_them(tmp_path: Path) -> None:
    trainer = member(tmp_path, "job", "trainer-0")
    member(tmp_path, "job", "pserver-abc").mark("exit code 78: wrong")
    member(tmp_path, "job", "pserver-def")
    assert trainer.of("job", "pserver"), "both may have started together"
    set_back(tmp_path / ".launcher" / "failed" / "job" / "pserver-abc", 60)
    member(tmp_path, "job", "pserver-ghi")
    assert trainer.of("job", "pserver") is None


def test_failures_that_the_job_counts_are_counted_by_role(tmp_path: Path) -> None:
    assert [member(tmp_path, "job", "pserver-0").count() for _ in range(3)] == [1, 2, 3]
    assert member(tmp_path, "job", "trainer-0").count() == 1
    assert member(tmp_path, "job-2", "pserver-0").count() == 1


def test_a_mark_that_is_older_than_the_own_pods_is_known_as_old(tmp_path: Path) -> None:
    member(tmp_path, "s-uid", "pserver-1").mark("exit code 78: wrong")
    set_back(tmp_path / ".launcher" / "failed" / "s-uid" / "pserver-1", 60)
    mark = member(tmp_path, "t-uid", "trainer-0").of("s-uid", "pserver")
    assert mark
    assert mark.is_old
