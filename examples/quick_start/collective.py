"""Logistic regression over a bag of words, trained by processes that average their gradients after each batch.

For Paddle 3, and 2.6 as well. N processes with one shard each learn what one process learns from all N shards, given
by one `--data` per shard. A batch has one part of every shard, and all its examples count the same. So the number of
processes may change between two passes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
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
    """One process with its shards. Process 0 also saves the model and prints its accuracy and loss."""

    def __init__(self, shards: Sequence[Path], learning_rate: float) -> None:
        self._count = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
        if self._count > 1:
            dist.init_parallel_env()
        self._rank = dist.get_rank() if self._count > 1 else 0
        self._dictionary = Dictionary()
        numbered = passes.numbered_shards(self._rank, shards)
        self._shards = {number: Reviews(shard / "train.txt", self._dictionary) for number, shard in numbered.items()}
        self._test = Reviews(next(iter(numbered.values())) / "test.txt", self._dictionary)
        self._network = Network(self._dictionary.padding)
        if (weights := passes.saved_weights()) is not None:
            self._network.weights.weight.set_value(weights)
        self._parallel = paddle.DataParallel(self._network) if self._count > 1 else self._network
        self._optimizer = paddle.optimizer.SGD(learning_rate, parameters=self._network.parameters())

    def train(self, wanted: int, batch_size: int, seed: int, log_period: int) -> None:
        """Train the remaining passes.

        The sizes of shards differ a little, but all processes must have the same number of batches.
        """
        sizes = self._sizes_everywhere()
        batches = -(-max(sizes) // batch_size)
        for number in passes.left(wanted):
            progress = passes.Progress(number, wanted, batches, log_period)
            orders = [shard.batches(batches, (seed, number, of)) for of, shard in self._shards.items()]
            for batch, parts in enumerate(zip(*orders, strict=True)):
                everywhere = sum(size // batches + (batch < size % batches) for size in sizes)
                here = sum(len(labels) for _, labels in parts)
                progress.batch(self._learn(parts, everywhere) / here, here)
            progress.end()
            if self._rank == 0:
                passes.save(number, self._network.weights.weight.numpy())
        for of, shard in self._shards.items():
            passes.say_seen(of, shard)
        if self._rank == 0:
            scores = self._network(paddle.to_tensor(self._test.words))
            passes.say_accuracy(scores.numpy(), self._test)

    def _sizes_everywhere(self) -> list[int]:
        """Return the sizes of all shards of the job."""
        own = [len(shard) for shard in self._shards.values()]
        if self._count == 1:
            return own
        most = max(int(count) for count in self._from_all([len(own)]))
        sizes = self._from_all(own + [0] * (most - len(own)))  # all processes must send as many numbers
        return [size for size in sizes if size]

    def _from_all(self, numbers: list[int]) -> list[int]:
        gathered: list[paddle.Tensor] = []
        dist.all_gather(gathered, paddle.to_tensor(numbers))
        return [int(number) for each in gathered for number in each]

    def _learn(self, parts: Sequence[tuple[np.ndarray, np.ndarray]], everywhere: int) -> float:
        """Take one step on a batch, of which this process has these parts. Return the sum of their losses."""
        losses = [
            cross_entropy(self._parallel(paddle.to_tensor(words)), paddle.to_tensor(labels), reduction="sum")
            for words, labels in parts
        ]
        loss = paddle.add_n(losses)
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
        help="the shard (default: LAUNCHER_DATA_DIRS or LAUNCHER_DATA_DIR); several for a process that trains alone",
    )
    given = parser.parse_args()
    trainer = Trainer(given.data or [], given.learning_rate)
    trainer.train(given.passes, given.batch_size, given.seed, given.log_period)


if __name__ == "__main__":
    main()
