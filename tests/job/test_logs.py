"""The log of one member."""

from __future__ import annotations

import re
import threading

import pytest

from launcher.job import Failure, PaddleJob
from tests.support.fake_cluster import CUT, FakeCluster
from tests.support.jobs import until
from tests.support.submitted import JOB, ended, put_pod, submit_and_run


def test_a_followed_log_continues_after_a_cut_and_has_each_line_once(cluster: FakeCluster) -> None:
    submit_and_run(cluster)
    cluster.logs["words-trainer-1-a"] = ["one", "two", "three", CUT, "five"]
    found = JOB.logs(1, follow=True)
    assert [next(found) for _ in range(5)] == ["one", "two", "three", "after the cut", "five"]
    cluster.refused["GET", "pods"] = (503, "restarting")
    put_pod(cluster, "trainer", 1, **ended(0, ""))
    cluster.after = lambda verb, plural: cluster.refused.clear()
    assert list(found) == []


def test_a_member_that_has_not_started_has_no_log_and_the_reason_is_given(cluster: FakeCluster) -> None:
    JOB.submit()
    put_pod(cluster, "pserver", 0, waiting={"reason": "ErrImagePull"})
    with pytest.raises(Failure, match=r"pserver 0 of words has no log: .*ErrImagePull"):
        list(JOB.logs(0, role="pserver"))


def test_a_rank_that_does_not_exist_is_refused(cluster: FakeCluster) -> None:
    JOB.submit()
    with pytest.raises(Failure, match="words has 2 trainers: expected a rank from 0 to 1"):
        list(JOB.logs(2))
    alone = PaddleJob(job_name="alone", entry_point="python t.py", runtime_image="i:1", pservers=0)
    alone.submit()
    with pytest.raises(Failure, match="alone has no pservers"):
        list(alone.logs(role="pserver"))


def test_following_a_log_says_why_the_member_has_not_started(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    JOB.submit()
    name = put_pod(cluster, "trainer", 0, waiting={"reason": "ErrImagePull"})
    cluster.logs[name] = ["hello"]
    lines: list[str] = []
    following = threading.Thread(target=lambda: lines.extend(JOB.logs(0, follow=True)))
    following.start()
    until(lambda: re.search("trainer 0 of words has no log yet: .*ErrImagePull", capsys.readouterr().err))
    put_pod(cluster, "trainer", 0, **ended(0, ""))
    following.join(20)
    assert lines == ["hello"]
