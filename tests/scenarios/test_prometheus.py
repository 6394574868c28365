"""A real Prometheus reads the metrics of a job of three members."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.jobs import Job, until
from tests.support.passes import SIX, TRAINER, until_generation, until_saved

PORTS = (9461, 9462, 9463)  # pods have a network each; here all members share one
ASK = """
import sys, urllib.request, urllib.parse
query = urllib.parse.urlencode({"query": sys.argv[1]})
print(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query?" + query, timeout=5).read().decode())
"""

needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is not installed")


def values(job: Job, query: str) -> dict[str, float]:
    """Return the newest value of a metric by rank, as Prometheus has it."""
    asked = job.nodes.run([sys.executable, "-c", ASK, query])
    if asked.returncode:
        return {}  # Prometheus does not listen yet
    found: list[dict[str, Any]] = json.loads(asked.stdout)["data"]["result"]
    return {each["metric"]["rank"]: float(each["value"][1]) for each in found}


def start_prometheus(job: Job, folder: Path) -> None:
    places = [f"{address}:{port}" for address, port in zip(job.nodes.addresses, PORTS, strict=True)]
    scraped = [{"job_name": "paddle", "scrape_interval": "100ms", "static_configs": [{"targets": places}]}]
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": scraped}))
    flags = [f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "prometheus.log").open("wb") as log:
        job.nodes.popen(["prometheus", *flags, "--web.listen-address=127.0.0.1:9090"], stdout=log, stderr=log)


@needs_prometheus
def test_prometheus_sees_phases_passes_losses_and_a_restart_of_each_member(job: Job, tmp_path: Path) -> None:
    job.environment["LAUNCHER_MAX_RESTARTS"] = "1"
    job.hold("pass-1", "pass-2")
    for rank, port in enumerate(PORTS):
        job.start(rank, flags=SIX, LAUNCHER_METRICS_PORT=str(port))
    start_prometheus(job, tmp_path)
    until_saved(job, 0)
    each = {"0": 0.0, "1": 0.0, "2": 0.0}
    until(lambda: values(job, "paddle_launcher_last_pass") == each, what=job.stderr())
    assert values(job, 'paddle_launcher_phase{phase="training"}') == dict.fromkeys(each, 1.0)
    assert values(job, "paddle_launcher_members_connected") == {"0": 3.0, "1": 2.0, "2": 2.0}
    assert all(0 < loss < 1 for loss in values(job, "paddle_launcher_loss").values())
    assert list(values(job, "paddle_launcher_lease_age_seconds")) == ["0"]
    job.kill(1, TRAINER)
    until_generation(job, 1)
    until(lambda: values(job, "paddle_launcher_restarts_total") == dict.fromkeys(each, 1.0), what=job.stderr())
    assert values(job, "paddle_launcher_generation") == dict.fromkeys(each, 1.0)
    job.release()
    assert job.codes() == [0, 0, 0], job.stderr()
