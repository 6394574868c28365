"""Logistic regression over a bag of words, trained through parameter servers by Paddle 2.6.

The same program is a server or a trainer: TRAINING_ROLE tells which. Each trainer reads shards of its own and learns
on a copy of the weights. Every few batches it sends to the servers what it learned, and gets what the others learned.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import chain, zip_longest
from pathlib import Path

os.environ.setdefault("GLOG_minloglevel", "2")  # Paddle logs every connection; errors are still shown

import numpy as np
import paddle
import passes
from paddle.base import core
from paddle.distributed import fleet
from reviews import Dictionary, Reviews


class Network:
    """A static graph from the words and labels of a batch to the scores of both labels and the loss."""

    def __init__(self, padding: int, learning_rate: float, exchange: int) -> None:
        words = paddle.static.data("words", [None, None], "int64")
        label = paddle.static.data("label", [None], "int64")
        weights = paddle.static.nn.embedding(
            words,
            (padding + 1, 2),
            is_sparse=True,
            padding_idx=padding,
            param_attr=paddle.ParamAttr(passes.WEIGHTS, initializer=paddle.nn.initializer.Constant(0.0)),
        )
        self.scores = paddle.sum(weights, axis=1)
        self.loss = paddle.mean(paddle.nn.functional.cross_entropy(self.scores, label))
        self.classify = paddle.static.default_main_program().clone(for_test=True)
        strategy = fleet.DistributedStrategy()
        strategy.a_sync = True
        # Without k_steps, Paddle 2.6 updates parameters only in train_from_dataset, which this program does not call.
        strategy.a_sync_configs = {"k_steps": exchange}
        fleet.distributed_optimizer(paddle.optimizer.SGD(learning_rate), strategy).minimize(self.loss)


class Trainer:
    """Trains on its shard. Trainer 0 also saves the model and prints its accuracy and loss."""

    def __init__(self, network: Network, dictionary: Dictionary) -> None:
        self._network = network
        self._dictionary = dictionary
        self._rank, self._count = fleet.worker_index(), fleet.worker_num()
        self._executor = paddle.static.Executor(paddle.CPUPlace())
        self._executor.run(paddle.static.default_startup_program())
        if (weights := passes.saved_weights()) is not None:
            self._weights().set(weights, paddle.CPUPlace())

    def train(self, wanted: int, batch_size: int, seed: int, log_period: int) -> None:
        """Train the remaining passes, then print the accuracy and loss of the model of all trainers."""
        folders = passes.numbered_shards(self._rank)
        shards = {number: Reviews(folder / "train.txt", self._dictionary) for number, folder in folders.items()}
        if left := passes.left(wanted):
            self._train(left, shards, batch_size, seed, log_period)
        for number, reviews in shards.items():
            passes.say_seen(number, reviews)
        if self._rank == 0:
            self._evaluate(next(iter(folders.values())))

    def _train(self, left: range, shards: dict[int, Reviews], batch_size: int, seed: int, log_period: int) -> None:
        meeting = Meeting(self._rank, self._count)
        batches = {of: -(-len(reviews) // batch_size) for of, reviews in shards.items()}
        for number in left:
            progress = passes.Progress(number, left[-1] + 1, sum(batches.values()), log_period)
            orders = (reviews.batches(batches[of], (seed, number, of)) for of, reviews in shards.items())
            for words, labels in filter(None, chain.from_iterable(zip_longest(*orders))):
                progress.batch(self._learn(words, labels), len(labels))
            progress.end()
            if self._rank == 0:
                meeting.wait_for_others()
                passes.save(number, np.array(self._weights()))
            meeting.arrive()
            if number != left[-1]:
                meeting.wait_for_all()

    def _learn(self, words: np.ndarray, labels: np.ndarray) -> float:
        (loss,) = self._executor.run(feed={"words": words, "label": labels}, fetch_list=[self._network.loss])
        return float(loss)

    def _weights(self) -> core.LoDTensor:
        """Return this trainer's copy of the weights."""
        return paddle.static.global_scope().find_var(passes.WEIGHTS).get_tensor()

    def _evaluate(self, shard: Path) -> None:
        reviews = Reviews(shard / "test.txt", self._dictionary)
        fed = {"words": reviews.words, "label": reviews.labels}
        (scores,) = self._executor.run(self._network.classify, feed=fed, fetch_list=[self._network.scores])
        passes.say_accuracy(scores, reviews)


class Meeting:
    """A barrier for trainers after a pass, since fleet's barrier needs gloo.

    Trainer 0 saves when all others have arrived, and arrives after that. So the saved model has that pass of all
    trainers, and no trainer begins the next pass before the job can resume from this one.
    """

    def __init__(self, rank: int, count: int) -> None:
        host, port = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0].rsplit(":", 1)
        self._store = core.TCPStore(host, int(port), rank == 0, 1)
        self._count = count
        self._meetings = 0

    def arrive(self) -> None:
        self._store.add("arrived", 1)
        self._meetings += 1

    def wait_for_others(self) -> None:
        """Wait for all other trainers. Trainer 0 calls this before it arrives."""
        self._wait_for((self._meetings + 1) * self._count - 1)

    def wait_for_all(self) -> None:
        self._wait_for(self._meetings * self._count)

    def _wait_for(self, arrivals: int) -> None:
        while self._store.add("arrived", 0) < arrivals:
            time.sleep(0.01)


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Hide what Paddle prints: dozens of lines about its tables, and a warning that gloo is off, as intended."""
    warnings.filterwarnings("ignore", "gloo")
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        yield


def main() -> None:
    parser = passes.flags(__doc__)
    parser.add_argument("--exchange", type=passes.count, default=4, help="batches between exchanges (default 4)")
    given = parser.parse_args()
    if not hasattr(core, "DistFleetWrapper"):
        raise SystemExit(
            f"ps.py: Paddle {paddle.__version__} has no parameter servers: install 2.6.2 (collective.py needs none)"
        )
    paddle.enable_static()
    dictionary = Dictionary()
    with _without_chatter():
        fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
        network = Network(dictionary.padding, given.learning_rate, given.exchange)
        if fleet.is_server():
            fleet.init_server()
        else:
            trainer = Trainer(network, dictionary)
            fleet.init_worker()  # trainer 0 sends its weights to the servers, from which all others get them
    if fleet.is_server():
        fleet.run_server()  # never returns: the launcher ends it after all trainers have trained
        return
    try:
        trainer.train(given.passes, given.batch_size, given.seed, given.log_period)
    finally:
        fleet.stop_worker()  # without this call Paddle crashes at the exit and changes the exit code


if __name__ == "__main__":
    main()
