"""Submit this program as a job when it runs outside, train when it runs in a pod: paddlepaddle 2.6.2, servers."""

import os
from itertools import islice

from launcher.job import PaddleJob, dist_reader, dist_train

JOB = PaddleJob(
    job_name="plane",
    entry_point="python3 train.py",
    runtime_image="your/runtime:1",
    trainer_package_path="/example",
    pservers=2,
    trainers=3,
    memory="1G",
    cpu_nums=1,
)
PASSES, BATCH = 5, 20


def train() -> None:
    """Serve or train, depending on the launcher's variables."""
    import numpy as np
    import paddle
    from paddle.distributed import fleet

    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    point = paddle.static.data("point", [None, 2], "float32")
    height = paddle.static.data("height", [None, 1], "float32")
    predicted = paddle.static.nn.fc(point, 1)
    loss = paddle.mean(paddle.nn.functional.square_error_cost(predicted, height))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    strategy.a_sync_configs = {"k_steps": 4}  # batches between exchanges; Paddle 2.6 needs it to update parameters
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.1), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return

    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    share = dist_reader("data.csv", int(os.environ["TRAINERS"]), int(os.environ["TRAINER_ID"]))
    for number in range(PASSES):
        samples, seen = iter(share()), 0
        while batch := list(islice(samples, BATCH)):
            table = np.array(batch, "float32")
            feed = {"point": table[:, :2], "height": table[:, 2:]}
            (value,) = executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
            seen += len(batch)
        print(f"Pass={number} samples={seen} loss={float(np.mean(value)):.4g}", flush=True)
    fleet.stop_worker()


if __name__ == "__main__":
    dist_train(train, JOB)
