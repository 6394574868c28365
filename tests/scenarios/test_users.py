"""Jobs of several users on one volume: who may go on with a job, and who cannot change or read anything of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from chaos import nfs
from launcher.data.shard import shard
from launcher.errors import Failure
from launcher.model import Member, Outcome, Roster, Shape
from launcher.report import child as report
from launcher.run import stall
from launcher.store import checkpoints
from launcher.store.events import Timeline, fold_job, fold_member
from launcher.store.failure_marks import FailureMarks
from launcher.store.journal import Journal
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.record import Record
from tests.support.jobs import JOB, Job
from tests.support.nodes import Nodes
from tests.support.passes import PASSES, SIX, until_saved
from tests.support.supervising import needs_root
from tests.support.users import NOBODY, ONE, ROOT, STRANGER, TEAM, TWO, User, below, mode, run_as, shared_folder

pytestmark = needs_root

# `make floor`: only root can make the control groups.
runs_jobs_of_users = pytest.mark.skipif(bool(os.environ.get("FLOOR")), reason="other users cannot limit their jobs")

SHAPE = Shape(2)
ROSTER = Roster(tuple(Member(f"pod-{rank}", f"uid-{rank}", "10.0.0.1", "10.0.0.1", rank) for rank in range(2)))
UMASKS = [0o022, 0o077]


def with_umask(user: User, umask: int) -> User:
    return User(user.uid, user.gid, user.groups, umask)


@pytest.fixture
def volume() -> Iterator[Path]:
    with shared_folder() as made:
        yield made


def job_folder(volume: Path, permissions: int, owner: User = ONE, gid: int | None = None) -> Path:
    """Make the folder of a job, as its user has made it."""
    folder = volume / JOB
    folder.mkdir()
    os.chown(folder, owner.uid, owner.gid if gid is None else gid)
    folder.chmod(permissions)
    return folder


# ---- every file ------------------------------------------------------------------------------------------------------


def write_every_file(output: str, job: str) -> None:
    """Write each file that a launcher keeps below the job's folder, as the next gang of the folder does."""
    record = Record(output, job)
    record.open()
    record.secret()
    history = record.history(SHAPE)
    number = 0 if history.generation is None else history.generation + 1
    while not record.claim(number, "pod-0"):
        number += 1
    history.begin(number, None, 2)
    record.mark_begun()
    record.keep_ranks(ROSTER)
    marks = FailureMarks(output, job, "trainer-0")
    marks.begin()
    marks.mark("exit code 66: no shard")
    marks.count()
    _take_and_release(record.leases, job)
    events, job_events = Timeline(fold_member), Timeline(fold_job)
    me = ROSTER.members[0]
    journal = Journal(job, output, ROSTER, me, history, record.folder, SHAPE, events, job_events)
    journal.open()
    events.add("phase", phase="training")
    journal.write_status()
    journal.write_summary(Outcome(0, None, "complete"))
    assert journal.flush(10)
    assert Record(output, job).history(SHAPE).generation == number, "a file was not written"
    fd, warning = journal.log_folder.open_log("train.log")
    os.write(fd, b"line\n")
    os.close(fd)
    assert not warning
    stall._write(os.path.join(journal.folder, stall.file_name(number)), b"evidence")
    os.makedirs(os.path.join(output, "pass-00000"))
    checkpoints.set_aside(output, [0], os.path.join(output, "earlier-1"))
    report.write(output)
    record.mark_complete()


def _take_and_release(leases: LeaseFiles, job: str) -> None:
    latest = leases.latest()
    number = latest.number + 1 if latest else 0
    me = LeaseOwner(f"gang-{job}-{number}", job, "pod-0", "uid-0", 155.0)
    assert leases.take(number, me)
    assert leases.renew(number, me)
    leases.release(me.gang, 1.0)
    released = leases.latest()
    assert released
    assert (released.holder.gang, released.is_released) == (me.gang, True)


@pytest.mark.parametrize("umask", UMASKS)
@pytest.mark.parametrize(
    ("permissions", "gid", "others"),
    [
        (0o2775, TEAM, (TWO,)),  # fsGroup
        (0o775, TEAM, (TWO,)),
        (0o2770, TEAM, (TWO,)),
        (0o777, ONE.gid, (TWO, STRANGER, ROOT)),  # a folder of NFS, as in many examples
        (0o777, 0, (TWO, STRANGER)),
    ],
    ids=lambda value: oct(value) if isinstance(value, int) else "",
)
def test_users_who_may_write_the_jobs_folder_continue_with_each_others_files(
    volume: Path, permissions: int, gid: int, others: tuple[User, ...], umask: int
) -> None:
    folder = job_folder(volume, permissions, gid=gid)
    for user in (ONE, *others, ONE):
        run_as(with_umask(user, umask), partial(write_every_file, str(folder / "output"), "job-1"))
    if permissions != 0o777:
        assert_that_it_is_closed_to(STRANGER, folder)


@pytest.mark.parametrize("umask", UMASKS)
@pytest.mark.parametrize(
    ("permissions", "gid", "strangers"),
    [
        (0o755, ONE.gid, (TWO, STRANGER)),
        (0o700, ONE.gid, (TWO, STRANGER)),
        (0o755, TEAM, (TWO, STRANGER)),
        (0o2775, TEAM, (STRANGER,)),
        (0o1777, ONE.gid, (TWO, STRANGER)),  # the sticky bit: users cannot change each other's files
    ],
    ids=lambda value: oct(value) if isinstance(value, int) else "",
)
def test_users_who_may_not_write_the_jobs_folder_can_change_nothing_and_cannot_read_the_secret(
    volume: Path, permissions: int, gid: int, strangers: tuple[User, ...], umask: int
) -> None:
    folder = job_folder(volume, permissions, gid=gid)
    run_as(with_umask(ONE, umask), partial(write_every_file, str(folder / "output"), "job-1"))
    for stranger in strangers:
        assert_that_it_is_closed_to(stranger, folder)
        with pytest.raises(Failure, match="permission") as refused:
            run_as(stranger, partial(write_every_file, str(folder / "output"), "job-1"))
        assert str(folder) in refused.value.message


def assert_that_it_is_closed_to(user: User, folder: Path) -> None:
    paths = [folder / "output", *below(folder / "output")]
    assert {path.name for path in paths} >= {"secret", "complete", "begun", "attempts.json", "roster.json", "job.json"}
    assert {path.name for path in paths} >= {"status.json", "train.log", "generation-0", "0", "0.over", "trainer-0"}
    writable = run_as(user, lambda: [str(path) for path in paths if os.access(path, os.W_OK)])
    assert not writable
    secrets = run_as(user, lambda: [str(path) for path in paths if path.name == "secret" and os.access(path, os.R_OK)])
    assert not secrets


@pytest.mark.skipif(bool(nfs.why_not()), reason=nfs.why_not())
@pytest.mark.parametrize("umask", UMASKS)
def test_root_writes_every_file_where_the_server_takes_root_for_nobody(volume: Path, umask: int) -> None:
    folder = job_folder(volume, 0o2775, owner=NOBODY, gid=NOBODY.gid)
    mount = nfs.Mount(nfs.build(volume), folder, volume / "mounted", squashes_root=True)
    try:
        for job in ("job-1", "job-1", "job-2"):
            run_as(with_umask(ROOT, umask), partial(write_every_file, str(mount.point / "output"), job))
    finally:
        mount.close()
    assert {path.stat().st_uid for path in below(folder)} == {NOBODY.uid}
    assert_that_it_is_closed_to(STRANGER, folder)
    secrets = [mode(path) for path in below(folder) if path.name == "secret"]
    assert secrets == [0o660, 0o660]


def test_every_file_can_be_written_on_a_volume_without_execution(volume: Path) -> None:
    """Volumes of shared clusters are often mounted with noexec, nosuid and nodev."""
    point = volume / "mounted"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec,nosuid,nodev,mode=755", "tmpfs", point], check=True)
    try:
        folder = job_folder(point, 0o2775, gid=TEAM)
        for user in (ONE, TWO):
            run_as(user, partial(write_every_file, str(folder / "output"), "job-1"))
    finally:
        subprocess.run(["umount", "-l", point], check=True)


@pytest.mark.parametrize("umask", UMASKS)
def test_shards_can_be_changed_only_by_users_who_may_write_the_jobs_folder(volume: Path, umask: int) -> None:
    """Even if the data set is writable for all, as the files of an image may be."""
    data = volume / "data-set"
    (data / "sub").mkdir(parents=True)
    for path in (data / "train.txt", data / "sub" / "provider.py"):
        path.write_text("1\n2\n")
        path.chmod(0o666)
    for path in (data, data / "sub"):
        path.chmod(0o777)
    folder = job_folder(volume, 0o755)

    def split() -> None:
        shard(str(data), str(data / "sub"), str(folder), 2, line_files=None)

    run_as(with_umask(ONE, umask), split)
    paths = below(folder)
    assert {path.name for path in paths} >= {"0", "1", "data", "train.txt", "provider.py", "output"}
    writable = run_as(STRANGER, lambda: [str(path) for path in paths if os.access(path, os.W_OK)])
    assert not writable


# ---- whole jobs ------------------------------------------------------------------------------------------------------


# Where other users cannot enter the folder of Python, their launchers may read everything, but not write more.
READS_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def as_user(user: User, *more: str) -> tuple[str, ...]:
    """Return a command that runs another command as this user."""
    groups = ",".join(map(str, user.groups)) or str(user.gid)
    return ("setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", f"--groups={groups}", *more, "--")


def launched_by(user: User, job: Job) -> Job:
    """Let this user start the launchers of a job."""
    start_another = "import launcher, subprocess, sys; subprocess.run([sys.executable, '--version'], check=True)"
    started = subprocess.run([*as_user(user), sys.executable, "-c", start_another], check=False, capture_output=True)
    can_read = started.returncode == 0
    job.prefix = as_user(user, *(() if can_read else READS_ALL))
    for rank in range(job.size):
        job.variables(rank)  # makes the work directory
        for path in (job.folder / f"work-{rank}", *below(job.folder / f"work-{rank}")):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
        os.chown(job.folder / f"termination-{rank}", user.uid, user.gid)
    return job


@pytest.fixture
def shared_job(volume: Path, three_nodes: Nodes, data_volume: Path) -> Job:
    """A job on a volume that all users can reach, in a folder with a common group."""
    place = volume / "volume"
    subprocess.run(["cp", "-r", data_volume, place], check=True)
    place.chmod(0o755)
    for path in (place / JOB, *below(place / JOB)):
        os.chown(path, ONE.uid, TEAM)
        path.chmod(0o2775 if path.is_dir() else 0o664)
    return Job(three_nodes, place, volume, HOME="/nonexistent")


@runs_jobs_of_users
def test_a_user_of_the_same_group_resumes_the_job_of_another_user(shared_job: Job) -> None:
    job = launched_by(ONE, shared_job).hold("pass-1")
    job.start(flags=SIX)
    until_saved(job, 0)
    for launcher in job.launchers.values():
        launcher.terminate()
    assert job.codes() == [143, 143, 143], job.stderr()
    launched_by(TWO, job).release().start(flags=SIX)
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.passes() == [f"pass-{one:05d}" for one in range(PASSES)]
    logs = [job.output / f"node_{rank}" / "train.log" for rank in range(3)]
    assert all("after pass 0" in log.read_text() for log in logs)


@runs_jobs_of_users
@pytest.mark.parametrize("planted", ["a link", "a second name"])
def test_a_link_that_another_user_puts_in_place_of_a_file_never_reaches_the_victims_program(
    shared_job: Job, planted: str
) -> None:
    """The volume is writable for all, so the other user can put links everywhere. The program is elsewhere."""
    job = launched_by(ONE, shared_job)
    job.environment["LAUNCHER_HTML_REPORT"] = "1"
    for folder in (job.output.parent, job.output):
        folder.chmod(0o777)
    assert job.start().codes() == [0, 0, 0], job.stderr()
    program = job.folder / "train.sh"
    program.write_text("echo\n")
    os.chown(program, ONE.uid, ONE.gid)
    program.chmod(0o755)
    plant: Callable[[Path], None] = (
        (lambda path: path.symlink_to(program)) if planted == "a link" else (lambda path: os.link(program, path))
    )
    files = [path for path in below(job.output) if path.is_file() and path.parent.name.startswith("node_")]
    assert {path.name for path in files} == {"train.log", "server.log", "status.json", "events.jsonl"}

    def replace_all() -> None:
        for path in [*files, job.output / "job.json", job.output / "events.jsonl", job.output / "report.html"]:
            path.unlink()
            if planted == "a link":
                plant(path)

    run_as(STRANGER, replace_all)
    if planted == "a second name":  # the kernel of this machine may forbid it to users, but other servers do not
        for path in [*files, job.output / "job.json", job.output / "events.jsonl", job.output / "report.html"]:
            plant(path)
    assert job.start(LAUNCHER_JOB_ID="job-2").codes() == [0, 0, 0], job.stderr()
    assert (program.read_text(), mode(program)) == ("echo\n", 0o755)
    assert "did another user make it?" in job.stderr()
    assert "Pass=1" in (job.output / "node_0" / "train.log").read_text()
