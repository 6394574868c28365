"""A worker for the benchmarks: `worker.py FOLDER HOW`.

It writes to FOLDER when it began, and when init_parallel_env has returned (except for `begins` and `stubborn`).

begins    end without an import of Paddle
stubborn  sleep without an import of Paddle, and ignore SIGTERM
meets     call init_parallel_env
waits     call init_parallel_env, then sleep
adds      call init_parallel_env, then call all_reduce for ever
a number  the same as `adds`, but rank 1 ends with this exit code
"""

import os
import sys
import time

BEGAN = time.clock_gettime(time.CLOCK_BOOTTIME)
RANK = os.environ.get("PADDLE_TRAINER_ID", "0")
FOLDER, HOW = sys.argv[1:3]


def leave(name: str, at: float) -> None:
    """Write a mark by a rename, so that readers see the complete file or no file."""
    with open(f"{FOLDER}/{name}-{RANK}.part", "w") as file:
        file.write(str(at))
    os.rename(f"{FOLDER}/{name}-{RANK}.part", f"{FOLDER}/{name}-{RANK}")


def meet_and_go_on() -> None:
    import paddle
    from paddle import distributed

    distributed.init_parallel_env()
    leave("met", time.clock_gettime(time.CLOCK_BOOTTIME))
    if HOW == "waits":
        time.sleep(300)
    if HOW.isdecimal() and RANK == "1":
        sys.exit(int(HOW))
    while HOW != "meets":
        distributed.all_reduce(paddle.to_tensor([1.0]))
        time.sleep(0.05)


if HOW == "stubborn":
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
leave("began", BEGAN)
if HOW == "stubborn":
    time.sleep(300)
elif HOW != "begins":
    meet_and_go_on()
