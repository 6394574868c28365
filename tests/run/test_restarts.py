"""Whether the job restarts after a failure, after which pause, and when it is given up."""

from __future__ import annotations

import pytest

from launcher.gang import Verdict
from launcher.model import Cause, CauseKind
from launcher.run.restarts import MAX_ATTEMPTS, RestartPolicy

FAILED = Cause(CauseKind.TRAINER, 1, "pod-1", "ended with exit code 3", 3)
OTHER = Cause(CauseKind.TRAINER, 2, "pod-2", "was killed by SIGKILL", 137)
STALLED = Cause(CauseKind.STALLED, None, "", "the job is stalled", 72)
LOST = Cause(CauseKind.LOST, 1, "pod-1", "was lost without a message", 76)
STOPPED = Cause(CauseKind.STOPPED, 1, "pod-1", "got SIGTERM", 143)

CHILDREN = [CauseKind.TRAINER, CauseKind.PSERVER]
NEVER_IN_PLACE = [kind for kind in CauseKind if not kind.restartable and kind is not CauseKind.RESIZED]


def cause_of(kind: CauseKind, code: int = 3) -> Cause:
    return Cause(kind, 1, "pod-1", "it happened", code)


class Job:
    """A job under a policy. Time passes only where a test or a pause says so."""

    def __init__(
        self,
        max_restarts: int = 99,
        *,
        before: int = 0,
        sees_passes: bool = True,
        has_identity: bool = True,
        rejoins: bool = False,
        forgets: bool = False,
        stalled_within: float = 0.0,
    ) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self.policy = RestartPolicy(
            max_restarts,
            before,
            sees_passes=sees_passes,
            has_identity=has_identity,
            rejoins=rejoins,
            forgets=forgets,
            stalled_within=stalled_within,
        )
        self.passed = self.policy.passed

    def begin(self, cause: Cause | None = None, *, saved: bool = False) -> Cause | None:
        """Begin a generation. Return the cause if the job is given up instead."""
        given_up = self.policy.look_back(saved, self.now)
        if given_up:
            return given_up
        if cause:
            self.pauses.append(self.policy.pause(self.now))
            self.now += max(self.pauses[-1], 0)
        self.policy.begin(None, self.now)
        return None

    def judge(self, cause: Cause) -> tuple[Cause, Verdict]:
        return self.policy.judge(cause, self.now)

    def fails(self, cause: Cause = FAILED, *, saved: bool = False) -> Cause | None:
        """Fail the current generation, and begin the next generation unless the job is given up."""
        assert self.judge(cause) == (cause, Verdict.RESTART)
        return self.begin(cause, saved=saved)

    def fails_alternately(self, times: int) -> None:
        """Let generations fail, each one in another way than the one before."""
        for number in range(times):
            assert self.fails((FAILED, OTHER)[number % 2]) is None


@pytest.fixture
def job() -> Job:
    return Job()


# ---- the table -------------------------------------------------------------------------------------------------------

RESTARTS, REJOINS, STOPS, GIVES_UP = "restarts", "rejoins", "stops", "gives up"


@pytest.mark.parametrize(
    ("when", "kind", "alone", "rejoining"),
    [
        ("before the first", CauseKind.PSERVER, RESTARTS, RESTARTS),
        ("before the first", CauseKind.STALLED, STOPS, STOPS),
        ("before the first", CauseKind.STAGING, STOPS, STOPS),
        ("before the first", CauseKind.LOST, STOPS, REJOINS),
        ("before the first", CauseKind.STOPPED, STOPS, REJOINS),
        ("while one runs", CauseKind.TRAINER, RESTARTS, RESTARTS),
        ("while one runs", CauseKind.PSERVER, RESTARTS, RESTARTS),
        ("while one runs", CauseKind.STALLED, RESTARTS, RESTARTS),
        ("while one runs", CauseKind.VOLUME, RESTARTS, RESTARTS),
        ("while one runs", CauseKind.STAGING, STOPS, STOPS),
        ("while one runs", CauseKind.LOST, STOPS, REJOINS),
        ("while one runs", CauseKind.STOPPED, STOPS, REJOINS),
        ("after its pass", CauseKind.LOST, STOPS, REJOINS),
        ("after its pass", CauseKind.STOPPED, STOPS, REJOINS),
        ("between two", CauseKind.VOLUME, STOPS, STOPS),
        ("between two", CauseKind.LOST, STOPS, REJOINS),
        ("between two", CauseKind.STOPPED, STOPS, REJOINS),
        ("in the last attempt", CauseKind.TRAINER, GIVES_UP, GIVES_UP),
        ("in the last attempt", CauseKind.STAGING, GIVES_UP, GIVES_UP),
        ("in the last attempt", CauseKind.LOST, GIVES_UP, GIVES_UP),
        ("in the last attempt", CauseKind.STOPPED, STOPS, REJOINS),
    ],
)
def test_the_verdict_depends_on_the_cause_and_on_its_time(
    when: str, kind: CauseKind, alone: str, rejoining: str
) -> None:
    names = {Verdict.RESTART: RESTARTS, Verdict.REJOIN: REJOINS, Verdict.STOP: STOPS}
    for rejoins, expected in ((False, alone), (True, rejoining)):
        job = Job(rejoins=rejoins, before=MAX_ATTEMPTS - 1 if when == "in the last attempt" else 0)
        if when != "before the first":
            job.begin()
        if when == "after its pass":
            job.passed()
        if when == "between two":
            job.judge(FAILED)
        told, then = job.judge(cause_of(kind))
        assert (GIVES_UP if told.final else names[then]) == expected
        assert told.final or told == cause_of(kind)
        assert not told.final or then is Verdict.STOP


# ---- how often -------------------------------------------------------------------------------------------------------


def test_a_job_restarts_as_often_as_allowed() -> None:
    job = Job(2)
    job.begin()
    for _ in range(2):
        job.passed()
        assert job.fails() is None
    job.passed()
    assert job.judge(FAILED) == (FAILED, Verdict.STOP)


def test_a_job_without_restarts_left_is_given_up_if_new_pods_could_not_know_the_count() -> None:
    job = Job(1, forgets=True)
    job.begin()
    job.fails()
    told, then = job.judge(OTHER)
    assert (told.final, then) == (True, Verdict.STOP)
    assert told.what.endswith("given up: started again 1 times")


@pytest.mark.parametrize("forgets", [False, True])
def test_a_job_without_restarts_ends_with_its_first_failure(forgets: bool) -> None:
    job = Job(0, forgets=forgets)
    job.begin()
    assert job.judge(FAILED) == (FAILED, Verdict.STOP), "its Job alone decides whether new pods try again"


@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("code", [64, 66, 71, 77, 78, 126, 127])
def test_an_exit_code_that_means_do_not_retry_ends_the_job(job: Job, kind: CauseKind, code: int) -> None:
    job.begin()
    job.passed()
    cause = cause_of(kind, code)
    assert job.judge(cause) == (cause, Verdict.STOP)


@pytest.mark.parametrize("kind", CHILDREN)
@pytest.mark.parametrize("code", [1, 3, 69, 70, 73, 74, 75, 76, 125, 128, 134, 137, 139, 141, 143])
def test_any_other_exit_code_of_a_child_causes_a_restart(job: Job, kind: CauseKind, code: int) -> None:
    job.begin()
    cause = cause_of(kind, code)
    assert job.judge(cause) == (cause, Verdict.RESTART)


@pytest.mark.parametrize("kind", NEVER_IN_PLACE)
def test_only_the_death_of_a_child_causes_a_restart_in_the_same_pods(job: Job, kind: CauseKind) -> None:
    job.begin()
    job.passed()
    cause = cause_of(kind)
    assert job.judge(cause) == (cause, Verdict.STOP)


def test_a_change_of_size_is_no_failure_and_does_not_count_as_an_attempt(job: Job) -> None:
    for _ in range(2 * MAX_ATTEMPTS):
        job.begin()
        cause = cause_of(CauseKind.RESIZED)
        assert job.judge(cause) == (cause, Verdict.REJOIN)
        assert job.policy.look_back(False, job.now) is None


def test_a_final_cause_stays_final(job: Job) -> None:
    job.begin()
    cause = Cause(CauseKind.TRAINER, 1, "pod-1", "given up elsewhere", 1, final=True)
    assert job.judge(cause) == (cause, Verdict.STOP)


@pytest.mark.parametrize("cause", [LOST, STOPPED])
def test_a_rejoin_is_no_restart_and_has_no_pause(cause: Cause) -> None:
    job = Job(1, rejoins=True)
    for _ in range(3):
        job.begin()
        job.passed()
        assert job.judge(cause) == (cause, Verdict.REJOIN)
    assert job.pauses == []
    job.begin()
    assert job.judge(FAILED) == (FAILED, Verdict.RESTART)


def test_a_server_that_dies_in_the_pause_before_the_next_generation_is_restarted_with_it(job: Job) -> None:
    job.begin()
    job.judge(FAILED)
    assert job.policy.look_back(False, job.now) is None
    assert job.judge(cause_of(CauseKind.PSERVER)) == (cause_of(CauseKind.PSERVER), Verdict.RESTART)


# ---- after which pause -----------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute() -> None:
    job = Job(sees_passes=False)
    job.begin()
    assert job.pauses == [], "the first start has no pause"
    job.fails_alternately(8)
    assert job.pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])


@pytest.mark.parametrize("saved", [False, True])
def test_after_progress_the_pause_is_short_again(saved: bool) -> None:
    job = Job(sees_passes=False)
    job.begin()
    job.fails_alternately(5)
    if not saved:
        job.passed()
    job.fails(OTHER, saved=saved)
    job.fails_alternately(2)
    assert job.pauses == pytest.approx([1, 2, 4, 8, 16, 1, 2, 4])


def test_a_pause_begins_at_the_failure_and_not_after_all_processes_have_ended(job: Job) -> None:
    job.begin()
    job.judge(FAILED)
    job.now += 0.25
    job.begin(FAILED)
    job.judge(OTHER)
    job.now += 10
    job.begin(OTHER)
    assert job.pauses[0] == pytest.approx(0.75)
    assert job.pauses[1] <= 0


# ---- the same failure again ------------------------------------------------------------------------------------------


def test_a_job_with_the_same_failure_twice_before_any_progress_is_given_up(job: Job) -> None:
    job.begin()
    job.fails(FAILED)
    cause = job.fails(FAILED)
    assert cause is not None
    assert cause.final
    assert (cause.kind, cause.rank, cause.code) == (FAILED.kind, FAILED.rank, FAILED.code)
    assert cause.what == f"{FAILED.what}; given up: the same failure came twice without progress"


@pytest.mark.parametrize("other", [cause_of(CauseKind.TRAINER, 4), cause_of(CauseKind.PSERVER, 3)])
def test_another_exit_code_or_another_role_is_a_different_failure(job: Job, other: Cause) -> None:
    job.begin()
    assert [job.fails(cause) for cause in (FAILED, other, FAILED)] == [None, None, None]


def test_the_same_code_in_another_pod_is_the_same_failure(job: Job) -> None:
    job.begin()
    job.fails(FAILED)
    assert job.fails(Cause(FAILED.kind, 2, "pod-2", "the same elsewhere", FAILED.code)) is not None


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("when", [0, 1])
def test_the_same_failure_twice_does_not_end_the_job_if_there_was_progress(job: Job, saved: bool, when: int) -> None:
    job.begin()
    for number in range(2):
        progress = number == when
        if progress and not saved:
            job.passed()
        assert job.fails(FAILED, saved=progress and saved) is None


def test_after_progress_the_failure_of_an_earlier_generation_does_not_count(job: Job) -> None:
    job.begin()
    job.fails(FAILED)
    job.passed()
    job.fails(FAILED)
    assert job.fails(FAILED) is None, "the first one without progress since"
    assert job.fails(FAILED) is not None


@pytest.mark.parametrize("sees_passes", [False, True])
@pytest.mark.parametrize("seconds", [59, 60])
def test_a_minute_of_training_counts_as_progress_only_if_passes_cannot_be_seen(
    sees_passes: bool, seconds: float
) -> None:
    job = Job(sees_passes=sees_passes)
    job.begin()
    job.fails(FAILED)
    job.now += seconds
    assert (job.fails(FAILED) is None) == (seconds >= 60 and not sees_passes)


def test_the_silence_before_a_stall_never_counts_as_progress() -> None:
    job = Job(sees_passes=False, stalled_within=762)
    job.begin()
    for lasted in (61, 0, 59):
        job.now += lasted + 762
        given_up = job.fails(STALLED)
        assert (given_up is not None) == (lasted == 59)


# ---- attempts without progress ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CauseKind.TRAINER, CauseKind.PSERVER, CauseKind.STAGING, CauseKind.LOST])
def test_the_fifth_attempt_without_progress_is_the_last(kind: CauseKind) -> None:
    job = Job(before=MAX_ATTEMPTS - 1)
    job.begin()
    told, then = job.judge(cause_of(kind))
    assert then is Verdict.STOP
    assert (told.final, told.code) == (True, 3)
    assert told.what == "it happened; given up: 5 attempts in a row ended before their first pass was done"
    assert job.policy.without_progress == MAX_ATTEMPTS


def test_the_fourth_attempt_without_progress_is_not_the_last() -> None:
    job = Job(before=MAX_ATTEMPTS - 2)
    job.begin()
    assert job.judge(FAILED) == (FAILED, Verdict.RESTART)


def test_attempts_count_alike_in_one_gang_and_in_several_gangs(job: Job) -> None:
    job.begin()
    job.fails_alternately(4)
    told, then = job.judge(FAILED)
    assert (told.final, then) == (True, Verdict.STOP)


def test_a_pass_resets_the_count_of_attempts() -> None:
    job = Job(before=MAX_ATTEMPTS - 1)
    job.begin()
    job.passed()
    assert job.policy.without_progress == 0
    job.fails(FAILED)
    assert job.policy.without_progress == 1


def test_passes_on_the_volume_reset_the_count_although_no_launcher_saw_them() -> None:
    job = Job(before=MAX_ATTEMPTS - 2)
    job.begin()
    job.fails(FAILED, saved=True)
    assert job.policy.without_progress == 1


@pytest.mark.parametrize(("has_identity", "sees_passes"), [(False, True), (True, False)])
def test_a_job_whose_attempts_cannot_be_counted_is_never_given_up(has_identity: bool, sees_passes: bool) -> None:
    job = Job(before=MAX_ATTEMPTS - 1, has_identity=has_identity, sees_passes=sees_passes)
    job.begin()
    assert job.judge(FAILED) == (FAILED, Verdict.RESTART)


def test_a_stop_does_not_count_as_an_attempt() -> None:
    job = Job(before=MAX_ATTEMPTS - 1)
    job.begin()
    assert job.judge(STOPPED) == (STOPPED, Verdict.STOP)
    assert job.policy.without_progress == MAX_ATTEMPTS - 1


def test_a_stop_after_a_pass_leaves_the_count_at_0() -> None:
    job = Job(before=MAX_ATTEMPTS - 1)
    job.begin()
    job.passed()
    job.judge(STOPPED)
    assert job.policy.without_progress == 0


def test_a_generation_counts_as_an_attempt_as_soon_as_it_begins(job: Job) -> None:
    job.begin()
    assert job.policy.without_progress == 1


def test_a_generation_that_ends_with_a_loss_counts_as_an_attempt_but_not_one_that_is_stopped() -> None:
    job = Job(rejoins=True)
    counts = []
    for cause in (LOST, STOPPED, LOST):
        job.begin()
        counts.append(job.policy.without_progress)
        job.judge(cause)
    assert counts == [1, 2, 2]


def test_a_job_whose_members_are_lost_again_and_again_is_given_up() -> None:
    job = Job(rejoins=True)
    for _ in range(MAX_ATTEMPTS - 1):
        job.begin()
        assert job.judge(LOST) == (LOST, Verdict.REJOIN)
    job.begin()
    told, then = job.judge(LOST)
    assert (told.final, then) == (True, Verdict.STOP)


def test_a_loss_after_a_pass_leaves_no_attempt_without_progress() -> None:
    job = Job(rejoins=True)
    job.begin()
    job.judge(LOST)
    job.begin()
    job.passed()
    job.judge(LOST)
    job.begin()
    assert job.policy.without_progress == 1


def test_a_failed_attempt_counts_though_a_member_is_gone_before_the_next() -> None:
    job = Job(rejoins=True)
    job.begin()
    job.judge(FAILED)
    job.judge(LOST)
    job.begin()
    assert job.policy.without_progress == 2


@pytest.mark.parametrize("before", [MAX_ATTEMPTS - 1, MAX_ATTEMPTS - 2])
def test_a_loss_between_two_generations_counts_for_neither_generation(before: int) -> None:
    job = Job(before=before)
    if before == MAX_ATTEMPTS - 2:
        job.begin()
        job.judge(FAILED)
    count = job.policy.without_progress
    assert job.judge(LOST) == (LOST, Verdict.STOP)
    assert job.policy.without_progress == count
