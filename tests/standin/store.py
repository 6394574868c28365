"""Parameters: divide them into blocks, update them by gradients, save and load them."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from . import glog

if TYPE_CHECKING:
    from .wire import BlockKey, Blocks

    Parameters = dict[str, "array[float]"]  # by name, in the order of their numbers

BLOCK_SIZE = 64
_BUFFER = 1024  # bytes; writes of smaller files are not checked
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


def save(folder: str, parameters: Parameters, config: str, after_each_file: Callable[[], None]) -> bool:
    """Make a pass folder: one file per parameter, then the file `done`, then a copy of the configuration.

    Return whether the model is whole. The original does not know.
    """
    glog.info("GradientMachine.cpp:112", "Saving parameters to " + folder)
    try:
        os.makedirs(folder, exist_ok=True)
        is_whole = True
        for name, values in parameters.items():
            is_whole &= _write(os.path.join(folder, name), _FILE_HEADER.pack(0, 4, len(values)) + values.tobytes())
            after_each_file()
    except OSError as error:
        glog.fatal("Parameter.cpp:257", f"Fail to save to {folder}: {error.strerror} [{error.errno}]")
    is_whole &= _write_unchecked(os.path.join(folder, "done"), b"PaddlePaddle 0.9.0\n")
    glog.info("Util.cpp:230", f"copy {config} to {folder}")
    with open(config, "rb") as file:
        _write_unchecked(os.path.join(folder, os.path.basename(config)), file.read())
    _write_unchecked(os.path.join(folder, "path.txt"), os.path.basename(config).encode())
    return is_whole


def _write(path: str, data: bytes) -> bool:
    """Write a parameter. The original notices a failed write only if the data is larger than its buffer."""
    if len(data) < _BUFFER:
        with open(path, "wb"):
            pass  # this is checked
        return _write_unchecked(path, data)
    with open(path, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
    return True


def _write_unchecked(path: str, data: bytes) -> bool:
    """Write a file, and ignore errors. The file is then empty or missing."""
    try:
        with open(path, "wb", buffering=0) as file:
            return file.write(data) == len(data)
    except OSError:
        return False


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
