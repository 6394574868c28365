"""A job whose trainer or pserver dies resumes in the same pods, after the newest complete pass."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.jobs import IN_A_PASS, Job, fresh, until
from tests.support.passes import MARK, PASSES, PSERVER, SIX, TRAINER, history, log, until_generation, until_saved


@pytest.fixture
def restarting(job: Job) -> Job:
    """Return a job that may restart."""
    job.environment |= {"LAUNCHER_MAX_RESTARTS": "5"}
    return job


def loss(job: Job) -> float:
    """Return the loss of the last model on reviews that no trainer has seen."""
    return float(re.findall(r" Test samples=\d+ cost=([0-9.e-]+)", log(job, 0))[-1])


@pytest.mark.slow
def test_a_job_with_three_kills_ends_with_all_passes_and_a_model_as_good_as_an_undisturbed_one(
    restarting: Job, data_volume: Path, tmp_path: Path
) -> None:
    job = restarting.hold("pass-1", "pass-2", "pass-3").start(flags=SIX)
    for number, (rank, program) in enumerate([(1, TRAINER), (0, PSERVER), (0, TRAINER)]):
        until_saved(job, number)
        job.kill(rank, program)
        until_generation(job, number + 1)
        job.release(f"pass-{number + 1}")
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    undisturbed = Job(job.nodes, fresh(data_volume, folder), folder)
    assert undisturbed.start(flags=SIX).codes() == [0, 0, 0], undisturbed.stderr()
    assert loss(job) == pytest.approx(loss(undisturbed), rel=0.01)
    assert job.nothing_left()


def test_logs_and_files_have_the_history_of_the_job(restarting: Job) -> None:
    job = restarting.hold("pass-2").start(flags=SIX)
    until_saved(job, 1)
    job.kill(2, TRAINER)
    until_generation(job, 1)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    first, second = history(job)
    after = second["after_pass"]
    assert (first["number"], first["after_pass"], second["number"], after) == (0, None, 1, 1)
    assert (first["first_cause"]["kind"], first["first_cause"]["rank"], first["first_cause"]["code"]) == (
        "trainer",
        2,
        137,
    )
    assert first["began"] <= first["ended"] <= second["began"] <= second["ended"]
    assert second["first_cause"] is None
    for rank in range(3):
        for name in ("train.log", "server.log"):
            assert MARK.findall(log(job, rank, name)) == [("0", ""), ("1", str(after))]
            assert f"generation 1, pod pod-{rank}, after pass {after}, because rank 2 (pod-2): " in log(job, rank, name)
        assert job.status(rank)["generation"] == 1
    shown = job.shown()
    assert re.search(rf"\n1 +\S+ +\S+ +after pass {after} ", shown), shown
    assert "rank 2 (pod-2): trainer (`paddle train`) was killed by SIGKILL" in shown


def test_no_file_is_copied_again(restarting: Job) -> None:
    job = restarting.start_in_a_pass(flags=SIX)
    copied = {path: path.stat().st_ino for path in (job.folder / "work-1" / "data").iterdir()}
    job.kill(1, TRAINER)
    until_generation(job, 1)
    (job.folder / "volume" / "quick-start" / "1").rename(job.folder / "away")
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert copied == {path: path.stat().st_ino for path in (job.folder / "work-1" / "data").iterdir()}


def test_the_same_failure_twice_before_any_pass_ends_the_job_for_good(restarting: Job) -> None:
    job = restarting.start(0, 2, flags=SIX).start(1, flags=SIX, STANDIN_EXIT_AT="1:3")
    assert job.codes() == [71, 71, 71], job.stderr()
    assert "exit code 3; given up: the same failure came twice without progress" in job.termination(0)
    assert [one["first_cause"]["code"] for one in history(job)] == [3, 3]
    assert job.nothing_left()


@pytest.mark.parametrize("code", [78, 127])
def test_an_exit_code_that_means_do_not_retry_ends_the_job(restarting: Job, code: int) -> None:
    job = restarting.start(0, 2, flags=SIX).start(1, flags=SIX, STANDIN_EXIT_AT=f"1:{code}")
    assert job.codes() == [69, 70 if code == 78 else code, 69], job.stderr()
    assert len(history(job)) == 1


def test_after_the_last_restart_the_job_ends_with_the_code_of_the_failure(restarting: Job) -> None:
    restarting.environment["LAUNCHER_MAX_RESTARTS"] = "1"
    job = restarting.hold("pass-1", "pass-2").start(flags=SIX)
    until_saved(job, 0)
    job.kill(1, TRAINER)
    until_generation(job, 1)
    job.release("pass-1")
    until_saved(job, 1)
    job.kill(1, TRAINER)
    assert job.codes() == [69, 137, 69], job.stderr()
    for rank in range(3):
        first, earlier = job.termination(rank).splitlines()[:2]
        assert "rank 1 (pod-1): trainer" in first
        assert earlier == "earlier: generation 0: the same cause"
        assert earlier in job.stderr(rank)
    assert [one["first_cause"]["code"] for one in history(job)] == [137, 137]


def test_the_whole_job_started_again_resumes_and_never_overwrites_a_complete_pass(restarting: Job) -> None:
    job = restarting.hold("pass-3").start(flags=SIX, LAUNCHER_MAX_RESTARTS="0")
    until_saved(job, 2)
    job.kill(1, TRAINER)
    assert job.codes() == [69, 137, 69], job.stderr()
    done = {path: path.stat().st_mtime_ns for path in job.output.glob("pass-*/done")}
    assert job.release().start(flags=SIX).codes() == [0, 0, 0], job.stderr()
    assert "exit code 0: the job is complete\nearlier: generation 0: rank 1 (pod-1): trainer" in job.termination(2)
    assert job.passes() == [f"pass-{number:05d}" for number in range(PASSES)]
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in done.items())
    assert [one["number"] for one in history(job)] == [0, 1]


def test_a_job_with_all_passes_saved_has_no_pass_left_to_train(restarting: Job) -> None:
    job = restarting.start(flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    (job.output / ".launcher" / "job-1" / "complete").unlink()  # as if the hub had died just before the mark
    before = log(job, 0).count("Pass=")
    assert job.start(flags=SIX).codes() == [0, 0, 0], job.stderr()
    assert log(job, 0).count("Pass=") == before
    assert job.status(1)["last_pass"] == PASSES - 1


def test_an_incomplete_pass_is_moved_to_another_folder(restarting: Job) -> None:
    job = restarting.hold("pass-1-save").start(flags=SIX)
    until_saved(job, 0)
    half = job.output / "pass-00001"
    until(lambda: half.exists() and list(half.iterdir()), what=f"a half written pass\n{job.stderr()}")
    job.kill(0, TRAINER)
    until_generation(job, 1)
    (kept,) = job.output.glob("incomplete-1/pass-00001")
    assert list(kept.iterdir())
    assert not (kept / "done").exists()
    assert f"moved 1 pass of an unfinished attempt to {kept.parent}" in job.stderr(0)
    for rank in range(3):
        job.launchers[rank].terminate()
    job.codes()


def test_a_new_job_of_the_same_name_moves_the_passes_of_the_earlier_job(restarting: Job) -> None:
    job = restarting.start(flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.start(LAUNCHER_JOB_ID="job-2").codes() == [0, 0, 0], job.stderr()
    assert job.passes() == ["pass-00000", "pass-00001"]
    (earlier,) = job.output.glob("earlier-*")
    assert len(list(earlier.glob("pass-*/done"))) == PASSES
    assert f"moved {PASSES} passes of an earlier job (pass-00000 to pass-00005) to {earlier}" in job.stderr(0)


def test_a_trainer_that_dies_whenever_it_saves_its_first_pass_ends_the_job_for_good(restarting: Job) -> None:
    """It logs the end of the pass each time, but no generation can resume after this pass."""
    job = restarting.hold("pass-0-save").start_in_a_pass(flags=SIX)
    job.release(IN_A_PASS)
    for saves in (1, 2):
        until(lambda saves=saves: log(job, 0).count("Saving parameters") == saves, what=job.stderr())  # type: ignore[misc]
        job.kill(0, TRAINER)
    assert job.codes() == [71, 71, 71], job.stderr()
    assert log(job, 0).count("Pass=0") == 2
    assert "given up: the same failure came twice without progress" in job.termination(1)


def test_the_model_to_begin_with_stays_where_the_command_line_says_it_is(restarting: Job) -> None:
    """It is a pass of an earlier job, in the same folder as the passes of the new job."""
    job = restarting.start(flags=("--config=trainer_config.lr.py", "--num_passes=3"))
    assert job.codes() == [0, 0, 0], job.stderr()
    model = job.output / "pass-00002"
    stamps = {path.name: path.stat().st_mtime_ns for path in model.iterdir()}
    flags = ("--config=trainer_config.lr.py", f"--init_model_path={model}", "--num_passes=2")
    job.hold("pass-1").start(flags=flags, LAUNCHER_JOB_ID="job-2")
    until(lambda: "Pass=0" in log(job, 0).partition("Loading parameters from")[2], what=job.stderr())
    until_saved(job, 0)
    job.kill(1, TRAINER)
    until_generation(job, 1)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert [one["after_pass"] for one in history(job)] == [None, 0]
    assert {path.name: path.stat().st_mtime_ns for path in model.iterdir()} == stamps
    (earlier,) = job.output.glob("earlier-*")
    assert sorted(path.name for path in earlier.iterdir()) == ["pass-00000", "pass-00001"]
    assert f"to get them back when this job has ended: mv {earlier}/pass-* {job.output}/" in job.stderr(0)
    assert job.passes() == ["pass-00000", "pass-00001", "pass-00002"]


def test_a_job_that_gets_sigterm_in_the_pause_before_a_restart_stops(restarting: Job) -> None:
    job = restarting.start_in_a_pass(flags=SIX)
    job.kill(1, TRAINER)
    until(lambda: job.status(2).get("phase") == "restarting", what=job.stderr())
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143, 143, 143], job.stderr()
    assert job.nothing_left()


def test_a_launcher_lost_in_the_pause_ends_a_job_that_does_not_rejoin(restarting: Job) -> None:
    restarting.environment["LAUNCHER_REJOIN_TIMEOUT"] = "0"
    job = restarting.start_in_a_pass(flags=SIX)
    job.kill(1, TRAINER)
    until(lambda: job.status(2).get("phase") == "restarting", what=job.stderr())
    job.launchers[2].kill()
    assert job.codes() == [76, 69, 137], job.stderr()
    assert job.nothing_left()


def test_a_paddle_2_or_3_program_gets_the_pass_to_resume_from(restarting: Job) -> None:
    """The program saves its passes as in docs/resume.md, and fails in the second pass."""
    program = restarting.folder / "program.py"
    program.write_text(
        """
import os, pathlib, sys
told, save = os.environ["LAUNCHER_RESUME_DIR"], pathlib.Path(os.environ["LAUNCHER_SAVE_DIR"])
print("generation", os.environ["LAUNCHER_GENERATION"], "resumes after", told or "nothing", flush=True)
if os.environ["PADDLE_TRAINER_ID"] == "0" and not told:
    folder = save / "pass-00000"
    folder.mkdir()
    (folder / "done").touch()
if not told:
    sys.exit(5)
"""
    )
    job = restarting
    job.environment |= {"LAUNCHER_MODE": "collective"}
    job.start(flags=("--", sys.executable, str(program)))
    assert job.codes() == [0, 0, 0], job.stderr()
    for rank in range(3):
        told = re.findall(r"^generation .*$", log(job, rank), re.MULTILINE)
        assert told[-1] == f"generation {len(history(job)) - 1} resumes after {job.output}/pass-00000"


def test_the_output_of_a_server_that_died_before_the_gang_was_complete_is_in_its_log(restarting: Job) -> None:
    """It crashes as often as it is tried. The other members come only then."""
    job = restarting
    counter = job.folder / "crashes"
    counter.write_text("3")  # the number of tries
    job.start(1, flags=SIX, STANDIN_CRASHES_LEFT=str(counter))
    until(lambda: "waiting up to 30 s for the gang" in job.stderr(1), what=job.stderr())
    job.start(0, 2, flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    text = log(job, 1, "server.log")
    first, last = re.findall(r"^==== .* ====$", text, re.MULTILINE)
    assert f"generation {history(job)[-1]['number']}, pod pod-1" in last
    said = text[text.index(first) : text.index(last)]
    assert said.count("commandline") == 3
