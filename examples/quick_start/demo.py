"""Run a whole training on this machine: make reviews, split them into shards, train on three nodes, show the accuracy.

`make demo` runs it with a Python that has Paddle 2.6 and the launcher. Its files stay in ./demo-output.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.live.view import JobView
    from launcher.live.volume import VolumeSource

HERE = Path(__file__).parent
NODES, PASSES, EXAMPLES = 3, 8, 12_000
CTRL_C = "Ctrl-C ends all of it"
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
    say(f"3. trained by {NODES} nodes with a server and a trainer each, {PASSES} passes; {CTRL_C}")
    variables = {"JOB_NAME": job.name, "JOB_PATH": str(volume), "TRAIN_CONFIG_DIR": "quick_start"}
    program = (sys.executable, "ps.py", f"--passes={PASSES}", "--log-period=100")
    command = (*LAUNCHER, "local", "--nodes", NODES, "--launcher-mode=ps", "--", *program)
    if sys.stdout.isatty():
        run_and_show(job, *command, **variables)
    else:
        run(*command, **variables)
    say("4. the members of the job, by the files on the volume")
    run(*LAUNCHER, "status", job)
    say("5. the files that stay")
    for path in (f"output/pass-{PASSES - 1:05d}/model.pdparams", "output/node_1/train.log", "output/node_1/server.log"):
        say(f"   {job / path}")
    log = (job / "output" / "node_0" / "train.log").read_text()
    say("6. accuracy and loss: " + next(line for line in log.splitlines() if line.startswith("accuracy=")))
    say(f"7. what happened, as a page for your browser: {job / 'output' / 'report.html'}")
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


def run_and_show(job: Path, *command: object, **variables: str) -> None:
    """Run a job as `run` does, and show it as `paddle-launcher status --watch` does. Its output goes to a file."""
    from launcher.live.show import show
    from launcher.live.signals import Interrupted, ending_signals
    from launcher.live.volume import VolumeSource

    log = job.parent / "local.log"
    words = [str(word) for word in command]
    with log.open("wb") as output:
        running = subprocess.Popen(words, env={**os.environ, **variables}, stdout=output, stderr=output)
    try:
        with ending_signals():
            show(Until(VolumeSource(str(job)), running), sys.stdout, hint=CTRL_C)
    except Interrupted as interrupted:
        if interrupted.exit_code != 130:  # Ctrl-C has reached it already
            running.terminate()
        running.wait()
        sys.exit(interrupted.exit_code)
    except LookupError:
        pass
    if code := running.wait():
        say(log.read_text(errors="replace")[-4000:])
        sys.exit(code)


class Until:
    """The views of a job, until its launchers have ended. A job that could not start has no end on the volume."""

    def __init__(self, source: VolumeSource, running: subprocess.Popen[bytes]) -> None:
        self.name = source.name
        self.pause = source.pause
        self._source = source
        self._running = running

    def poll(self) -> JobView:
        has_ended = self._running.poll() is not None
        view = self._source.poll()
        if has_ended and not view.verdict:
            raise LookupError("the job has ended without a word on the volume")
        return view


if __name__ == "__main__":
    sys.exit(main())
