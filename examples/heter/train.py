"""Learn clicks from words in two stages: paddlepaddle 2.6.2 or 3.0.0, with heter workers or without.

Trainers read their shards and look up the words: stage 1. Heter workers have the dense layers: stage 2. Servers keep
all parameters. TRAINING_ROLE tells which of these a process is. Without heter workers, trainers do both stages.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

os.environ.setdefault("GLOG_minloglevel", "2")  # Paddle logs every connection; errors are still shown

import numpy as np
import paddle
from paddle.distributed import fleet

from launcher import paddle_heter, train

WORDS, WORDS_PER_LINE, WIDTH = 1000, 10, 8
DATA = Path(os.environ.get("LAUNCHER_DATA_DIR", "data")) / "train.txt"


class Network:
    """A static graph from the words and clicks of a batch to the cost."""

    def __init__(self, learning_rate: float, costs: Costs) -> None:
        self.words = paddle.static.data("words", [None, WORDS_PER_LINE], "int64")
        self.clicks = paddle.static.data("clicks", [None, 1], "int64")
        table = paddle.static.nn.embedding(self.words, (WORDS, WIDTH), is_sparse=True)
        joined = paddle.reshape(table, [-1, WORDS_PER_LINE * WIDTH])
        with paddle.static.device_guard("gpu"):  # the part of heter workers; it is called "gpu" on a CPU, too
            hidden = paddle.static.nn.fc(joined, 64, activation="relu")
            scores = paddle.static.nn.fc(hidden, 2)
            cost = paddle.mean(paddle.nn.functional.cross_entropy(scores, self.clicks))
            paddle.static.py_func(lambda value: costs.add(value), cost, None)  # only here the cost is known
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        fleet.distributed_optimizer(paddle.optimizer.Adam(learning_rate), strategy).minimize(cost)


class Costs:
    """Prints the mean cost of the last batches, every few batches."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._recent: list[float] = []
        self._batches = 0

    def add(self, cost: object) -> None:
        self._recent.append(float(np.asarray(cost)))
        self._batches += 1
        if len(self._recent) == self._period:
            train.log(step=self._batches, loss=float(np.mean(self._recent)))
            self._recent.clear()


def learn(network: Network, executor: paddle.static.Executor, passes: int, batch_size: int) -> None:
    """Go through the shard this often."""
    lines = DATA.read_text().count("\n")
    for number in range(passes):
        begun = time.monotonic()
        executor.train_from_dataset(paddle.static.default_main_program(), data_set(network, batch_size))
        speed = lines / (time.monotonic() - begun)
        print(f"Pass={number} samples={lines} examples/s={speed:.0f}", flush=True)


def data_set(network: Network, batch_size: int) -> paddle.distributed.QueueDataset:
    made = paddle.distributed.QueueDataset()
    made.init(batch_size=batch_size, thread_num=1, use_var=[network.words, network.clicks], pipe_command="cat")
    made.set_filelist([str(DATA)])
    return made


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Hide what Paddle prints: dozens of lines about its tables, and a warning that gloo is off, as intended."""
    warnings.filterwarnings("ignore")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=10, help="how often to go through the shard (default 10)")
    parser.add_argument("--batch-size", type=int, default=50, help="lines of a shard in a batch (default 50)")
    parser.add_argument("--learning-rate", type=float, default=0.01, help="of Adam (default 0.01)")
    parser.add_argument("--log-period", type=int, default=20, help="batches between lines (default 20)")
    given = parser.parse_args()
    paddle.enable_static()
    paddle_heter.repair()
    with _without_chatter():
        fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
        network = Network(given.learning_rate, Costs(given.log_period))
        if fleet.is_server():
            fleet.init_server()
        else:
            executor = paddle.static.Executor(paddle.CPUPlace())
            executor.run(paddle.static.default_startup_program())
            fleet.init_worker()
    if fleet.is_server():
        fleet.run_server()  # never returns: the launcher ends it after all trainers have trained
    elif os.environ["TRAINING_ROLE"] == "HETER_TRAINER":
        executor.train_from_dataset(paddle.static.default_main_program())  # ended by the launcher, too
    else:
        try:
            learn(network, executor, given.passes, given.batch_size)
        finally:
            fleet.stop_worker()  # without this call Paddle crashes at the exit and changes the exit code


if __name__ == "__main__":
    main()
