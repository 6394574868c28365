"""Whether a launcher answers: what a probe asks, without touching Paddle's ports or the gang's.

The launcher's one loop answers on a socket file in its work directory, so an answer means that it decides and hears,
whether it waits, trains or idles after the end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time

from launcher.base.aio import run_in_thread
from launcher.errors import Exit, Failure

_NAME = ".paddle-launcher.sock"
_ANSWER = b"alive\n"
_PATIENCE = 4.0  # seconds in all: less than the 5 that our probes give
_AGAIN = 0.1


async def answer(workdir: str) -> asyncio.AbstractServer:
    """Answer from now on."""
    return await asyncio.start_unix_server(_answer, sock=await run_in_thread(_bind, os.path.join(workdir, _NAME)))


def ask(workdir: str) -> None:
    """Returns when the launcher answers; else the Failure says that it does not. One that starts just now gets time."""
    path = os.path.join(workdir, _NAME)
    deadline = time.monotonic() + _PATIENCE
    while why := _refusal(path, deadline):
        if time.monotonic() + _AGAIN > deadline:
            advice = "is LAUNCHER_WORKDIR the same as for `run`?"
            raise Failure(Exit.TIMED_OUT, f"no launcher answers at {path}: {why}: {advice}")
        time.sleep(_AGAIN)


def _refusal(path: str, deadline: float) -> str:
    """Empty when it answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(max(deadline - time.monotonic(), _AGAIN))
        try:
            asking.connect(path)
            return "" if asking.recv(len(_ANSWER)) == _ANSWER else "it closed the connection"
        except OSError as error:
            return error.strerror or f"not within {_PATIENCE:g} s"


def _bind(path: str) -> socket.socket:
    """A file that an earlier launcher left is replaced. Off the loop: the work directory may be on a volume, too."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(path)
    return bound


async def _answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_ANSWER)
    try:
        await writer.drain()
    except ConnectionError:
        pass  # whoever asked has gone
    writer.close()
