"""A worker of a job whose size changes: `elastic_worker.py FOLDER`. It runs below either launcher.

It trains passes of STEPS steps, in which all workers call all_reduce. Rank 0 saves each pass. After a start, training
resumes after the newest saved pass. Each worker writes a line to FOLDER/trace-<pid> for each step: its time, the number
of workers, the number of the step in the whole training.
"""

import os
import sys
import time

STEPS, SECONDS = 40, 0.1
FOLDER = sys.argv[1]
SIZE = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
RANK = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
SAVED = os.environ.get("LAUNCHER_SAVE_DIR") or os.path.join(FOLDER, "passes")


def saved() -> int:
    """Return the number of saved passes. This launcher names the newest one; Paddle's leaves it to the program."""
    if "LAUNCHER_SAVE_DIR" in os.environ:
        newest = os.environ.get("LAUNCHER_RESUME_DIR", "")
        return int(newest.rpartition("-")[2]) + 1 if newest else 0
    names = os.listdir(SAVED) if os.path.isdir(SAVED) else []
    return len([name for name in names if os.path.exists(os.path.join(SAVED, name, "done"))])


def save(number: int) -> None:
    folder = os.path.join(SAVED, f"pass-{number:05d}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model"), "w") as model:
        model.write(str(number))
    with open(os.path.join(folder, "done"), "w"):
        pass


def main() -> None:
    import paddle
    from paddle import distributed

    if SIZE > 1:
        distributed.init_parallel_env()
    with open(os.path.join(FOLDER, f"trace-{os.getpid()}"), "w", buffering=1) as trace:
        for number in range(saved(), 1_000_000):
            for step in range(STEPS):
                if SIZE > 1:
                    distributed.all_reduce(paddle.to_tensor([1.0]))
                trace.write(f"{time.clock_gettime(time.CLOCK_BOOTTIME)} {SIZE} {number * STEPS + step}\n")
                time.sleep(SECONDS)
            if RANK == 0:
                save(number)


main()
