"""Change the size of an elastic job: the time until all trainers of the new size run.

Growing from 2 to 3 members counts from the end of the pass, shrinking from 3 to 2 from the signal.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial

from bench.jobs import MANY, job, now, shown, started
from tests.support.jobs import Job, until

RUNS = 10
ELASTIC = {
    "CONF_PADDLE_GRADIENT_NUM": "2:3",
    "LAUNCHER_MAX_RESTARTS": "3",
    "LAUNCHER_SETTLE": "2",
    "LAUNCHER_SHRINK": "now",
    "STANDIN_BATCH_SECONDS": "0.05",
}


def main() -> None:
    cases: dict[str, Callable[[], float]] = {
        "grow from 2 to 3": grow,
        "rank 2 is told to stop": partial(shrink, 2, signal.SIGTERM),
        "rank 0 is told to stop": partial(shrink, 0, signal.SIGTERM),
        "rank 2 is killed": partial(shrink, 2, signal.SIGKILL),
        "rank 0 is killed": partial(shrink, 0, signal.SIGKILL),
    }
    for name, case in cases.items():
        print(f"{name:<24} {shown([case() for _ in range(RUNS)])}", flush=True)


def grow() -> float:
    """Return the seconds from the end of the pass after which the job grew until all three trainers run."""
    with job() as three:
        three.environment |= ELASTIC
        two = (0, 1)
        begin = now()
        three.start(*two, flags=MANY)
        until(lambda: all(again(three, rank, begin) for rank in two), what=three.stderr())
        three.start(2, flags=MANY)
        until(lambda: "a new member waits" in three.stderr(), what=three.stderr())
        asked = now()
        runs: float = max(until(partial(again, three, rank, asked)) for rank in range(3))
        ended: float = until(lambda: pass_before(three, runs))
        end(three)
    return runs - ended


def shrink(rank: int, number: signal.Signals) -> float:
    """Return the seconds from the signal to a member until the trainers of the two others run again."""
    with job() as three:
        three.environment |= ELASTIC
        three.start(flags=MANY).until_training()
        begin = now()
        three.launchers[rank].send_signal(number)
        others = [other for other in range(3) if other != rank]
        runs: float = max(until(partial(again, three, other, begin)) for other in others)
        end(three)
    return runs - begin


def again(three: Job, rank: int, begin: float) -> float | None:
    """Return when the trainer was started that was started after this time, or None."""
    found = three.find(rank, "paddle_trainer")
    try:
        at = started(found.pid) if found else 0.0
    except FileNotFoundError:  # it has just ended
        return None
    return at if at > begin else None


def pass_before(three: Job, moment: float) -> float | None:
    """Return when the last pass before this moment was saved, by the clock of `now`."""
    ahead = time.time() - now()
    saved = [done.stat().st_mtime - ahead for done in three.output.glob("pass-*/done")]
    return max((at for at in saved if at < moment), default=None)


def end(three: Job) -> None:
    for launcher in three.launchers.values():
        launcher.terminate()
    three.codes()


if __name__ == "__main__":
    main()
