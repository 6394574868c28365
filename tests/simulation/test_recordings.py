"""The launchers of whole jobs behave in named scenarios as recorded.

RECORD=1 writes the recordings again. Check what has changed in them before you commit them.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation import machines
from tests.simulation.scenarios import SCENARIOS

RECORDINGS = Path(__file__).parent / "recordings"
RECORD = os.environ.get("RECORD") == "1"


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        machines.move_in(patch)
        yield


@pytest.mark.parametrize("name", SCENARIOS)
def test_launchers_behave_as_recorded(name: str) -> None:
    with machines.folder() as folder:
        seen = SCENARIOS[name].record(folder)
    path = RECORDINGS / f"{name}.txt"
    if RECORD:
        path.write_text(seen)
    kept = path.read_text()
    difference = difflib.unified_diff(kept.splitlines(), seen.splitlines(), "recorded", "seen", lineterm="", n=6)
    assert seen == kept, f"{name} is not what was recorded (RECORD=1 keeps it):\n" + "\n".join(difference)


def test_every_scenario_has_a_recording_and_every_recording_a_scenario() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.txt")} == set(SCENARIOS)
