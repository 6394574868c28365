"""The page with the results of a run of the end-to-end tests: one row per case."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping

import pytest

from tests.e2e.cluster import kubectl

_RESULTS = ("passed", "failed", "error", "skipped")


def rows(stats: Mapping[str, Iterable[object]]) -> list[tuple[str, str, float]]:
    """Return one row per case: name, result, seconds of setup, call and teardown. Sorted by file and name."""
    seconds: dict[str, float] = {}
    results: dict[str, str] = {}
    for outcome in ("", *_RESULTS):
        for report in stats.get(outcome, ()):
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
                if outcome:
                    results[report.nodeid] = outcome
    return [(_in_words(case), result, seconds[case]) for case, result in sorted(results.items())]


def page(found: list[tuple[str, str, float]], took: float, workers: int) -> str:
    """Return the table as a page of the docs."""
    version = json.loads(kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    nodes = len(json.loads(kubectl("get", "nodes", "-o", "json"))["items"])
    total = sum(seconds for _, _, seconds in found)
    lines = [
        "# Results of the end-to-end tests",
        "",
        f"Run on {time.strftime('%Y-%m-%d')} by `make e2e TABLE=docs/e2e.md`: Kubernetes {version}, {nodes} nodes, "
        f"{len(found)} cases in {took:.0f} s, "
        f"{workers} at a time ({total:.0f} s one after another), each in a namespace of its own.",
        "",
        "| case | result | seconds |",
        "|---|---|---|",
        *(f"| {case} | {result} | {seconds:.1f} |" for case, result, seconds in found),
    ]
    return "\n".join(lines) + "\n"


def _in_words(nodeid: str) -> str:
    """Return `job: a thing (x)` for tests/e2e/test_job.py::test_a_thing[x]."""
    file, _, name = nodeid.partition("::")
    name, _, parameters = name.partition("[")
    room = file.rpartition("/")[2].removeprefix("test_").removesuffix(".py")
    words = name.removeprefix("test_").replace("_", " ")
    return f"{room}: {words}" + (f" ({parameters.rstrip(']')})" if parameters else "")
