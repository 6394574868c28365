"""Messages between trainers and pservers: a greeting, parameters in blocks, the end of a pass, a farewell."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    BlockKey = tuple[int, int]  # (number of the parameter, number of the block in it)
    Blocks = dict[BlockKey, "array[float]"]

HELLO, SET, GET, GRADIENT, VALUES, PASS_END, BYE = range(1, 8)

MAGIC = b"PDL0"
_HEADER = struct.Struct("<4sBIdI")
_BLOCK = struct.Struct("<III")


class Message(NamedTuple):
    kind: int
    number: int
    value: float
    blocks: Blocks


class Stranger(Exception):
    """The received bytes do not come from a trainer."""


def encode(kind: int, number: int = 0, value: float = 0.0, blocks: Blocks | None = None) -> bytes:
    payload: list[bytes] = []
    for (parameter, block), values in (blocks or {}).items():
        payload.append(_BLOCK.pack(parameter, block, len(values)) + values.tobytes())
    body = b"".join(payload)
    return _HEADER.pack(MAGIC, kind, number, value, len(body)) + body


def take(buffer: bytearray) -> Message | None:
    """Remove the first complete message from the buffer and return it, or None if there is none yet."""
    if not MAGIC.startswith(bytes(buffer[:4])):
        raise Stranger
    if len(buffer) < _HEADER.size:
        return None
    _, kind, number, value, length = _HEADER.unpack_from(buffer)
    if len(buffer) < _HEADER.size + length:
        return None
    body = bytes(buffer[_HEADER.size : _HEADER.size + length])
    del buffer[: _HEADER.size + length]
    return Message(kind, number, value, _blocks(body))


def _blocks(body: bytes) -> Blocks:
    blocks: Blocks = {}
    at = 0
    while at < len(body):
        parameter, block, count = _BLOCK.unpack_from(body, at)
        at += _BLOCK.size
        values = array("f")
        values.frombytes(body[at : at + 4 * count])
        at += 4 * count
        blocks[parameter, block] = values
    return blocks
