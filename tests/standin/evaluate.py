"""Print the share of samples that a saved model classifies correctly: evaluate.py PASS_DIR DICT_FILE DATA_FILE."""

from __future__ import annotations

import os
import struct
import sys
from array import array


def read_parameter(folder: str, name: str) -> array[float]:
    with open(os.path.join(folder, name), "rb") as file:
        _, _, count = struct.unpack("<iIQ", file.read(16))
        values = array("f")
        values.frombytes(file.read(4 * count))
    return values


def accuracy(folder: str, dictionary: str, data: str) -> float:
    weights = read_parameter(folder, "___fc_layer_0__.w0")
    bias = read_parameter(folder, "___fc_layer_0__.wbias")
    with open(dictionary) as file:
        numbers = {line.split()[0]: number for number, line in enumerate(file)}
    right = total = 0
    with open(data) as file:
        for line in file:
            label, text = line.rstrip("\n").split("\t")
            words = [numbers.get(word, 0) for word in text.split()]
            scores = [bias[side] + sum(weights[2 * word + side] for word in words) for side in (0, 1)]
            right += (scores[1] > scores[0]) == (label == "1")
            total += 1
    return right / total


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python evaluate.py PASS_DIR DICT_FILE DATA_FILE")
    print(f"accuracy {accuracy(*sys.argv[1:]):.4f}")
