"""Answer probes on a socket file in the work directory. A probe never connects to the ports of Paddle or of the gang.

The launcher's event loop answers, so an answer means that this loop runs. The loop runs while the launcher waits for
peers, while it trains, and while it waits for SIGTERM after the end of the job.
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
_PATIENCE = 4.0  # seconds for all tries together: less than the 5 s timeout of our probes
_RETRY_AFTER = 0.1


async def answer(workdir: str) -> asyncio.AbstractServer:
    """Start to answer probes. Return the server that answers."""
    return await asyncio.start_unix_server(_answer, sock=await run_in_thread(_bind, os.path.join(workdir, _NAME)))


def ask(workdir: str) -> None:
    """Wait until the launcher answers, since it may still be starting. Raises Failure after 4 s without an answer."""
    path = os.path.join(workdir, _NAME)
    deadline = time.monotonic() + _PATIENCE
    while why := _refusal(path, deadline):
        if time.monotonic() + _RETRY_AFTER > deadline:
            advice = "is LAUNCHER_WORKDIR the same as for `run`?"
            raise Failure(Exit.TIMED_OUT, f"no launcher answers at {path}: {why}: {advice}")
        time.sleep(_RETRY_AFTER)


def _refusal(path: str, deadline: float) -> str:
    """Return why the launcher does not answer, or "" if it answers. `deadline`: in seconds of time.monotonic()."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(max(deadline - time.monotonic(), _RETRY_AFTER))
        try:
            asking.connect(path)
            return "" if asking.recv(len(_ANSWER)) == _ANSWER else "the launcher closed the connection"
        except OSError as error:
            return error.strerror or f"no answer within {_PATIENCE:g} s"


def _bind(path: str) -> socket.socket:
    """Create the socket file, or replace that of an earlier launcher. Blocks if the file is on a stalled volume."""
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
        pass  # the probe has gone
    writer.close()
