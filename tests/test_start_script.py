"""`docker/start.sh`, which the 2016 manifests call: the flags that its trainer gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.environments import SEED_001
from tests.support.paths import REPOSITORY


def trainer(folder: Path, *arguments: str, **environment: str) -> list[str]:
    """Return the command line of the trainer that `start.sh` would start in this folder."""
    script = folder / "start.sh"
    script.write_text((REPOSITORY / "docker" / "start.sh").read_text().replace("cd /root", f"cd {folder}"))
    program = folder / "paddle-launcher"
    program.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -m launcher plan --json "$@"\n')
    program.chmod(0o755)
    given = SEED_001 | {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)} | environment
    ended = subprocess.run(["bash", str(script), *arguments], env=given, capture_output=True, text=True, check=True)
    processes = json.loads(ended.stdout)["processes"]
    return next(list(each["argv"]) for each in processes if each["role"] == "trainer")


def test_the_trainer_gets_all_flags_of_the_log_in_the_2016_document(tmp_path: Path) -> None:
    (tmp_path / "trainer_config.py").touch()
    shown = {"--config=trainer_config.py", "--trainer_count=4", "--num_passes=10", "--use_gpu=0"}
    shown |= {"--log_period=50", "--dot_period=10", "--saving_period=1", "--local=0"}
    assert shown <= set(trainer(tmp_path))


def test_trainer_count_comes_from_the_manifest_or_from_a_flag(tmp_path: Path) -> None:
    assert "--trainer_count=2" in trainer(tmp_path, TRAINER_COUNT="2")
    flags = [word for word in trainer(tmp_path, "--trainer_count=8") if word.startswith("--trainer_count")]
    assert flags == ["--trainer_count=8"]
