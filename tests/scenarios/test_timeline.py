"""The timeline has what happened to a job, and makes the same status files when it is replayed."""

from __future__ import annotations

import signal

from tests.support.jobs import Job, until
from tests.support.passes import PSERVER, SIX, TRAINER, until_generation, until_saved
from tests.support.timeline import check_replay, named, timeline


def test_the_timeline_of_an_undisturbed_job_has_each_step(job: Job) -> None:
    job.environment["LAUNCHER_HTML_REPORT"] = "1"
    assert job.start().codes() == [0, 0, 0], job.stderr()
    of_job = [event["event"] for event in timeline(job.output)]
    assert of_job == ["gang", "generation_begun", "pass", "pass", "generation_ended", "ended"]
    for rank in range(3):
        mine = timeline(job.output / f"node_{rank}")
        assert [each["phase"] for each in mine if each["event"] == "phase"] == [
            *("starting", "starting", "training", "trained", "finishing", "complete")
        ]
        assert [each["pass"] for each in mine if each["event"] == "pass"] == [0, 1]
        names = [each["event"] for each in mine]
        assert names.index("staging_begun") < names.index("staging_ended") < names.index("process_ended")
        assert next(each for each in mine if each["event"] == "staging_ended")["bytes"] > 0
    check_replay(job.output)
    assert (job.output / "report.html").read_text().startswith("<!doctype html>")


def test_three_kills_and_a_lost_pod_are_in_the_timeline_which_makes_the_same_files(job: Job) -> None:
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "5"}
    job.hold("pass-1", "pass-2", "pass-3", "pass-4").start(flags=SIX)
    for number, (rank, program) in enumerate([(1, TRAINER), (0, PSERVER), (2, TRAINER)]):
        until_saved(job, number)
        job.kill(rank, program)
        until_generation(job, number + 1)
        job.release(f"pass-{number + 1}")
    until_saved(job, 3)
    job.launchers[2].send_signal(signal.SIGKILL)
    assert job.code(2) == 137
    for rank in (0, 1):
        until(lambda: job.status(rank).get("phase") == "gathering", what=job.stderr())  # noqa: B023
    job.release().start(2, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()

    ended = named(job.output, "generation_ended")
    causes = [each["generation"]["first_cause"] for each in ended]
    kinds = [cause and (cause["kind"], cause["rank"]) for cause in causes]
    assert list(dict.fromkeys(kinds)) == [("trainer", 1), ("pserver", 0), ("trainer", 2), ("lost", 2), None]
    assert [each["peer"]["pod"] for each in named(job.output, "peer_lost")] == ["pod-2"]
    assert len(named(job.output, "gang")) == 2
    ended = named(job.output / "node_1", "process_ended")
    assert [(each["process"], each["generation"]) for each in ended if each["exit_code"] == 137] == [("trainer", 0)]
    check_replay(job.output)


def test_a_stop_is_in_the_timeline_of_each_member_that_got_it(job: Job) -> None:
    job.start_in_a_pass()
    job.launchers[1].send_signal(signal.SIGTERM)
    assert job.codes() == [69, 143, 69], job.stderr()
    assert named(job.output / "node_1", "stop_requested")
    assert not named(job.output / "node_0", "stop_requested")
    (ended,) = named(job.output, "ended")
    assert ended["first_cause"]["kind"] == "stopped"
    check_replay(job.output)
