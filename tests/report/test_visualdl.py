"""The curves can be opened in VisualDL.

The test with the real package needs VISUALDL, the path of a Python that has visualdl: its dependencies are 390 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launcher.errors import Exit, Failure
from launcher.report import reader, visualdl
from launcher.report.facts import Facts
from tests.support.paths import REPOSITORY
from tests.support.report_jobs import MadeJob

Made = Callable[..., Facts]
_READ = """
import json, sys
from visualdl import LogReader
found = {}
for file in sys.argv[1:]:
    reader = LogReader(file_path=file)
    tags = reader.get_tags()["scalar"]
    values = {tag: [[one.id, one.value, one.timestamp] for one in reader.get_data("scalar", tag)] for tag in tags}
    found[file.split("/")[-2]] = values
print(json.dumps(found))
"""


class Writer:
    """Records what is written, in place of VisualDL's own writer."""

    written: list[tuple[str, str, int, float]]

    def __init__(self, logdir: str, display_name: str) -> None:
        self._run = os.path.basename(logdir)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_scalar(self, *, tag: str, step: int, value: float, walltime: int) -> None:
        self.written.append((self._run, tag, step, value))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int, float]]:
    Writer.written = []
    module: Any = ModuleType("visualdl")
    module.LogWriter = Writer
    monkeypatch.setitem(sys.modules, "visualdl", module)
    return Writer.written


def test_each_trainer_is_a_run_and_the_passes_are_one_more(made: Made, written: list[Any], tmp_path: Path) -> None:
    facts = made(generations=2)
    assert visualdl.export(facts, str(tmp_path)) == ["rank_0", "rank_1", "rank_2", "passes"]
    tags = {(run, tag) for run, tag, _, _ in written}
    assert ("rank_1", "examples_per_second") in tags
    losses = [value for run, tag, _, value in written if (run, tag) == ("rank_0", "loss")]
    assert losses == [sample.loss for sample in next(iter(facts.members.values())).samples]
    assert [step for run, tag, step, _ in written if (run, tag) == ("passes", "pass/loss")] == [0, 1, 2, 3, 4, 5]


def test_a_role_that_another_user_has_written_leads_to_no_other_folder(written: list[Any], tmp_path: Path) -> None:
    MadeJob(generations=1).write(tmp_path)
    for file in (tmp_path / "output").glob("**/events.jsonl"):
        file.write_text(file.read_text().replace('"both"', json.dumps(f"{tmp_path}/elsewhere/rank")))
    facts = reader.read(str(tmp_path / "output"))
    assert visualdl.export(facts, str(tmp_path / "curves")) == ["rank_0", "rank_1", "rank_2", "passes"]


def test_without_the_package_the_message_says_how_to_install_it(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "visualdl", None)
    with pytest.raises(Failure, match=r"pip install 'paddle-launcher\[visualdl\]'") as raised:
        visualdl.export(made(), str(tmp_path))
    assert raised.value.code == Exit.CONFIG


@pytest.mark.skipif("VISUALDL" not in os.environ, reason="VISUALDL is not set: a Python with the package visualdl")
def test_visualdl_reads_what_was_exported(tmp_path: Path) -> None:
    python = os.environ["VISUALDL"]
    MadeJob(generations=2).write(tmp_path / "job")
    runs = tmp_path / "runs"
    exporting = (
        "import sys; from launcher.report import reader, visualdl; "
        "print(visualdl.export(reader.read(sys.argv[1]), sys.argv[2]))"
    )
    subprocess.run([python, "-c", exporting, tmp_path / "job" / "output", runs], cwd=REPOSITORY, check=True)
    names = ["rank_0", "rank_1", "rank_2", "passes"]
    assert sorted(path.name for path in runs.iterdir()) == sorted(names)
    command = [python, "-c", _READ, *map(str, runs.glob("*/*"))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    lines = (tmp_path / "job" / "output" / "node_0" / "events.jsonl").read_text().splitlines()
    losses = [event["loss"] for event in map(json.loads, lines) if event["event"] == "numbers"]
    assert [value for _, value, _ in found["rank_0"]["loss"]] == pytest.approx(losses, rel=1e-6)
    assert [step for step, _, _ in found["passes"]["pass/loss"]] == [0, 1, 2, 3, 4, 5]
