"""Reviews as numbers: each is the set of its words, and a label."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

UNKNOWN_WORD = 0
DICTIONARY = Path(__file__).with_name("dict.txt")  # beside the programs, since servers need it too and get no shard


class Dictionary:
    """The words of dict.txt. `padding` is a number that no word has. It fills rows of words to the same length."""

    def __init__(self) -> None:
        self._numbers = {word: number for number, word in enumerate(DICTIONARY.read_text().split())}
        self.padding = len(self._numbers)

    def numbers(self, words: str) -> list[int]:
        return sorted({self._numbers.get(word, UNKNOWN_WORD) for word in words.split()})


class Reviews:
    """One file of reviews, with a count of how often each review was used."""

    def __init__(self, file: Path, dictionary: Dictionary) -> None:
        content = file.read_bytes()
        self.digest = hashlib.sha256(content).hexdigest()
        pairs = [line.split("\t") for line in content.decode().splitlines()]
        rows = [dictionary.numbers(words) for _, words in pairs]
        self.words = np.full((len(rows), max(map(len, rows))), dictionary.padding, dtype="int64")
        for row, numbers in zip(self.words, rows, strict=True):
            row[: len(numbers)] = numbers
        self.labels = np.array([int(label) for label, _ in pairs], dtype="int64")
        self.times_seen = np.zeros(len(pairs), dtype="int64")

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, count: int, seed: Sequence[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the words and labels of `count` batches: each review once, in an order that depends on the seed."""
        order = np.random.RandomState(list(seed)).permutation(len(self))
        for chosen in np.array_split(order, count):
            self.times_seen[chosen] += 1
            yield self.words[chosen], self.labels[chosen]
