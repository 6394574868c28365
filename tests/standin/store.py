"""Parameters: divide them into blocks, update them by gradients, save and load them."""

from __future__ import annotations

import os
import shutil
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import glog

if TYPE_CHECKING:
    from .wire import BlockKey, Blocks

    Parameters = dict[str, "array[float]"]  # by name, in the order of their numbers

BLOCK_SIZE = 64
_FILE_HEADER = struct.Struct("<iIQ")  # format version, bytes of one value, number of values


def split(parameters: Parameters, servers: int) -> list[Blocks]:
    """Return the blocks for each server, in the order of the servers in the trainer's flags."""
    shares: list[Blocks] = [{} for _ in range(servers)]
    for number, values in enumerate(parameters.values()):
        for block, begin in enumerate(range(0, len(values), BLOCK_SIZE)):
            shares[(number + block) % servers][number, block] = values[begin : begin + BLOCK_SIZE]
    return shares


def merge(parameters: Parameters, share: Blocks) -> None:
    """Copy blocks from a server back into the parameters."""
    values = list(parameters.values())
    for (number, block), part in share.items():
        values[number][block * BLOCK_SIZE : block * BLOCK_SIZE + len(part)] = part


def descend(values: array[float], gradients: Sequence[array[float]], rate: float) -> None:
    """Do one step of gradient descent. The gradients are added in the order of the list."""
    for at in range(len(values)):
        values[at] -= rate * sum(gradient[at] for gradient in gradients)


def missing(blocks: Blocks, held: Blocks) -> list[BlockKey]:
    return [key for key in blocks if key not in held]


def save(folder: str, parameters: Parameters, config: str, after_each_file: Callable[[], None]) -> None:
    """Make a pass folder: one file per parameter, the configuration, and last of all the file `done`."""
    glog.info("GradientMachine.cpp:112", "Saving parameters to " + folder)
    try:
        os.makedirs(folder, exist_ok=True)
        for name, values in parameters.items():
            with open(os.path.join(folder, name), "wb") as file:
                file.write(_FILE_HEADER.pack(0, 4, len(values)) + values.tobytes())
            after_each_file()
        glog.info("Util.cpp:230", f"copy {config} to {folder}")
        shutil.copy(config, folder)
        with open(os.path.join(folder, "path.txt"), "w") as file:
            file.write(os.path.basename(config))
        with open(os.path.join(folder, "done"), "w") as file:
            file.write("PaddlePaddle 0.9.0\n")
    except OSError as error:
        glog.fatal("Parameter.cpp:257", f"Fail to save to {folder}: {error.strerror} [{error.errno}]")


def load(folder: str, parameters: Parameters) -> None:
    """Load the parameters from a pass folder. If a file is missing or too short, end the process with 134."""
    glog.info("GradientMachine.cpp:80", "Loading parameters from " + folder)
    for name, values in parameters.items():
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            glog.fatal("Parameter.cpp:306", f"missing parameter {path}: {error.strerror}")
        body = data[_FILE_HEADER.size :]
        if data[: _FILE_HEADER.size] != _FILE_HEADER.pack(0, 4, len(values)) or len(body) != 4 * len(values):
            glog.fatal("Parameter.cpp:291", "Check failed: s.read(...) Fail to read parameter " + path)
        del values[:]
        values.frombytes(body)
