"""Each input of the corpus is handled: hostile inputs, inputs that the fuzzer has found, examples of all formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.job import yaml_io
from tests.fuzz.targets import TARGETS
from tests.support.paths import PADDLEJOBS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path for target in TARGETS for path in (CORPUS / target).iterdir())


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_of_the_corpus_is_handled(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())


def test_every_input_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


def test_a_target_fails_if_the_launcher_does_not_handle_an_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_io, "dump", lambda value: "other: 1\n")
    with pytest.raises(AssertionError):
        TARGETS["yaml"]((PADDLEJOBS / "resnet.yaml").read_bytes())
