"""For each fault, the time from the event to the exit of the last launcher: median and worst of 10 runs."""

from __future__ import annotations

import signal
from collections.abc import Callable

from bench.jobs import MANY, job, now, shown
from tests.support.jobs import Job

RUNS = 10

CASES: dict[str, Callable[[Job], object]] = {
    "trainer of rank 1 killed": lambda three: three.kill(1, "paddle_trainer"),
    "trainer of rank 0 killed": lambda three: three.kill(0, "paddle_trainer"),
    "pserver of rank 1 killed": lambda three: three.kill(1, "paddle_pserver_main"),
    "pserver of rank 0 killed": lambda three: three.kill(0, "paddle_pserver_main"),
    "launcher of rank 1 killed": lambda three: three.launchers[1].kill(),
    "launcher of rank 0 killed": lambda three: three.launchers[0].kill(),
    "SIGTERM to rank 1": lambda three: three.launchers[1].send_signal(signal.SIGTERM),
    "SIGTERM to rank 0": lambda three: three.launchers[0].send_signal(signal.SIGTERM),
}


def main() -> None:
    for name, event in CASES.items():
        took, codes = [], set()
        for _ in range(RUNS):
            with job(STANDIN_BATCH_SECONDS="0.05") as three:
                three.start(flags=MANY).until_training()
                begin = now()
                event(three)
                codes.add(tuple(three.codes()))
                took.append(now() - begin)
        print(f"{name:<26} {shown(took)}; exit codes {', '.join(map(str, sorted(codes)))}", flush=True)


if __name__ == "__main__":
    main()
