"""Logistic regression over a bag of words, trained by processes that average their gradients after each batch.

For Paddle 3, and 2.6 as well. A batch has one part of every shard, and all its examples count the same. So the result
depends on the shards, and not on the number of processes among which they are divided, even if this number changes.
One process learns from all shards with one `--data` per shard.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import paddle
import paddle.distributed as dist
import passes
from paddle.nn.functional import cross_entropy
from reviews import Dictionary, Reviews


class Network(paddle.nn.Layer):
    """Turns the words of a batch into the scores of both labels."""

    def __init__(self, padding: int) -> None:
        super().__init__()
        nothing = paddle.ParamAttr(initializer=paddle.nn.initializer.Constant(0.0))
        self.weights = paddle.nn.Embedding(padding + 1, 2, padding_idx=padding, weight_attr=nothing)

    def forward(self, words: paddle.Tensor) -> paddle.Tensor:
        return self.weights(words).sum(axis=1)


class Trainer:
    """One process with its shards, by number. Process 0 also saves the model and prints its accuracy and loss."""

    def __init__(self, shards: Mapping[int, Path], learning_rate: float) -> None:
        self._count = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        if self._count > 1:
            dist.init_parallel_env()
        self._rank = dist.get_rank() if self._count > 1 else 0
        self._dictionary = Dictionary()
        self._shards = {number: Reviews(each / "train.txt", self._dictionary) for number, each in shards.items()}
        self._test = Reviews(next(iter(shards.values())) / "test.txt", self._dictionary)
        self._network = Network(self._dictionary.padding)
        if (weights := passes.saved_weights()) is not None:
            self._network.weights.weight.set_value(weights)
        self._parallel = paddle.DataParallel(self._network) if self._count > 1 else self._network
        self._optimizer = paddle.optimizer.SGD(learning_rate, parameters=self._network.parameters())

    def train(self, wanted: int, batch_size: int, seed: int, log_period: int) -> None:
        """Train the remaining passes.

        The sizes of shards differ a little, but all processes must have the same number of batches.
        """
        sizes = [len(shard) for shard in self._shards.values()]
        (largest,) = self._over_all([max(sizes)], dist.ReduceOp.MAX)
        batches = -(-largest // batch_size)
        own = [sum(size // batches + (batch < size % batches) for size in sizes) for batch in range(batches)]
        everywhere = self._over_all(own, dist.ReduceOp.SUM)
        for number in passes.left(wanted):
            progress = passes.Progress(number, wanted, batches, log_period)
            orders = [shard.batches(batches, (seed, number, each)) for each, shard in self._shards.items()]
            for batch, parts in enumerate(zip(*orders, strict=True)):
                progress.batch(self._learn(parts, everywhere[batch]) / own[batch], own[batch])
            progress.end()
            self.end_pass(number)
        for each, shard in self._shards.items():
            passes.say_seen(each, shard)
        self.say_accuracy()

    def end_pass(self, number: int) -> None:
        """Save the model of a pass."""
        if self._rank == 0:
            passes.save(number, self._network.weights.weight.numpy())

    def say_accuracy(self) -> None:
        if self._rank == 0:
            scores = self._network(paddle.to_tensor(self._test.words))
            passes.say_accuracy(scores.numpy(), self._test)

    def _over_all(self, values: Sequence[int], operation: int) -> list[int]:
        """Return the maximum or the sum of each value, over all processes."""
        reduced = paddle.to_tensor(list(values))
        if self._count > 1:
            dist.all_reduce(reduced, operation)
        return [int(value) for value in reduced.numpy()]

    def _learn(self, parts: Sequence[tuple[np.ndarray, np.ndarray]], everywhere: int) -> float:
        """Take one step on a batch, of which this process has these parts. Return the sum of their losses."""
        width = max(words.shape[1] for words, _ in parts)
        padding = self._dictionary.padding
        rows = [np.pad(words, ((0, 0), (0, width - words.shape[1])), constant_values=padding) for words, _ in parts]
        scores = self._parallel(paddle.to_tensor(np.concatenate(rows)))
        labels = paddle.to_tensor(np.concatenate([labels for _, labels in parts]))
        loss = cross_entropy(scores, labels, reduction="sum")
        (loss * (self._count / everywhere)).backward()  # Paddle averages over processes, not over examples
        self._optimizer.step()
        self._optimizer.clear_grad()
        return float(loss)


def main() -> None:
    parser = passes.flags(__doc__)
    parser.add_argument(
        "--data",
        action="append",
        type=Path,
        metavar="FOLDER",
        help="the shard (default: LAUNCHER_DATA_DIR, or LAUNCHER_DATA_DIRS); several for a process that trains alone",
    )
    given = parser.parse_args()
    shards = dict(enumerate(given.data)) if given.data else passes.shards()
    trainer = Trainer(shards, given.learning_rate)
    trainer.train(given.passes, given.batch_size, given.seed, given.log_period)


if __name__ == "__main__":
    main()
