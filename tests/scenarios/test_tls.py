"""Whole jobs whose launchers have certificates."""

from __future__ import annotations

from pathlib import Path

from launcher.errors import Exit
from tests.support.certificates import CertificateAuthority
from tests.support.jobs import Job
from tests.support.passes import PSERVER, TRAINER


def test_a_job_with_certificates_trains_to_the_end(job: Job, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "authority")
    for rank in range(job.size):
        folder = authority.issue(tmp_path / f"tls-{rank}")
        job.start(rank, LAUNCHER_TLS_DIR=str(folder))
    assert job.codes() == [0, 0, 0], job.stderr()
    assert "refused" not in job.stderr()
    assert job.nothing_left()


def test_an_expired_certificate_ends_its_member_before_anything_starts(job: Job, tmp_path: Path) -> None:
    folder = CertificateAuthority(tmp_path / "authority").issue(tmp_path / "tls", days=-1)
    job.start(0, LAUNCHER_TLS_DIR=str(folder))
    assert job.code(0) == Exit.CONFIG
    assert f"LAUNCHER_TLS_DIR: {folder}/tls.crt: certificate has expired" in job.termination(0)
    assert not job.find(0, PSERVER)
    assert not job.find(0, TRAINER)
