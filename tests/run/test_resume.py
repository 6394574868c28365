"""The hub's generations: what is recorded of each generation, and after which pass the next generation starts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from launcher.errors import Exit, Failure
from launcher.gang import AlreadyComplete, OtherGang, StartRefused, Verdict
from launcher.model import Cause, CauseKind, Member, Roster, Saves, Shape, Start
from launcher.run import resume
from launcher.run.restarts import MAX_ATTEMPTS, RestartPolicy
from launcher.run.resume import Generations
from launcher.store.lease import OtherGangRuns
from launcher.store.record import History, Record

T = TypeVar("T")

FAILED = Cause(CauseKind.TRAINER, 1, "pod-1", "ended with exit code 3", 3)
OTHER = Cause(CauseKind.TRAINER, 2, "pod-2", "was killed by SIGKILL", 137)
LOST = Cause(CauseKind.LOST, 1, "pod-1", "was lost without a message", 76)
STOPPED = Cause(CauseKind.STOPPED, 1, "pod-1", "got SIGTERM", 143)
ROSTER = Roster(tuple(Member(f"pod-{rank}", "", f"10.0.0.{rank}", f"10.0.0.{rank}", rank) for rank in range(3)))


class Clock:
    """Time passes only where a test or a pause says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[float] = []
        self.while_asleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.while_asleep()
        self.now += max(seconds, 0)
        await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    told = SimpleNamespace(monotonic=clock.monotonic, strftime=time.strftime, gmtime=time.gmtime)
    monkeypatch.setattr(resume, "time", told)
    monkeypatch.setattr(resume, "asyncio", SimpleNamespace(sleep=clock.sleep, create_task=asyncio.create_task))
    return clock


class World:
    """The generations of one gang on a volume. `again` is a gang of new pods on the same volume."""

    def __init__(
        self,
        output: Path,
        *,
        identity: str | None = "job-1",
        sees_passes: bool = True,
        saves: bool = True,
        every_pass: bool = True,
        first: int = 0,
        named: str = "",
        rejoins: bool = False,
        content: Mapping[str, Any] | None = None,
        lease: Any = None,
    ) -> None:
        self.output = output
        self.record = Record(str(output), identity)
        self.record.open()
        self.history = History(content or {}, Shape(3))
        self.written: list[Mapping[str, Any]] = []
        self.broken_from: int | None = None  # from this call on, the volume does not answer
        self.cancelled_at: int | None = None  # the call at which the caller is cancelled
        self.calls = 0
        policy = RestartPolicy(
            99,
            self.history.without_progress,
            sees_passes=sees_passes,
            sees_saves=saves and every_pass,
            has_identity=identity is not None,
            rejoins=rejoins,
        )
        where = Saves(str(output), first, every_pass=every_pass, of_v0=sees_passes, named=(str(output / named),))
        self._generations = Generations(
            policy,
            where if saves else None,
            self.record,
            self.history,
            lease,
            sees_passes=sees_passes,
            output=str(output),
            pod="pod-0",
            written=lambda: self.written.append(self.history.content()),
            from_volume=self._from_volume,
        )
        self.complete = self._generations.complete
        self.explain = self._generations.explain

    async def _from_volume(self, work: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls == self.cancelled_at:
            raise asyncio.CancelledError
        if self.broken_from is not None and self.calls > self.broken_from:
            raise Failure(Exit.IO_FAILED, "the volume has not answered")
        return work()

    def begin(self, cause: Cause | None = None) -> Start:
        return asyncio.run(self._generations.prepare(cause, ROSTER))

    def passed(self, looks: int = 1, between: Callable[[], object] = lambda: None) -> None:
        """Let a trainer log the end of a pass. Wait until the launcher has looked this often whether it is saved."""

        async def wait() -> None:
            self._generations.passed()
            until = self.calls + looks
            while self.calls < until:
                await asyncio.sleep(0)
                between()
            for _ in range(3):
                await asyncio.sleep(0)

        asyncio.run(wait())

    def last_pass_flaw(self) -> str | None:
        return asyncio.run(self._generations.last_pass_flaw())

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        return self._generations.judge(cause)

    def fails(self, cause: Cause = FAILED) -> Start:
        """Fail the current generation, and begin the next generation."""
        assert self.judge(cause) == (cause, Verdict.RESTART)
        return self.begin(cause)

    def refused(self, cause: Cause | None = None) -> Cause:
        with pytest.raises(StartRefused) as caught:
            self.begin(cause)
        return caught.value.cause

    def save(self, number: int, *, done: bool = True) -> Path:
        folder = self.output / f"pass-{number:05d}"
        folder.mkdir(exist_ok=True)
        (folder / "w").write_text(f"pass {number}")
        if done:
            (folder / "done").touch()
        return folder

    def passes(self) -> list[str]:
        return sorted(path.name for path in self.output.glob("pass-*"))

    def without_progress(self) -> int:
        count = self.written[-1]["without_progress"]
        assert isinstance(count, int)
        return count

    def latest_cause(self) -> str:
        """Return the recorded cause of the latest generation."""
        return str(self.written[-1]["generations"][-1]["first_cause"]["what"])

    def again(self, **more: Any) -> World:
        return World(self.output, content=self.history.content(), **more)


@pytest.fixture
def world(tmp_path: Path, clock: Clock) -> World:
    return World(tmp_path)


# ---- between two generations -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["stopped", "lost", "staging", "volume"])
@pytest.mark.parametrize("rejoins", [True, False])
def test_a_failure_between_two_generations_counts_for_neither_generation(
    tmp_path: Path, clock: Clock, kind: str, rejoins: bool
) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 3), rejoins=rejoins)
    world.begin()
    world.judge(FAILED)
    before = world.history.content()
    cause = Cause(CauseKind(kind), 1, "pod-1", "it happened", 74)
    assert world.judge(cause)[0] == cause
    assert world.history.content() == before


def test_a_loss_in_the_pause_after_the_fourth_attempt_does_not_give_the_job_up(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 2))
    world.begin()
    world.judge(FAILED)
    told: list[Cause] = []
    clock.while_asleep = lambda: told.append(world.judge(LOST)[0])
    world.begin(FAILED)
    assert told == [LOST]
    assert clock.asked == [pytest.approx(1)]


def test_a_loss_before_the_first_generation_changes_nothing(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 1))
    before = world.history.content()
    assert world.judge(LOST) == (LOST, Verdict.STOP)
    assert world.history.content() == before


# ---- later explanations ---------------------------------------------------------------------------------------------


def test_a_later_explanation_is_written_and_keeps_the_time_of_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.begin()
    monkeypatch.setattr("launcher.store.record.utc_now", lambda: "when it ended")
    world.judge(LOST)
    monkeypatch.setattr("launcher.store.record.utc_now", lambda: "after the fence")
    world.explain(replace(LOST, what="was lost: its node is gone"))
    assert world.latest_cause() == "was lost: its node is gone"
    assert world.history.content()["generations"][-1]["ended"] == "when it ended"


@pytest.mark.parametrize("other", [STOPPED, replace(FAILED, rank=2, what="another one failed")])
def test_an_explanation_of_another_cause_does_not_change_why_a_generation_ended(world: World, other: Cause) -> None:
    world.begin()
    world.judge(FAILED)
    world.explain(other)
    assert world.latest_cause() == FAILED.what


def test_an_explanation_does_not_end_the_generation_that_runs(world: World) -> None:
    world.begin()
    world.fails(FAILED)
    world.explain(FAILED)
    assert world.history.content()["generations"][-1]["first_cause"] is None


# ---- progress --------------------------------------------------------------------------------------------------------


def test_a_job_with_the_same_failure_twice_before_any_progress_is_given_up(world: World) -> None:
    world.begin()
    world.fails(FAILED)
    assert world.judge(FAILED) == (FAILED, Verdict.RESTART)
    cause = world.refused(FAILED)
    assert cause.final
    assert (cause.kind, cause.rank, cause.code) == (FAILED.kind, FAILED.rank, FAILED.code)
    assert cause.what == f"{FAILED.what}; given up: the same failure came twice without progress"
    assert world.record.claim(2, "another pod")


def test_an_incomplete_pass_is_no_progress(world: World) -> None:
    world.begin()
    world.fails(FAILED)
    world.save(0, done=False)
    world.judge(FAILED)
    assert world.refused(FAILED).final


def test_the_pass_that_was_resumed_from_is_no_progress(world: World) -> None:
    world.begin()
    world.save(3)
    assert world.fails(FAILED).resume == 3
    world.fails(FAILED)
    world.judge(FAILED)
    assert world.refused(FAILED).final


# ---- attempts without progress, over gangs ---------------------------------------------------------------------------


def after(attempts: int) -> dict[str, Any]:
    """Return a history with this number of attempts without progress."""
    begun = [{"number": number, "after_pass": None} for number in range(attempts)]
    return {"without_progress": attempts, "generations": begun}


def test_a_saved_pass_resets_the_count_of_attempts(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 1))
    world.begin()
    world.save(0)
    world.passed()
    assert world.without_progress() == 0
    world.fails(FAILED)
    assert world.without_progress() == 1


def test_the_count_is_reset_as_soon_as_a_finished_pass_is_saved(tmp_path: Path, clock: Clock) -> None:
    """After that, perhaps no launcher is left to count."""
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 2))
    world.begin()
    world.save(0, done=False)
    seen: list[int] = []

    def saves_after_three_looks() -> None:
        seen.append(world.without_progress())
        if world.calls - begun == 3:
            world.save(0)

    begun = world.calls
    world.passed(looks=4, between=saves_after_three_looks)
    assert seen[0] == MAX_ATTEMPTS - 1
    assert world.without_progress() == 0
    assert clock.asked[:3] == [1, 2, 4]


def test_after_the_end_of_the_job_its_files_are_not_written_again(world: World) -> None:
    """Another gang may have the lease."""
    world.begin()
    written: list[int] = []

    def completes() -> None:
        world.complete()
        written.append(len(world.written))

    world.passed(looks=1, between=completes)
    assert len(world.written) == written[-1]


def test_a_finished_pass_that_is_never_saved_is_no_progress(world: World) -> None:
    """A trainer that dies whenever it saves its first pass has a bug."""
    world.begin()
    world.passed()
    world.fails(FAILED)
    world.passed()
    world.judge(FAILED)
    cause = world.refused(FAILED)
    assert cause.what == f"{FAILED.what}; given up: the same failure came twice without progress"


def test_attempts_that_finish_a_pass_and_never_save_one_are_limited(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.begin()
    for attempt in range(MAX_ATTEMPTS - 1):
        world.passed()
        world.fails((FAILED, OTHER)[attempt % 2])
    world.passed()
    last = (FAILED, OTHER)[(MAX_ATTEMPTS - 1) % 2]
    assert world.judge(last) == (last, Verdict.RESTART)
    cause = world.refused(last)
    assert cause.final
    assert cause.what.endswith("given up: 5 attempts in a row ended before their first pass was done")
    assert world.again().history.without_progress == MAX_ATTEMPTS


@pytest.mark.parametrize("how", [{"saves": False}, {"every_pass": False}])
def test_a_finished_pass_is_progress_if_it_need_not_be_saved(tmp_path: Path, clock: Clock, how: dict[str, Any]) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 1), **how)
    world.begin()
    world.passed(looks=0)
    assert world.without_progress() == 0
    assert world.fails(FAILED).generation == MAX_ATTEMPTS


def test_a_volume_that_fails_while_a_pass_is_looked_for_is_asked_again(world: World) -> None:
    world.begin()
    world.save(0)
    world.broken_from = world.calls

    def mends() -> None:
        world.broken_from = None

    world.passed(looks=2, between=mends)
    assert world.without_progress() == 0


def test_complete_passes_on_the_volume_reset_the_count_although_no_launcher_saw_them(
    tmp_path: Path, clock: Clock
) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 2))
    world.begin()
    world.save(0)
    world.fails(FAILED)
    assert world.written[-1]["without_progress"] == 1


def test_a_stop_does_not_count_as_an_attempt(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, content=after(MAX_ATTEMPTS - 1))
    world.begin()
    assert world.judge(STOPPED) == (STOPPED, Verdict.STOP)
    assert world.written[-1]["without_progress"] == MAX_ATTEMPTS - 1


def test_a_generation_counts_as_soon_as_it_begins_because_its_end_may_not_be_written(world: World) -> None:
    world.begin()
    assert world.written[-1]["without_progress"] == 1
    assert world.again().history.without_progress == 1


def test_the_count_stays_unchanged_if_passes_cannot_be_seen(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, sees_passes=False, content=after(2))
    world.begin()
    world.fails(FAILED)
    world.complete()
    assert world.written[-1]["without_progress"] == 2


def test_a_complete_job_has_no_attempts_without_progress(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, content=after(3))
    world.begin()
    world.complete()
    assert world.written[-1]["without_progress"] == 0
    assert world.written[-1]["generations"][-1]["first_cause"] is None
    assert world.written[-1]["generations"][-1]["ended"] is not None


# ---- numbers and history ---------------------------------------------------------------------------------------------


def test_generation_numbers_continue_in_the_next_gang(world: World) -> None:
    assert world.begin() == Start(0, None)
    assert world.fails().generation == 1
    later = world.again()
    assert later.begin().generation == 2
    assert later.fails().generation == 3


def test_a_number_that_another_gang_has_claimed_is_not_used(world: World) -> None:
    world.begin()
    for number in (1, 2):
        assert world.record.claim(number, "pod-of-another-gang")
    assert world.fails().generation == 3
    assert not world.record.claim(3, "pod-of-another-gang"), "it is claimed here"


def test_two_gangs_of_one_job_never_have_the_same_generation(world: World) -> None:
    other = world.again()
    numbers = [gang.begin().generation for gang in (world, other)]
    numbers += [gang.fails(FAILED).generation for gang in (world, other)]
    assert sorted(numbers) == [0, 1, 2, 3]


def test_a_job_without_an_identity_counts_generations_in_memory_and_claims_none(tmp_path: Path, clock: Clock) -> None:
    for _ in range(2):
        world = World(tmp_path, identity=None)
        assert world.begin().generation == 0
        assert world.fails().generation == 1
    assert not list(tmp_path.glob(".launcher/*/generation-*"))


def test_the_history_has_each_generation(world: World) -> None:
    world.begin()
    world.save(1)
    world.fails(FAILED)
    first, second = world.written[-1]["generations"]
    assert (first["number"], first["after_pass"], first["first_cause"]["code"]) == (0, None, 3)
    assert (second["number"], second["after_pass"], second["ended"], second["first_cause"]) == (1, 1, None, None)


def test_a_failure_is_written_before_the_next_generation_begins(world: World) -> None:
    world.begin()
    world.judge(FAILED)
    (only,) = world.written[-1]["generations"]
    assert only["first_cause"]["what"] == FAILED.what


def test_the_first_generation_begins_after_a_server_has_died_before_it(world: World) -> None:
    assert world.judge(FAILED) == (FAILED, Verdict.RESTART)
    assert world.begin(FAILED) == Start(0, None)


# ---- from which pass -------------------------------------------------------------------------------------------------


def test_a_generation_resumes_after_the_newest_complete_pass(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.begin()
    for number in range(3):
        world.save(number)
    assert world.fails() == Start(1, 2, 3)
    assert caplog.messages == [f"the job resumes after pass 2 ({world.output}/pass-00002)"]
    assert len(world.passes()) == 3


def test_another_gang_of_the_same_job_resumes_as_well(world: World) -> None:
    world.begin()
    world.save(0)
    world.save(1, done=False)
    later = world.again()
    assert later.begin() == Start(1, 0, 3)
    assert later.passes() == ["pass-00000"]


def test_an_incomplete_pass_is_moved_aside_and_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.begin()
    world.save(0)
    half = world.save(1, done=False)
    assert world.fails() == Start(1, 0, 3)
    assert not half.exists()
    assert (world.output / "incomplete-1" / "pass-00001" / "w").read_text() == "pass 1"
    into = world.output / "incomplete-1"
    assert f"moved 1 pass of an unfinished attempt to {into}; pass-00001: it has no file done" in caplog.messages


def test_without_a_complete_pass_training_starts_with_the_first_pass(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin()
    world.save(0, done=False)
    assert world.fails() == Start(1, None, 3)
    assert world.passes() == []
    assert not any("resumes" in line for line in caplog.messages)


def test_passes_of_an_earlier_job_are_moved_aside_and_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.save(0)
    world.save(1, done=False)
    assert world.begin() == Start(0, None)
    assert world.passes() == []
    (earlier,) = world.output.glob("earlier-*")
    assert sorted(path.name for path in earlier.iterdir()) == ["pass-00000", "pass-00001"]
    assert (earlier / "pass-00000" / "done").exists()
    back = f"mv {earlier}/pass-* {world.output}/"
    names = "pass-00000 to pass-00001"
    told = f"moved 2 passes of an earlier job ({names}) to {earlier}; to get them back when this job has ended: {back}"
    assert caplog.messages == [told]


def test_a_job_that_has_begun_resumes_although_its_history_is_lost(world: World) -> None:
    """A user may remove attempts.json to start a job again after it was given up."""
    world.begin()
    world.save(20)
    later = World(world.output)
    assert later.begin().resume == 20
    assert later.passes() == ["pass-00020"]


def test_a_new_job_never_resumes_from_the_passes_of_another_job_after_any_failure(world: World) -> None:
    world.save(29)
    world.judge(FAILED)
    assert world.begin(FAILED).resume is None
    assert world.passes() == []


def test_a_new_job_does_not_resume_from_the_passes_of_one_that_has_begun(world: World) -> None:
    world.begin()
    world.save(3)
    other = World(world.output, identity="job-2")
    assert other.begin() == Start(0, None)
    assert other.passes() == []


def test_a_job_without_an_identity_resumes_from_its_own_passes_only(tmp_path: Path, clock: Clock) -> None:
    for _ in range(2):
        world = World(tmp_path, identity=None)
        assert world.begin().resume is None, "nothing tells whose they are"
        world.save(0)
        assert world.fails().resume == 0


def test_a_job_has_begun_only_once_the_passes_of_earlier_jobs_are_moved(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path)
    world.save(0)
    world.broken_from = world.calls + 4
    world.refused()
    assert not world.record.has_begun()
    assert World(tmp_path).begin().resume is None


def test_without_passes_to_move_there_is_no_message(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.begin()
    world.fails()
    assert caplog.messages == []
    assert [path.name for path in world.output.iterdir()] == [".launcher"]


def test_passes_below_the_first_pass_do_not_belong_to_this_job(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, first=5)
    for number in (3, 5):
        world.save(number)
    world.save(4, done=False)
    assert world.begin() == Start(0, None)
    assert world.passes() == ["pass-00003", "pass-00004"]
    assert world.fails() == Start(1, None, 3)
    assert world.passes() == ["pass-00003", "pass-00004"]
    world.save(5)
    assert world.fails(OTHER) == Start(2, 5, 3)


def test_without_a_shared_folder_passes_are_not_moved(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, saves=False)
    world.save(0)
    assert world.begin() == Start(0, None)
    assert world.fails() == Start(1, None, 3)
    assert world.passes() == ["pass-00000"]


def test_a_pass_that_the_command_line_names_is_neither_moved_nor_resumed_from(tmp_path: Path, clock: Clock) -> None:
    """The model to begin with may be a pass of an earlier job, in the same folder."""
    world = World(tmp_path, named="pass-00002")
    for number in range(3):
        world.save(number)
    assert world.begin() == Start(0, None)
    assert world.passes() == ["pass-00002"]
    world.save(0)
    assert world.fails() == Start(1, 0, 3)
    assert world.passes() == ["pass-00000", "pass-00002"]


def test_a_pass_that_was_cut_by_a_full_volume_is_moved_aside_and_trained_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.begin()
    world.save(0)
    (world.save(1) / "small").touch()
    assert world.fails() == Start(1, 0, 3)
    into = world.output / "incomplete-1"
    assert (into / "pass-00001" / "done").exists()
    assert f"moved 1 pass of an unfinished attempt to {into}; pass-00001: its file small is empty" in caplog.messages


# ---- the last pass ---------------------------------------------------------------------------------------------------


def test_the_last_pass_has_no_flaw_if_it_is_whole_or_if_there_is_none(world: World) -> None:
    world.begin()
    assert world.last_pass_flaw() is None
    (world.save(0) / "small").touch()
    world.save(1)
    assert world.last_pass_flaw() is None


def test_the_last_pass_with_an_empty_file_is_named_with_the_pass_to_train_from(world: World) -> None:
    world.begin()
    (world.save(0) / "small").touch()
    flaw = f"{world.output}/pass-00000 is not whole: its file small is empty: is the volume full? Free some space"
    assert world.last_pass_flaw() == f"{flaw} and start the job again: it then trains from the first pass on"
    world.save(0)
    (world.output / "pass-00000" / "small").unlink()
    (world.save(1) / "small").touch()
    assert str(world.last_pass_flaw()).endswith("it then trains from pass 1 on")


def test_a_last_pass_without_done_has_a_flaw_only_if_paddle_v0_has_saved_it(tmp_path: Path, clock: Clock) -> None:
    """A program for Paddle 2.x or 3.x may use folders with these names in its own way."""
    for sees_passes, flawed in ((True, True), (False, False)):
        world = World(tmp_path, sees_passes=sees_passes)
        world.save(0, done=False)
        assert bool(world.last_pass_flaw()) is flawed


def test_without_a_shared_folder_the_last_pass_is_not_examined(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, saves=False)
    world.save(0, done=False)
    assert world.last_pass_flaw() is None


# ---- a volume that fails ---------------------------------------------------------------------------------------------


def before_a_start(output: Path, cause: Cause | None) -> World:
    """Make a volume with passes to inspect and move, and with a generation to claim."""
    output.mkdir()
    world = World(output)
    if cause is not None:
        world.begin()
        world.judge(cause)
    world.save(0)
    world.save(1, done=False)
    return world


@pytest.mark.parametrize("cause", [None, FAILED])
def test_a_failure_of_the_volume_in_any_call_ends_the_job(tmp_path: Path, clock: Clock, cause: Cause | None) -> None:
    sound = before_a_start(tmp_path / "sound", cause)
    before = sound.calls
    sound.begin(cause)
    calls = sound.calls - before
    assert calls >= 3
    for call in range(calls):
        world = before_a_start(tmp_path / str(call), cause)
        world.broken_from = world.calls + call
        assert world.refused(cause) == Cause(
            CauseKind.VOLUME, 0, "pod-0", "the volume has not answered", Exit.IO_FAILED
        )


class FakeLease:
    """A lease that reports at each `acquire` whether it was acquired by this call. `other`: of a gang that has it."""

    def __init__(self, *taken: bool, other: str = "") -> None:
        self._taken = list(taken)
        self._other = other

    async def acquire(self, *, yields: bool = False) -> bool:
        if self._other:
            raise OtherGangRuns(self._other)
        return self._taken.pop(0)


def test_a_gang_joins_the_other_gang_of_its_job_that_has_the_lease(tmp_path: Path) -> None:
    world = World(tmp_path, lease=FakeLease(other="pod-1"))
    with pytest.raises(OtherGang, match="the gang of pod pod-1 trains already"):
        world.begin()


def test_a_job_that_another_gang_has_completed_is_not_trained_again(tmp_path: Path) -> None:
    """This also holds if the first access to the volume was cancelled."""
    world = World(tmp_path, lease=FakeLease(True, False))
    world.record.mark_complete()
    world.cancelled_at = 1
    with pytest.raises(asyncio.CancelledError):
        world.begin()
    with pytest.raises(AlreadyComplete):
        world.begin()


def test_the_history_continues_what_another_gang_has_written_meanwhile(tmp_path: Path) -> None:
    known = {"number": 0, "began": "", "after_pass": None, "ended": None, "first_cause": None}
    world = World(tmp_path, lease=FakeLease(True), content={"without_progress": 1, "generations": [known]})
    written = {"without_progress": 3, "generations": [known, {**known, "number": 1}]}
    Path(world.record.attempts_file).write_text(json.dumps(written))
    assert world.begin().generation == 2
    assert world.history.without_progress == 4
    assert [one["number"] for one in world.history.content()["generations"]] == [0, 1, 2]


def test_a_saved_pass_counts_although_the_lease_has_expired_meanwhile(tmp_path: Path, clock: Clock) -> None:
    """The history on the volume is older than what the hub knows, if no other gang has written it."""
    world = World(tmp_path, lease=FakeLease(True, True))
    world.begin()
    Path(world.record.attempts_file).write_text(json.dumps(world.history.content()))
    world.save(0)
    world.fails(FAILED)
    assert world.without_progress() == 1
