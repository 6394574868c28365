"""Kill a child: the time until all trainers of three members run again in the same pods, without the pause of 1 s."""

from __future__ import annotations

from functools import partial

from bench.jobs import MANY, job, now, shown, started
from tests.support.jobs import Job, until

RUNS = 10
PAUSE = 1.0  # seconds before the first restart
CASES = {
    "trainer of rank 1 killed": (1, "paddle_trainer"),
    "trainer of rank 0 killed": (0, "paddle_trainer"),
    "pserver of rank 1 killed": (1, "paddle_pserver_main"),
}


def main() -> None:
    for name, (rank, program) in CASES.items():
        above = []
        for _ in range(RUNS):
            with job(STANDIN_BATCH_SECONDS="0.05", LAUNCHER_MAX_RESTARTS="1") as three:
                three.start(flags=MANY).until_training()
                begin = now()
                three.kill(rank, program)
                above.append(max(started(until(partial(again, three, r, begin))) for r in range(3)) - begin - PAUSE)
                for launcher in three.launchers.values():
                    launcher.terminate()
                three.codes()
        print(f"{name:<26} above the pause of {PAUSE:g} s: {shown(above)}", flush=True)


def again(three: Job, rank: int, begin: float) -> int | None:
    """Return the pid of the trainer that was started after the kill, or None."""
    found = three.find(rank, "paddle_trainer")
    return found.pid if found and started(found.pid) > begin else None


if __name__ == "__main__":
    main()
