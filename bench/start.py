"""The time from the last launcher's start to its trainer's start, compared with the time until a pserver listens."""

from __future__ import annotations

import subprocess
from statistics import median

from bench.jobs import MANY, job, now, shown, started
from tests.support.jobs import until
from tests.support.nodes import listening
from tests.support.paths import STANDIN

RUNS = 10


def main() -> None:
    alone = [_pserver_alone() for _ in range(RUNS)]
    whole = [_last_launcher() for _ in range(RUNS)]
    print(f"a pserver alone, until all its ports listen: {shown(alone)}")
    print(f"the last launcher, until its trainer starts: {shown(whole)}")
    print(f"above a pserver's own time: {median(whole) - median(alone):.2f} s (aim: at most 0.60 s)")


def _pserver_alone() -> float:
    with job() as one:
        flags = [
            f"--nics={one.nodes.devices[0]}",
            "--num_gradient_servers=3",
            "--ports_num=2",
            "--ports_num_for_sparse=2",
        ]
        begin = now()
        server = one.nodes.popen([STANDIN / "paddle", "pserver", *flags], stderr=subprocess.DEVNULL)
        until(lambda: len(listening(server)) == 4)
        return now() - begin


def _last_launcher() -> float:
    with job() as three:
        three.start(0, 1, flags=MANY)
        until(lambda: "2 of 3 have joined" in three.stderr(0))
        begin = now()
        three.start(2, flags=MANY)
        log = three.output / "node_2" / "train.log"
        until(lambda: log.exists() and b"commandline" in log.read_bytes())
        return started(three.process(2, "paddle_trainer").pid) - begin


if __name__ == "__main__":
    main()
