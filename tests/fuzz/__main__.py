"""Fuzz what the launcher reads from others. `make fuzz` runs all targets, one after the other.

    python -m tests.fuzz --seconds 180                 all targets, for 180 s together
    python -m tests.fuzz --seconds 3600 yaml           one target
    python -m tests.fuzz --input FILE yaml             play one input again, without the fuzzer

The inputs of tests/fuzz/corpus are the beginning. New inputs are kept in .cache/fuzz, and begin the next run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.support.paths import PADDLEJOBS, REPOSITORY

CORPUS = Path(__file__).parent / "corpus"
_KEPT = REPOSITORY / ".cache" / "fuzz"
_MORE_SEEDS = {"yaml": [PADDLEJOBS]}
_LONGEST_INPUT = 8192  # bytes
_SLOWEST_INPUT = 10  # seconds, on a busy machine


def fuzz(target: str, seconds: int, seed: int | None) -> bool:
    """Run the fuzzer on one target. Return whether it found no input that the launcher does not handle."""
    kept, found = _KEPT / target, _KEPT / "found"
    for folder in (kept, found):
        folder.mkdir(parents=True, exist_ok=True)
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.child", target, str(kept), str(CORPUS / target)),
            *map(str, _MORE_SEEDS.get(target, [])),
            *(f"-max_total_time={seconds}", f"-max_len={_LONGEST_INPUT}", f"-timeout={_SLOWEST_INPUT}"),
            *("-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={found}/{target}-"),
            *([] if seed is None else [f"-seed={seed}"]),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    units = re.search(r"number_of_executed_units: (\d+)", ended.stdout)
    print(f"{target}: {units[1] if units else 'an unknown number of'} inputs in {seconds} s", flush=True)
    if ended.returncode == 0:
        return True
    artifact = re.search(r"Test unit written to (\S+)", ended.stdout)
    print(ended.stdout[-5000:])
    if artifact:
        print(f"{target}: play this input again: {sys.executable} -m tests.fuzz --input {artifact[1]} {target}")
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=180, help="for all targets together")
    parser.add_argument("--seed", type=int, help="of the random numbers")
    parser.add_argument("--input", type=Path, help="play this file once, without the fuzzer")
    parser.add_argument("target", nargs="*", choices=[*TARGETS, []], default=[])
    given = parser.parse_args()
    targets = given.target or list(TARGETS)
    if given.input:
        for target in targets:
            TARGETS[target](given.input.read_bytes())
        return 0
    each = max(1, given.seconds // len(targets))
    results = [fuzz(target, each, given.seed) for target in targets]
    return os.EX_OK if all(results) else 1


sys.exit(main())
