"""Each input of the corpus is handled: hostile inputs, inputs that the fuzzer has found, examples of all formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.job import yaml_io
from tests.fuzz.targets import TARGETS
from tests.support.paths import PADDLEJOBS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for target in TARGETS for path in (CORPUS / target).iterdir())
NOT_HANDLED_YET = {
    *("config/a-stall-timeout-that-cannot-be-sent", "config/an-endless-silence", "state/stage-of-brackets"),
    *("state/attempts-before-the-first", "state/attempts-of-brackets", "state/attempts-with-a-huge-number"),
    *("state/job-of-brackets", "state/job-of-generations-5", "state/job-of-nan"),
    *("state/lease-of-brackets", "state/lease-of-no-number", "state/lease-that-ended-before-it-began"),
    *("state/lease-that-never-ends", "state/lease-with-400-digits", "state/member-of-control-characters"),
    *("state/released-digits", "state/released-infinity", "state/released-nan", "state/released-negative"),
    *("state/secret-empty", "state/attempts-with-the-last-number"),
}


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_of_the_corpus_is_handled(path: Path, request: pytest.FixtureRequest) -> None:
    if f"{path.parent.name}/{path.name}" in NOT_HANDLED_YET:
        request.applymarker(pytest.mark.xfail)
    TARGETS[path.parent.name](path.read_bytes())


def test_every_input_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


def test_a_target_fails_if_the_launcher_does_not_handle_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_io, "dump", lambda value: "other: 1\n")
    with pytest.raises(AssertionError):
        TARGETS["yaml"]((PADDLEJOBS / "resnet.yaml").read_bytes())
