"""A training from beginning to end: a small data set, cut into shards, trained by three nodes on this machine, checked.

It uses the stand-in for Paddle v0 in tests/standin, and leaves what it made in ./demo-output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
STANDIN = HERE / "standin"
NODES = 3
PASSES = 5
LAUNCHER = [sys.executable, "-m", "launcher"]


def main() -> int:
    volume = Path("demo-output").absolute()
    shutil.rmtree(volume, ignore_errors=True)
    job = volume / "quick-start"
    print(f"1. a small data set: reviews with labels, in {volume}/source", flush=True)
    run([sys.executable, STANDIN / "dataset.py", volume / "source", "--lines", "3000", "--seed", "1"])
    print(f"2. cut into {NODES} shards, in {job}", flush=True)
    source = volume / "source"
    run([*LAUNCHER, "shard", "--data", source / "data", "--config", source / "quick_start", "--out", job,
         "--count", str(NODES), "--anywhere"])  # fmt: skip
    print(f"3. trained by {NODES} nodes of pserver and trainer, {PASSES} passes", flush=True)
    environment = {
        **os.environ,
        "PATH": f"{STANDIN}{os.pathsep}{os.environ['PATH']}",
        "JOB_NAME": "quick-start",
        "JOB_PATH": str(volume),
        "TRAIN_CONFIG_DIR": "quick_start",
    }
    words = [
        "local",
        "--nodes",
        str(NODES),
        "--config=trainer_config.lr.py",
        f"--num_passes={PASSES}",
        "--log_period=5",
    ]
    run([*LAUNCHER, *words], env=environment)
    print("4. what the volume says about the job", flush=True)
    run([*LAUNCHER, "status", job])
    print("5. the trained model on reviews that no trainer has seen", flush=True)
    model = job / "output" / f"pass-{PASSES - 1:05d}"
    run([sys.executable, STANDIN / "evaluate.py", model, job / "0" / "data" / "test.txt"])
    print(f"models, logs and status are in {job}/output", flush=True)
    return 0


def run(command: list[str | Path], env: dict[str, str] | None = None) -> None:
    ended = subprocess.run([str(word) for word in command], env=env, check=False)
    if ended.returncode:
        sys.exit(ended.returncode)


if __name__ == "__main__":
    sys.exit(main())
