"""The smallest parameter server program: one layer, eight batches.

`--sync` asks for the synchronous mode, `--no-stop` leaves fleet.stop_worker() out.
"""

import sys

import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
x = paddle.static.data("x", [None, 4], "float32")
y = paddle.static.data("y", [None, 1], "float32")
loss = paddle.mean(paddle.nn.functional.square_error_cost(paddle.static.nn.fc(x, 1), y))
strategy = fleet.DistributedStrategy()
strategy.a_sync = "--sync" not in sys.argv
fleet.distributed_optimizer(paddle.optimizer.SGD(0.02), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    for _ in range(8):
        batch = {"x": np.ones((2, 4), "float32"), "y": np.ones((2, 1), "float32")}
        (value,) = executor.run(paddle.static.default_main_program(), feed=batch, fetch_list=[loss])
    print(f"trained {fleet.worker_index()} of {fleet.worker_num()}: {float(np.mean(value)):.4f}", flush=True)
    if "--no-stop" not in sys.argv:
        fleet.stop_worker()
