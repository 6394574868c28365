"""A failure is reported to the gang, or held until there is one."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

import pytest

from launcher.errors import Exit
from launcher.gang import Gang, GangSettings
from launcher.model import Cause, CauseKind
from launcher.run.failures import Failures
from tests.support.hubs import fire, hold_timers
from tests.support.members import in_loop
from tests.support.sessions import FakeGang

SERVER = Cause(CauseKind.PSERVER, None, "host-1", "pserver was killed", 137)
COPY = Cause(CauseKind.STAGING, None, "host-1", "no shard", Exit.NO_INPUT)


SPLIT_AGAIN = "3 shards for 1 trainer: no trainer of this job reads /volume/train/1/data to /volume/train/2/data: " + (
    "run 3 trainers, or split the data set again: " * 3
)


def made() -> tuple[Failures, FakeGang, list[Cause]]:
    """Return failures, their gang, and the causes whose hold has expired."""
    gang = FakeGang(GangSettings(2, 0), lambda event: None)
    expired: list[Cause] = []
    return Failures(cast(Gang, gang), expired.append), gang, expired


def of_rank_1(cause: Cause) -> Cause:
    return Cause(cause.kind, 1, "pod-1", cause.what, cause.code)


@in_loop
async def test_a_failure_with_long_advice_is_logged_briefly_and_reported_whole(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "launcher")
    failures, gang, _ = made()
    failures.join(1, "pod-1", 0)
    failures.report(SERVER, 1.0, 3)
    failures.report(replace(COPY, what=SPLIT_AGAIN), 1.0, 3)
    whole, cut = caplog.messages
    assert whole == SERVER.what
    assert cut.endswith("run 3 trainers, or ...")
    assert SPLIT_AGAIN.startswith(cut.removesuffix("..."))
    assert gang.failures[1][0].what == SPLIT_AGAIN


@in_loop
async def test_after_the_join_a_failure_is_reported_at_once() -> None:
    failures, gang, _ = made()
    failures.join(1, "pod-1", 0)
    failures.report(SERVER, 1.0, 3)
    assert gang.failures == [(SERVER, 3)]
    assert failures.first is None


@in_loop
async def test_only_a_failure_that_a_restart_repairs_belongs_to_its_attempt() -> None:
    failures, gang, _ = made()
    failures.join(1, "pod-1", 0)
    failures.report(COPY, 1.0, 3)
    assert gang.failures == [(COPY, None)]


@in_loop
async def test_all_failures_before_the_join_are_held_and_then_reported_with_rank_and_pod() -> None:
    failures, gang, _ = made()
    failures.report(SERVER, 1.0, 0)
    failures.report(COPY, 2.0, 0)
    assert gang.failures == []
    assert failures.first == SERVER
    failures.join(1, "pod-1", 0)
    assert gang.failures == [(of_rank_1(SERVER), 0), (of_rank_1(COPY), None)]


@in_loop
async def test_a_held_failure_is_reported_only_once() -> None:
    failures, gang, _ = made()
    failures.report(SERVER, 1.0, 0)
    failures.join(1, "pod-1", 0)
    failures.leave()
    failures.join(1, "pod-1", 0)
    assert len(gang.failures) == 1


@in_loop
async def test_the_hold_expires_after_30_seconds_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = hold_timers(monkeypatch, 30.0)
    failures, gang, expired = made()
    failures.report(SERVER, 1.0, 0)
    failures.report(COPY, 2.0, 0)
    assert expired == []
    fire(timers)
    assert expired == [SERVER]
    assert gang.failures == []


@in_loop
async def test_after_the_join_no_hold_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = hold_timers(monkeypatch, 30.0)
    failures, _, expired = made()
    failures.report(SERVER, 1.0, 0)
    failures.join(1, "pod-1", 0)
    fire(timers)
    assert expired == []


@in_loop
async def test_a_member_that_has_left_its_gang_holds_failures_again() -> None:
    failures, gang, _ = made()
    failures.join(1, "pod-1", 0)
    failures.leave()
    failures.report(SERVER, 1.0, 0)
    assert gang.failures == []
    assert failures.first == SERVER
