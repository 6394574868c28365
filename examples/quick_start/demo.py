"""Run a whole training on this machine: make reviews, split them into shards, train on three nodes, show the accuracy.

`make demo` runs it with a Python that has Paddle 2.6 and the launcher. Its files stay in ./demo-output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NODES, PASSES, EXAMPLES = 3, 8, 12_000
LAUNCHER = (sys.executable, "-m", "launcher")


def main() -> int:
    volume = Path("demo-output").absolute()
    shutil.rmtree(volume, ignore_errors=True)
    job, source = volume / "quick-start", volume / "source"
    say(f"1. a data set: {EXAMPLES} reviews with labels, in {source}")
    run(sys.executable, HERE / "make_data.py", source, f"--examples={EXAMPLES}", "--seed=1")
    say(f"2. split into {NODES} shards, in {job}")
    made = ("--data", source / "data", "--config", source / "quick_start", "--out", job)
    run(*LAUNCHER, "shard", *made, "--count", NODES, "--anywhere")
    say(f"3. trained by {NODES} nodes with a server and a trainer each, {PASSES} passes; Ctrl-C ends all of it")
    variables = {"JOB_NAME": job.name, "JOB_PATH": str(volume), "TRAIN_CONFIG_DIR": "quick_start"}
    program = (sys.executable, "ps.py", f"--passes={PASSES}", "--log-period=100")
    run(*LAUNCHER, "local", "--nodes", NODES, "--launcher-mode=ps", "--", *program, **variables)
    say("4. the members of the job, by the files on the volume")
    run(*LAUNCHER, "status", job)
    say("5. the files that stay")
    for path in (f"output/pass-{PASSES - 1:05d}/model.pdparams", "output/node_1/train.log", "output/node_1/server.log"):
        say(f"   {job / path}")
    log = (job / "output" / "node_0" / "train.log").read_text()
    say("6. accuracy and loss: " + next(line for line in log.splitlines() if line.startswith("accuracy=")))
    say("Next: read examples/quick_start/README.md about the programs, docs/kubernetes.md about pods")
    return 0


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: object, **variables: str) -> None:
    """Run a command, and end with its exit code if it fails. Ctrl-C also reaches the command."""
    with subprocess.Popen([str(word) for word in command], env={**os.environ, **variables}) as running:
        try:
            code = running.wait()
        except KeyboardInterrupt:
            running.wait()
            sys.exit(130)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())
