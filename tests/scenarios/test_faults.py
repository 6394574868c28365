"""Every fault of docs/faults.md, with three launchers, real processes and sockets: what the user sees."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.support.jobs import FLAGS, IN_A_PASS, Job, until


def test_a_normal_run_ends_with_0_and_leaves_logs_and_models_but_no_process(job: Job) -> None:
    assert job.start().codes() == [0, 0, 0], job.stderr()
    assert job.passes() == ["pass-00000", "pass-00001"]
    for rank in range(3):
        assert b"Pass=1" in (job.output / f"node_{rank}" / "train.log").read_bytes()
        assert b"pserver started" in (job.output / f"node_{rank}" / "server.log").read_bytes()
        assert b"Pass=1" in (job.folder / f"stderr-{rank}").read_bytes()  # v0 logs there
        status = job.status(rank)
        assert (status["phase"], status["exit_code"], status["last_pass"]) == ("complete", 0, 1)
        assert "exit code 0: the job is complete" in job.termination(rank)
    assert job.nothing_left()


@pytest.mark.parametrize("peer_death", ["hang", "collapse"])
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_killed_trainer_ends_all_members_and_is_named(job: Job, culprit: int, peer_death: str) -> None:
    job.start_in_a_pass(STANDIN_ON_PEER_DEATH=peer_death)
    job.kill(culprit, "paddle_trainer")
    assert job.codes() == [137 if rank == culprit else 69 for rank in range(3)], job.stderr()
    for rank in range(3):
        assert f"rank {culprit} (pod-{culprit}): trainer" in job.termination(rank)
        assert "SIGKILL" in job.termination(rank)
        cause = job.status(rank)["first_cause"]
        assert (cause["kind"], cause["rank"], cause["code"]) == ("trainer", culprit, 137)
    assert job.nothing_left()


@pytest.mark.parametrize(("exits", "shown"), [(3, 3), (69, 70)])
def test_a_trainer_that_exits_ends_all_members_and_its_code_is_named(job: Job, exits: int, shown: int) -> None:
    job.start(0, 2).start(1, STANDIN_EXIT_AT=f"1:{exits}")
    assert job.codes() == [69, shown, 69], job.stderr()
    assert f"exit code {exits}" in job.termination(1)
    assert f"exit code {exits}" in job.termination(0)


def test_a_trainer_killed_by_a_sigterm_from_outside_is_a_failure_and_no_stop(job: Job) -> None:
    job.start_in_a_pass()
    job.kill(1, "paddle_trainer", signal.SIGTERM)
    assert job.codes() == [69, 70, 69], job.stderr()
    assert "143" in job.termination(1)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_killed_pserver_is_named_although_trainers_crashed_because_of_it(job: Job, culprit: int) -> None:
    job.start_in_a_pass()
    job.kill(culprit, "paddle_pserver_main")
    assert job.codes() == [137 if rank == culprit else 69 for rank in range(3)], job.stderr()
    assert {job.status(rank)["first_cause"]["kind"] for rank in range(3)} == {"pserver"}


def test_a_pserver_that_crashes_at_its_start_is_restarted(job: Job) -> None:
    counter = job.folder / "crashes"
    counter.write_text("2")
    job.start(0, 2).start(1, STANDIN_CRASHES_LEFT=str(counter))
    assert job.codes() == [0, 0, 0], job.stderr()
    assert counter.read_text() == "0"


def test_a_missing_shard_is_reported_to_all_members_before_any_trainer_starts(job: Job) -> None:
    (job.output.parent / "1").rename(job.output.parent / "one")
    assert job.start().codes() == [69, 66, 69], job.stderr()
    assert f"{job.output.parent}/1" in job.termination(1)
    assert "one" in job.termination(1)  # the folders that exist instead
    assert not [path for path in job.output.glob("node_*/train.log") if b"commandline" in path.read_bytes()]
    assert job.nothing_left()


def test_a_missing_configuration_is_reported_before_any_trainer_starts(job: Job) -> None:
    job.environment["TRAIN_CONFIG_DIR"] = "recommendation"
    codes = job.start().codes()
    assert set(codes) <= {66, 69}, job.stderr()
    assert 66 in codes
    assert "recommendation" in job.stderr(codes.index(66))
    assert not [path for path in job.output.glob("node_*/train.log") if b"commandline" in path.read_bytes()]


def test_a_shard_that_no_trainer_reads_ends_the_job_before_any_trainer_starts(job: Job) -> None:
    shutil.copytree(job.output.parent / "2", job.output.parent / "3")
    codes = job.start().codes()
    assert set(codes) <= {66, 69}, job.stderr()
    assert 66 in codes
    assert "4 shards for 3 trainers: no trainer of this job reads" in job.termination(codes.index(66))
    assert not [path for path in job.output.glob("node_*/train.log") if b"commandline" in path.read_bytes()]
    assert job.start(LAUNCHER_ALLOW_UNUSED_SHARDS="1").codes() == [0, 0, 0], job.stderr()
    assert "warning: 4 shards for 3 trainers" in job.stderr(0)


def test_bad_data_in_one_shard_fails_the_job_and_is_named(job: Job) -> None:
    (job.output.parent / "1" / "data" / "train.txt").write_text("no label here\n")
    codes = job.start().codes()
    assert codes[1] not in (0, 69), job.stderr()
    assert (codes[0], codes[2]) == (69, 69)


def test_the_job_starts_as_soon_as_a_late_member_has_joined(job: Job) -> None:
    job.start(0, 1)
    until(lambda: "2 of 3" in job.stderr(0), what="the hub says who is missing")
    assert "rank 2" in job.stderr(0)
    job.start(2)
    assert job.codes() == [0, 0, 0], job.stderr()


def test_a_member_that_never_starts_is_named_at_the_deadline(job: Job) -> None:
    job.environment["LAUNCHER_PEER_TIMEOUT"] = "2"
    assert job.start(0, 1).codes() == [75, 75], job.stderr()
    for rank in (0, 1):
        assert "rank 2" in job.termination(rank), job.termination(rank)
    assert job.nothing_left()


@pytest.mark.parametrize("lost", [0, 1])
def test_the_children_of_a_killed_launcher_end_and_the_job_ends(job: Job, lost: int) -> None:
    job.start_in_a_pass()
    job.launchers[lost].kill()
    codes = job.codes()
    assert codes[lost] == 137
    assert sorted(code for rank, code in enumerate(codes) if rank != lost) == [69, 76], job.stderr()
    for rank in {0, 1, 2} - {lost}:
        assert f"pod-{lost}" in job.termination(rank)
    assert job.nothing_left()


def test_a_killed_launcher_that_is_process_1_leaves_no_child(job: Job) -> None:
    job.hold(IN_A_PASS).start(0, 2)
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    job.launchers[1] = job.nodes.popen(
        [*inside, sys.executable, "-m", "launcher", "run", *FLAGS], env=job.variables(1), stderr=subprocess.DEVNULL
    )
    job.until_training()
    (process_1,) = psutil.Process(job.launchers[1].pid).children()
    process_1.kill()
    assert sorted((job.code(0), job.code(2))) == [69, 76], job.stderr()
    assert job.nothing_left()


@pytest.mark.parametrize("stopped", [0, 1])
def test_sigterm_to_one_member_stops_all_members_gracefully(job: Job, stopped: int) -> None:
    job.start_in_a_pass()
    job.launchers[stopped].terminate()
    assert job.codes() == [143 if rank == stopped else 69 for rank in range(3)], job.stderr()
    for rank in range(3):
        assert "got SIGTERM" in job.termination(rank)
    assert job.nothing_left()


def test_sigterm_to_all_members_ends_each_member_with_143(job: Job) -> None:
    job.start_in_a_pass()
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143, 143, 143], job.stderr()


@pytest.mark.parametrize("moment", range(12))
def test_sigterm_at_any_time_of_the_start_ends_with_143(job: Job, moment: int) -> None:
    job.hold(IN_A_PASS).start()
    signs = [
        lambda: True,
        lambda: job.folder.joinpath("stderr-1").stat().st_size,
        lambda: job.find(1, "paddle_pserver_main"),
        lambda: job.status(1),
        lambda: job.status(1).get("phase") == "training",
        lambda: job.find(1, "paddle_trainer"),
    ]
    until(signs[moment % len(signs)], what=f"sign {moment}")
    job.launchers[1].terminate()
    assert job.code(1) == 143, job.stderr()
    for rank in (0, 2):
        job.launchers[rank].terminate()
    assert job.nothing_left()


def test_children_that_ignore_sigterm_get_sigkill_after_the_grace_period(job: Job) -> None:
    job.environment |= {"STANDIN_DEAF": "1", "LAUNCHER_STOP_GRACE": "2"}
    job.start_in_a_pass()
    job.launchers[1].terminate()
    assert job.codes() == [69, 143, 69], job.stderr()
    assert job.nothing_left()


def test_a_second_sigterm_kills_children_that_ignore_sigterm_at_once(job: Job) -> None:
    job.environment |= {"STANDIN_DEAF": "1", "LAUNCHER_STOP_GRACE": "3600"}
    job.start_in_a_pass()
    for launcher in job.launchers.values():
        launcher.terminate()
    until(lambda: all(job.status(rank).get("phase") == "ending" for rank in range(3)))
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143, 143, 143], job.stderr()
    assert job.nothing_left()


def test_a_port_that_is_taken_is_named_above_the_abort_that_it_causes(job: Job) -> None:
    address = job.nodes.addresses[1]
    takes = f"import socket, time; s = socket.create_server(('{address}', 7165)); print('taken', flush=True)"
    holder = job.nodes.popen([sys.executable, "-c", f"{takes}; time.sleep(3600)"], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"taken\n"
    assert job.start().codes() == [69, 134, 69], job.stderr()
    what = job.status(1)["first_cause"]["what"]
    assert what.startswith("pserver (`paddle pserver`) was killed by SIGABRT (exit code 134): ERROR on binding")
    assert "Address already in use" in what
    assert "set CONF_PADDLE_PORT" in what
    assert what in job.stderr(0)


def test_a_provider_that_raises_is_named_above_the_abort_that_it_causes(job: Job) -> None:
    with (job.output.parent / "1" / "data" / "train.txt").open("a") as file:
        file.write("no label here\n")
    assert job.start().codes() == [69, 134, 69], job.stderr()
    what = job.status(1)["first_cause"]["what"]
    assert ": Python Error: <type 'exceptions.ValueError'> : not enough values to unpack" in what
    assert "dataprovider_bow.py, line " in what
    assert what in job.stderr(0)


@pytest.mark.parametrize("ranks", [(1,), (0, 1, 2)])
def test_a_shard_without_samples_ends_the_job_before_training(job: Job, ranks: tuple[int, ...]) -> None:
    for rank in ranks:
        (job.output.parent / str(rank) / "data" / "train.txt").write_text("")
    codes = job.start().codes()
    assert sorted(codes) == [66, 69, 69], job.stderr()
    first = codes.index(66)
    assert first in ranks
    for rank in range(3):
        assert f"shard of rank {first} has no samples: data/train.txt has 0 bytes" in job.termination(rank)
    assert job.nothing_left()


def test_no_start_waits_for_the_statistics_that_paddle_sends(job: Job) -> None:
    assert job.start(STANDIN_STAT_SECONDS="600").codes() == [0, 0, 0], job.stderr()


def test_status_says_for_how_long_a_killed_launcher_has_not_written(job: Job) -> None:
    job.start_in_a_pass()
    job.launchers[1].kill()
    assert job.codes() == [76, 137, 69], job.stderr()
    assert job.status(1)["phase"] == "training"
    file = job.output / "node_1" / "status.json"
    os.utime(file, (file.stat().st_atime, file.stat().st_mtime - 600))
    first, second, third = job.shown().splitlines()[1:4]
    assert "training? not written for 10 min " in second
    assert "not written" not in first + third


def test_a_complete_job_that_starts_again_does_not_train(job: Job) -> None:
    assert job.start().codes() == [0, 0, 0], job.stderr()
    written = {path: path.stat().st_mtime_ns for path in job.output.glob("pass-*/*")}
    assert job.start().codes() == [0, 0, 0], job.stderr()
    assert "complete already" in job.stderr(1)
    assert {path: path.stat().st_mtime_ns for path in job.output.glob("pass-*/*")} == written


def test_a_new_job_of_the_same_name_trains_again(job: Job) -> None:
    assert job.start().codes() == [0, 0, 0], job.stderr()
    written = {path: path.stat().st_mtime_ns for path in job.output.glob("pass-*/*")}
    job.environment["LAUNCHER_JOB_ID"] = "job-2"
    assert job.start().codes() == [0, 0, 0], job.stderr()
    assert all(path.stat().st_mtime_ns > stamp for path, stamp in written.items())


def test_the_job_is_given_up_after_the_fifth_attempt_without_progress(job: Job) -> None:
    attempts = job.output / ".launcher" / "job-1" / "attempts.json"
    assert job.start(0, 2).start(1, STANDIN_EXIT_AT="1:3").codes() == [69, 3, 69], job.stderr()
    assert json.loads(attempts.read_text())["without_progress"] == 1
    attempts.write_text('{"without_progress": 4}')
    assert job.start(0, 2).start(1, STANDIN_EXIT_AT="1:3").codes() == [71, 71, 71], job.stderr()
    assert job.start().codes() == [71, 71, 71]
    assert "5 attempts" in job.termination(1)


def test_a_finished_pass_is_progress_and_a_stop_does_not_count_as_an_attempt(job: Job) -> None:
    attempts = job.output / ".launcher" / "job-1" / "attempts.json"
    job.start_in_a_pass()
    job.launchers[2].terminate()
    job.codes()
    job.release(IN_A_PASS)
    assert json.loads(attempts.read_text())["without_progress"] == 0
    attempts.write_text('{"without_progress": 4}')
    job.hold("pass-1").start()
    until(lambda: json.loads(attempts.read_text())["without_progress"] == 0, what="a pass")
    job.kill(1, "paddle_trainer")
    assert job.codes() == [69, 137, 69], job.stderr()
    assert json.loads(attempts.read_text())["without_progress"] == 0


def test_a_stop_after_a_finished_pass_does_not_restore_the_count_of_attempts(job: Job) -> None:
    attempts = job.output / ".launcher" / "job-1" / "attempts.json"
    attempts.parent.mkdir(parents=True)
    attempts.write_text('{"without_progress": 4}')
    job.hold("pass-1").start()
    until(lambda: json.loads(attempts.read_text())["without_progress"] == 0, what="a pass")
    job.launchers[2].terminate()
    assert job.codes() == [69, 69, 143], job.stderr()
    assert json.loads(attempts.read_text())["without_progress"] == 0


def test_values_with_spaces_quotes_and_shell_characters_are_passed_unchanged(job: Job) -> None:
    """`paddle` gets the values unchanged. Paddle's script splits values at spaces, so the launcher logs a warning."""
    odd = "a b\"c'd;e$(id)`id`|f>g*"
    programs = job.folder / "programs"
    programs.mkdir()
    recorder = programs / "paddle"
    recorder.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]), flush=True)\n")
    recorder.chmod(0o755)
    path = f"{programs}:{job.variables(0)['PATH']}"
    job = Job(job.nodes, None, job.folder, 1, LAUNCHER_PEERS="", LAUNCHER_WORKDIR=str(job.folder), PATH=path)
    job.start(flags=("--config_args", odd, f"--comment={odd}"))
    assert job.codes() == [0], job.stderr()
    words = json.loads((job.folder / "stdout-0").read_text())
    assert words[-4:-1] == ["--config_args", odd, f"--comment={odd}"]
    assert "splits" in job.stderr()


def test_a_wrong_secret_is_refused_and_the_job_continues(job: Job) -> None:
    wrong = job.folder / "wrong"
    wrong.write_text("not the secret of this job")
    job.start(0, 1)
    job.start(2, LAUNCHER_SECRET_FILE=str(wrong), LAUNCHER_PEER_TIMEOUT="3")
    assert job.code(2) == 75, job.stderr()
    job.start(2)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert "secret" in job.stderr(0)


def test_without_a_volume_logs_and_status_are_in_the_work_directory(job: Job) -> None:
    job.volume = None
    for rank in range(3):
        job.variables(rank)
        source = job.output.parent
        for folder in (source / "quick_start", source / str(rank)):
            subprocess.run(["cp", "-r", f"{folder}/.", str(job.folder / f"work-{rank}")], check=True)
    assert job.start().codes() == [0, 0, 0], job.stderr()
    assert b"Pass=1" in (job.folder / "work-1" / "output" / "node_1" / "train.log").read_bytes()
    assert "no secret" in job.stderr(0)


def test_a_pserver_that_never_starts_leaves_its_log_although_no_gang_forms(job: Job) -> None:
    """No other member starts, so no member gets the failure. The log of the pserver is kept nevertheless."""
    counter = job.folder / "crashes"
    counter.write_text("99")
    job.start(1, STANDIN_CRASHES_LEFT=str(counter), LAUNCHER_PEER_TIMEOUT="3")
    assert job.code(1) == 139, job.stderr()
    assert b"SIGSEGV" in (job.output / "pod_pod-1" / "server.log").read_bytes()


def test_a_single_pod_that_starts_after_completion_ends_with_0(job: Job) -> None:
    assert job.start().codes() == [0, 0, 0], job.stderr()
    (job.output.parent / "1").rename(job.output.parent / "gone")  # so staging would fail, too
    job.start(1)
    assert job.code(1) == 0, job.stderr(1)


def test_no_folder_is_created_if_job_path_names_no_volume(job: Job) -> None:
    nowhere = job.folder / "not-mounted"
    assert job.start(JOB_PATH=str(nowhere)).codes() == [66, 66, 66], job.stderr()
    assert "JOB_PATH" in job.termination(1)
    assert not nowhere.exists()


def test_a_users_command_is_never_given_up_because_its_progress_cannot_be_seen(job: Job) -> None:
    job = Job(job.nodes, None, job.folder, 1, LAUNCHER_PEERS="", LAUNCHER_WORKDIR=str(job.folder))
    for _ in range(6):
        job.launchers[0] = job.nodes.popen(
            [sys.executable, "-m", "launcher", "run", "--", "sh", "-c", "exit 3"],
            env=job.variables(0),
            stderr=subprocess.DEVNULL,
        )
        assert job.code(0) == 3
