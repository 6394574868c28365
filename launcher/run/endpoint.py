"""Answer on a socket file in the work directory: probes (`alive`) and questions about the job (`why`).

A probe never connects to the ports of Paddle or of the gang. The launcher's event loop answers, so an answer means that
this loop runs. The loop runs while the launcher waits for peers, while it trains, and while it waits for SIGTERM after
the end of the job.

The launcher sends `alive` to each connection. A client that wants to know more then sends `why`, and reads to the end.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable

from launcher.base.aio import run_in_thread, wait_within
from launcher.errors import Exit, Failure

_NAME = ".paddle-launcher.sock"
_ALIVE = b"alive\n"
_WHY = b"why\n"
_PATIENCE = 4.0  # seconds for all tries together: less than the 5 s timeout of our probes
_RETRY_AFTER = 0.1
_QUESTION_WITHIN = 5.0  # seconds after which the launcher ends a connection without a question
_EXPLAINED_WITHIN = 60.0
_MAX_ANSWER = 1024 * 1024


class Endpoint:
    """Answer all connections, until the event loop ends.

    explain: returns the answer to `why`. Questions that come together get the same answer.
    """

    def __init__(self) -> None:
        self.explain: Callable[[], Awaitable[str]] = _starting
        self._explaining: asyncio.Future[str] | None = None
        self._server: asyncio.AbstractServer | None = None

    async def open(self, workdir: str) -> None:
        """Start to answer. Raises OSError, Failure."""
        bound = await run_in_thread(_bind, os.path.join(workdir, _NAME))
        self._server = await asyncio.start_unix_server(self._answer, sock=bound)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(_ALIVE)
            await writer.drain()
            if await wait_within(reader.readline(), _QUESTION_WITHIN) == _WHY:
                writer.write((await self._explained()).encode(errors="replace"))
                await writer.drain()
        except (OSError, ValueError, asyncio.TimeoutError):
            pass  # the client has gone, or does not ask anything
        finally:
            writer.close()

    async def _explained(self) -> str:
        if self._explaining is None or self._explaining.done():
            self._explaining = asyncio.ensure_future(self.explain())
        try:
            return await asyncio.shield(self._explaining)
        except Exception as error:  # a question must not end the job
            return f"a fault of the launcher itself, please report it: {error!r}"


async def _starting() -> str:
    return "the launcher is starting"


def ask(workdir: str) -> None:
    """Wait until the launcher answers, since it may still be starting. Raises Failure after 4 s without an answer."""
    _connected(workdir).close()


def ask_why(workdir: str) -> str:
    """Return what the launcher says about the job. Raises Failure if no launcher answers."""
    with _connected(workdir) as asking:
        asking.settimeout(_EXPLAINED_WITHIN)
        try:
            asking.sendall(_WHY)
            answer = b""
            while (more := asking.recv(65536)) and len(answer) < _MAX_ANSWER:
                answer += more
        except OSError as error:
            raise Failure(Exit.TIMED_OUT, f"the launcher does not answer: {error.strerror or error}") from None
    return answer.decode(errors="replace")


def _connected(workdir: str) -> socket.socket:
    """Return a connection to the launcher, which has answered `alive`. Raises Failure."""
    path = os.path.join(workdir, _NAME)
    deadline = time.monotonic() + _PATIENCE
    while True:
        asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        why = _refusal(asking, path, deadline)
        if not why:
            return asking
        asking.close()
        if time.monotonic() + _RETRY_AFTER > deadline:
            raise Failure(Exit.TIMED_OUT, f"no launcher answers at {path}: {why}")
        time.sleep(_RETRY_AFTER)


def _refusal(asking: socket.socket, path: str, deadline: float) -> str:
    """Connect. Return why the launcher does not answer, or "". `deadline`: in seconds of time.monotonic()."""
    asking.settimeout(max(deadline - time.monotonic(), _RETRY_AFTER))
    try:
        asking.connect(path)
        return "" if asking.recv(len(_ALIVE)) == _ALIVE else "the launcher closed the connection"
    except ConnectionRefusedError:
        return "the launcher that used this socket has ended"
    except TimeoutError:
        return f"the launcher has not answered within {_PATIENCE:g} s: it is stopped, or gets no processor time"
    except OSError as error:
        return f"{error.strerror}: is LAUNCHER_WORKDIR the same as for `run`?"


def _bind(path: str) -> socket.socket:
    """Create the socket file, or replace that of an earlier launcher. Blocks if the file is on a stalled volume."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    bound.bind(path)
    return bound
