"""Jobs on a volume with the faults of NFS: lost answers, stale handles, old lists of names, a stall of one node."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chaos import nfs
from chaos.nfs import Mount
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from tests.support.jobs import Job, fresh, until
from tests.support.nodes import Nodes
from tests.support.passes import PASSES, SIX, TRAINER, history, until_saved

WHY_NOT = nfs.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

FAULTS = ("lost 2", "stale 20", "within .launcher", "old 30")


class NfsJob(Job):
    """A job whose members mount the volume, each on its own node."""

    mounts: list[Mount]

    def variables(self, rank: int) -> dict[str, str]:
        return super().variables(rank) | {"JOB_PATH": str(self.mounts[rank].point)}

    def set_faults(self, *lines: str) -> None:
        for mount in self.mounts:
            mount.set_faults(*lines)


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nfs.build(tmp_path_factory.mktemp("nfs"))


@pytest.fixture
def job(program: Path, three_nodes: Nodes, data_volume: Path, tmp_path: Path) -> Iterator[NfsJob]:
    made = NfsJob(three_nodes, fresh(data_volume, tmp_path), tmp_path, LAUNCHER_MAX_RESTARTS="3")
    assert made.volume
    with ExitStack() as stack:
        made.mounts = [Mount(program, made.volume, tmp_path / f"mount-{rank}") for rank in range(3)]
        for mount in made.mounts:
            stack.callback(mount.close)
        stack.callback(three_nodes.end)
        yield made


def test_lost_answers_stale_handles_and_old_lists_of_names_disturb_no_job(job: NfsJob) -> None:
    """The second job begins at once, since the first job could release its lease."""
    job.set_faults(*FAULTS)
    job.hold("pass-1").start(flags=SIX)
    until_saved(job, 0)
    job.kill(1, TRAINER)
    until(lambda: history(job)[-1]["number"] == 1, what=job.stderr())
    assert job.release().codes() == [0, 0, 0], job.stderr()
    assert [one["after_pass"] for one in history(job)] == [None, 0], job.stderr()
    assert job.start(flags=SIX, LAUNCHER_JOB_ID="job-2").codes() == [0, 0, 0], job.stderr()
    assert len(history(job)) == 1
    assert job.passes() == [f"pass-{one:05d}" for one in range(PASSES)]
    assert len(list(job.output.glob("earlier-*/pass-*/done"))) == PASSES
    assert "for the end of another gang" not in job.stderr()


def test_a_hub_notices_a_later_lease_although_its_list_of_names_is_old(job: NfsJob) -> None:
    """For example, it was frozen. It must end within 6 s, but a list of names may be 60 s old."""
    job.set_faults("old 30")
    frozen, later = (LeaseFiles(str(mount.point)) for mount in job.mounts[:2])
    one, other = (LeaseOwner(f"gang-{number}", "job", f"pod-{number}", f"uid-{number}", 155.0) for number in range(2))
    assert frozen.take(0, one)
    assert frozen.renew(0, one)
    assert later.take(1, other)
    assert os.listdir(job.mounts[0].point / ".launcher" / ".leases") == ["0"]
    assert not frozen.renew(0, one)
    lease = frozen.latest()
    assert lease is not None
    assert (lease.number, lease.holder) == (1, other)


def test_a_stall_of_one_node_is_waited_for(job: NfsJob) -> None:
    job.start_in_a_pass(flags=SIX)
    job.mounts[1].set_faults("stall")
    job.release()
    until(lambda: job.passes(), what="the other members train on")
    job.mounts[1].set_faults()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert len(history(job)) == 1


def test_a_user_who_deletes_the_state_of_a_running_job_does_not_end_it(job: NfsJob) -> None:
    job.start_in_a_pass(flags=SIX)
    shutil.rmtree(job.output / ".launcher")
    until((job.output / ".launcher" / ".leases" / "0").exists, what="the lease is taken again")
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
    assert job.passes() == [f"pass-{one:05d}" for one in range(PASSES)]
    assert (job.output / ".launcher" / "job-1" / "complete").exists()
