"""One attempt: in which order the processes of a member start, and what is reported about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.errors import Exit
from launcher.gang import Begin, Collect, Gang, GangSettings
from launcher.model import FIRST, Cause, CauseKind, Numbers
from launcher.processes.supervisor import Supervisor
from launcher.run.attempt import Attempt
from launcher.run.factories import Factories
from launcher.run.node import Node
from tests.support.hubs import fire, hold_timers
from tests.support.members import in_loop, until
from tests.support.sessions import PS, FakeGang, FakeSupervisor, job_config, joined, settle

COLLECTIVE: dict[str, Any] = {"LAUNCHER_MODE": "collective"}
SERVERS: dict[str, Any] = {"LAUNCHER_PSERVERS": "2"}


class Member:
    """One member with one attempt. Unless a command is given, its server needs no roster."""

    def __init__(
        self, folder: Path, *, rank: int = 1, command: Sequence[str] = (), flags: Sequence[str] = (), **variables: Any
    ) -> None:
        self.config = job_config(folder, rank=None, **variables)
        self._rank = rank
        self.node = Node(self.config, flags, command)
        self.gang = FakeGang(GangSettings(2, 0), lambda event: None)
        self.failures: list[tuple[Cause, float]] = []
        self.made: list[FakeSupervisor] = []
        self.attempt = Attempt(
            0,
            self.config,
            command,
            self.node,
            cast(Gang, self.gang),
            lambda cause, died_at: self.failures.append((cause, died_at)),
            None,
            Factories(supervisor=self._supervisor),
        )
        self.has_joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.supervisor = self.made[0]
        self._running: asyncio.Future[None] | None = None

    def _supervisor(self, *args: Any, **more: Any) -> Supervisor:
        self.made.append(FakeSupervisor(*args, **more))
        return cast(Supervisor, self.made[-1])

    def run(self) -> None:
        self.attempt.serve_early()
        self._running = asyncio.ensure_future(self.attempt.run(self.has_joined))

    def join(self) -> None:
        self.node.join(joined(self.config, self._rank), GangSettings(2, 0), lambda cause: None)
        self.has_joined.set_result(None)

    async def begin(self, *, staged: bool = True) -> None:
        """Run, join, and begin the first generation."""
        self.run()
        self.join()
        if staged:
            self.node.staged.set()
        self.attempt.begun.set_result(Begin(0, FIRST))
        await settle()

    async def train(self) -> None:
        """Run from the start to the training."""
        await self.begin()
        if self.node.plan(FIRST).leads:
            self.attempt.may_lead.set_result(None)
        self.attempt.may_train.set_result(0.0)
        await settle()
        assert "trainer" in self.supervisor.roles

    @property
    def causes(self) -> list[Cause]:
        return [cause for cause, _ in self.failures]


# ---- the order of starts ---------------------------------------------------------------------------------------------


@in_loop
async def test_a_server_that_needs_no_roster_starts_before_the_attempt_begins(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.run()
    await settle()
    assert member.supervisor.roles == ["pserver"]
    member.supervisor.serve()
    await settle()
    assert member.gang.reported("serving") == [0]


@in_loop
async def test_a_server_that_started_early_is_not_started_again_when_the_attempt_begins(tmp_path: Path) -> None:
    member = Member(tmp_path)
    await member.begin()
    assert member.supervisor.roles == ["pserver"]


@in_loop
async def test_any_other_server_starts_only_after_begin_and_when_all_files_are_copied(tmp_path: Path) -> None:
    member = Member(tmp_path, command=PS, **SERVERS)
    member.attempt.serve_early()
    await member.begin(staged=False)
    assert member.supervisor.roles == []
    member.node.staged.set()
    await settle()
    assert member.supervisor.roles == ["pserver"]


@in_loop
async def test_no_generation_begins_before_this_member_has_joined(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.run()
    member.attempt.begun.set_result(Begin(0, FIRST))
    await settle()
    assert member.supervisor.logs == []
    member.join()
    await settle()
    assert len(member.supervisor.logs) == 1


@pytest.mark.parametrize(("command", "variables"), [((), {}), (PS, SERVERS)], ids=["v0", "ps"])
@in_loop
async def test_trainers_start_only_after_train(
    tmp_path: Path, command: Sequence[str], variables: dict[str, Any]
) -> None:
    member = Member(tmp_path, command=command, **variables)
    await member.begin()
    member.supervisor.serve()
    await settle()
    assert member.supervisor.roles == ["pserver"]
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert member.supervisor.roles == ["pserver", "trainer"]


@in_loop
async def test_a_leading_trainer_starts_alone_after_lead_and_all_others_after_train(tmp_path: Path) -> None:
    member = Member(tmp_path, rank=0, command=PS, LAUNCHER_TRAINERS_PER_NODE="3", **COLLECTIVE)
    await member.begin()
    assert member.supervisor.started == []
    member.attempt.may_lead.set_result(None)
    await settle()
    assert [process.env["PADDLE_LOCAL_RANK"] for process in member.supervisor.started] == ["0"]
    assert member.gang.reported("serving") == []
    member.supervisor.serve("trainer")
    await settle()
    assert member.gang.reported("serving") == [0]
    assert len(member.supervisor.started) == 1
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert [process.env["PADDLE_LOCAL_RANK"] for process in member.supervisor.started] == ["0", "1", "2"]


@in_loop
async def test_a_leading_trainer_that_does_not_listen_delays_the_others_by_15_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = hold_timers(monkeypatch, 15.0)
    member = Member(tmp_path, rank=0, command=PS, **COLLECTIVE)
    await member.begin()
    member.attempt.may_lead.set_result(None)
    await settle()
    assert member.gang.reported("serving") == []
    fire(timers)
    await settle()
    assert member.gang.reported("serving") == [0]
    member.supervisor.serve("trainer")  # it listens after all
    await settle()
    assert member.gang.reported("serving") == [0]


@in_loop
async def test_a_leading_trainer_that_ends_before_it_listens_delays_no_other(tmp_path: Path) -> None:
    member = Member(tmp_path, rank=0, command=PS, **COLLECTIVE)
    await member.begin()
    member.attempt.may_lead.set_result(None)
    await settle()
    member.supervisor.die("trainer", 0)
    await settle()
    assert (member.gang.reported("serving"), member.gang.reported("trained")) == ([0], [0])


@in_loop
async def test_a_member_without_servers_serves_as_soon_as_its_attempt_begins(tmp_path: Path) -> None:
    member = Member(tmp_path, command=PS, **COLLECTIVE)
    await member.begin()
    assert member.gang.reported("serving") == [0]


@in_loop
async def test_a_member_without_trainers_has_trained_as_soon_as_training_begins(tmp_path: Path) -> None:
    role: dict[str, Any] = {"LAUNCHER_ROLE": "pserver", "LAUNCHER_PSERVERS": "1", "LAUNCHER_SELECTOR": "app=x"}
    member = Member(tmp_path, command=PS, **role, CONF_PADDLE_GRADIENT_NUM="1")
    await member.begin()
    assert member.gang.reported("trained") == []
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert member.gang.reported("trained") == [0]


@in_loop
async def test_nothing_starts_after_start_no_more(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.attempt.start_no_more()
    await member.begin()
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert member.supervisor.started == []


@in_loop
async def test_a_plan_that_fails_is_reported_and_starts_nothing_more(tmp_path: Path) -> None:
    member = Member(tmp_path, flags=("--trainer_id=5",))
    before = time.monotonic()
    await member.begin()
    ((cause, died_at),) = member.failures
    assert (cause.kind, cause.rank, cause.pod, cause.code) == (CauseKind.PLAN, 1, "pod-1", Exit.USAGE)
    assert "--trainer_id: '5'" in cause.what
    assert before <= died_at <= time.monotonic()
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert member.supervisor.roles == ["pserver"]


# ---- what happens to the processes -----------------------------------------------------------------------------------


@in_loop
async def test_the_death_of_an_early_server_is_reported_before_the_attempt_begins(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.run()
    member.supervisor.die("pserver", 134, "core dumped")
    await settle()
    (cause,) = member.causes
    assert (cause.kind, cause.rank, cause.code, cause.tail) == (CauseKind.PSERVER, None, 134, ("core dumped",))


@in_loop
async def test_a_death_is_reported_with_its_own_time(tmp_path: Path) -> None:
    member = Member(tmp_path)
    await member.train()
    before = time.monotonic()
    member.supervisor.die("trainer", 137)
    after = time.monotonic()
    await settle()
    ((cause, died_at),) = member.failures
    assert (cause.kind, cause.code) == (CauseKind.TRAINER, 137)
    assert before <= died_at <= after


@in_loop
async def test_a_member_has_trained_when_its_last_trainer_has_ended_with_0(tmp_path: Path) -> None:
    member = Member(tmp_path, command=PS, LAUNCHER_TRAINERS_PER_NODE="2", **COLLECTIVE)
    await member.train()
    member.supervisor.die("trainer", 0)
    await settle()
    assert member.gang.reported("trained") == []
    member.supervisor.die("trainer", 0)
    await settle()
    assert member.gang.reported("trained") == [0]
    assert member.failures == []


@in_loop
async def test_a_server_that_may_finish_and_ends_with_0_fails_only_5_seconds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = hold_timers(monkeypatch, 5.0)
    member = Member(tmp_path, command=PS, **SERVERS)
    await member.train()
    before = time.monotonic()
    member.supervisor.die("pserver", 0)
    after = time.monotonic()
    await settle()
    assert member.failures == []
    fire(timers)
    await settle()
    ((cause, died_at),) = member.failures
    assert (cause.kind, cause.code) == (CauseKind.PSERVER, 0)
    assert before <= died_at <= after


@pytest.mark.parametrize(
    ("command", "variables", "code"), [((), {}, 0), (PS, SERVERS, 1)], ids=["must not finish", "not with 0"]
)
@in_loop
async def test_any_other_end_of_a_server_fails_at_once(
    tmp_path: Path, command: Sequence[str], variables: dict[str, Any], code: int
) -> None:
    member = Member(tmp_path, command=command, **variables)
    await member.train()
    member.supervisor.die("pserver", code)
    await settle()
    assert [cause.kind for cause in member.causes] == [CauseKind.PSERVER]


@in_loop
async def test_the_member_knows_the_newest_numbers(tmp_path: Path) -> None:
    member = Member(tmp_path)
    await member.train()
    member.supervisor.numbers_seen(Numbers(step=1, loss=0.5))
    member.supervisor.numbers_seen(Numbers(step=2, loss=0.25))
    await settle()
    assert member.node.numbers == Numbers(step=2, loss=0.25)


@in_loop
async def test_all_events_after_close_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = Member(tmp_path)
    passes: list[int] = []
    monkeypatch.setattr(member.node, "passed", passes.append)
    await member.train()
    member.supervisor.pass_done(0)
    await settle()
    assert passes == [0]
    member.supervisor.die("trainer", 137)  # not handled yet
    member.attempt.close()
    member.supervisor.pass_done(1)
    await settle()
    assert (passes, member.failures) == ([0], [])


@in_loop
async def test_after_close_nothing_starts(tmp_path: Path) -> None:
    member = Member(tmp_path)
    await member.begin()
    member.attempt.close()
    member.attempt.may_train.set_result(0.0)
    await settle()
    assert member.supervisor.roles == ["pserver"]


@in_loop
async def test_evidence_is_written_only_once_a_generation_has_begun(tmp_path: Path) -> None:
    member = Member(tmp_path)
    member.run()
    member.join()
    written = tmp_path / "job" / "output" / "node_1" / "stalled-0.txt"
    member.attempt.answer(Collect(0, to_file=True))
    await until(lambda: member.gang.reported("collected") == [0])
    assert not written.exists()
    member.attempt.begun.set_result(Begin(0, FIRST))
    await settle()
    member.attempt.answer(Collect(1, to_file=True))
    await until(lambda: member.gang.reported("collected") == [0, 1])
    assert written.exists()


# ---- logs and the end ------------------------------------------------------------------------------------------------


@in_loop
async def test_logs_of_early_servers_get_a_folder_only_if_no_generation_has_begun(tmp_path: Path) -> None:
    folder = str(tmp_path / "job" / "output" / "node_1")
    early, begun = Member(tmp_path), Member(tmp_path)
    early.run()
    early.attempt.place_early_logs()
    assert early.supervisor.logs == []  # there is no folder yet
    early.join()
    early.attempt.place_early_logs()
    assert early.supervisor.logs == [(folder, "pod pod-1, before a generation began")]
    await begun.begin()
    begun.attempt.place_early_logs()
    assert [mark for _, mark in begun.supervisor.logs] == ["generation 0, pod pod-1"]


@in_loop
async def test_the_end_waits_for_all_processes_and_returns_those_that_are_blocked(tmp_path: Path) -> None:
    member = Member(tmp_path)
    await member.train()
    member.supervisor.may_end.clear()
    member.supervisor.blocked = member.supervisor.started[:1]
    ending = asyncio.ensure_future(member.attempt.end(7.0, 1.0))
    await settle()
    assert member.supervisor.ended_within == [7.0]
    assert not member.supervisor.closed
    member.supervisor.may_end.set()
    assert await asyncio.wait_for(ending, 8) == member.supervisor.started[:1]
    assert member.supervisor.closed
