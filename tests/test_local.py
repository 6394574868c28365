"""`local`: launchers on this machine, as who started them meets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_MUCH = r"head -c 40000000 /dev/zero | tr '\0' '\n'; touch ended"


def test_a_job_whose_output_nobody_reads_any_more_still_ends(tmp_path: Path) -> None:
    repository = str(Path(__file__).parent.parent)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": repository}
    command = [sys.executable, "-m", "launcher", "local", "--nodes", "1", "--", "sh", "-c", _MUCH]
    job = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert job.stdout is not None
    job.stdout.readline()
    job.stdout.close()
    try:
        assert job.wait(30) == 0
    finally:
        job.terminate()
        job.wait()
    assert (tmp_path / "ended").exists()
