"""A server, trainer or collective worker of a PaddleJob, which prints times: `job_member.py HOW`.

steps      train a few steps and end with 0
endless    train until the process is killed
a number   the same as `endless`, but trainer 1 ends with this exit code after a few steps
"""

import os
import sys
import time

BEGAN, SINCE_BOOT = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
HOW = sys.argv[1]
STEPS = 8


def report(what: str, at: float) -> None:
    print(f"BENCH {what} {at:.3f}", flush=True)


def launched() -> float:
    """Return when the container's first process was started."""
    with open("/proc/1/stat") as file:
        ticks = int(file.read().rpartition(") ")[2].split()[19])
    return BEGAN - SINCE_BOOT + ticks / os.sysconf("SC_CLK_TCK")


report("launched", launched())
report("began", BEGAN)

import paddle  # noqa: E402
from paddle import distributed  # noqa: E402
from paddle.distributed import fleet  # noqa: E402

report("imported", time.time())


def many(step: object) -> None:
    number = 0
    while HOW != "steps" or number < STEPS:
        step()  # type: ignore[operator]
        if number == 0:
            report("stepped", time.time())
        number += 1
        if number == STEPS and HOW.isdecimal() and os.environ["PADDLE_TRAINER_ID"] == "1":
            os._exit(int(HOW))
        if HOW != "steps":
            time.sleep(0.05)


def by_servers() -> None:
    import numpy as np

    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    x = paddle.static.data("x", [None, 4], "float32")
    y = paddle.static.data("y", [None, 1], "float32")
    loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(x, 1), y))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.02), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    batch = {"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "float32")}
    many(lambda: executor.run(paddle.static.default_main_program(), feed=batch, fetch_list=[loss]))
    fleet.stop_worker()


def together() -> None:
    distributed.init_parallel_env()
    many(lambda: distributed.all_reduce(paddle.to_tensor([1.0])))


if os.environ.get("PADDLE_PSERVERS_IP_PORT_LIST"):
    by_servers()
else:
    together()
