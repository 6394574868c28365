"""Run the fuzzer on one target: `python -m tests.fuzz.child TARGET`, followed by arguments of libFuzzer."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["launcher"]):
    from tests.fuzz.targets import TARGETS

_, target, *arguments = sys.argv
atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
atheris.Fuzz()
