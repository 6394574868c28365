"""Heavy or killable work in a child: one of our own modules, asked by a line of JSON, answering in lines of JSON.

The memory of what it imports ends with it, and it can be killed whatever a volume or a server does to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

from launcher.processes import ended, off_loop, spawn

_LINE_LIMIT = 16 * 1024 * 1024  # a roster of thousands of pods is one line


class Worker:
    """A child running `python -m MODULE`. Iterate over `messages()`; `close()` ends it at any time and is always due."""

    def __init__(self, module: str, request: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._argv = [sys.executable, "-m", module]
        self._request = json.dumps(request).encode() + b"\n"
        self._env = env
        self._child: subprocess.Popen[bytes] | None = None
        self.code: int | None = None  # the exit code, once all messages are read

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Start the child and give what it says, until it has closed its output and ended."""
        await self.start()
        assert self._child is not None
        assert self._child.stdout is not None
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._child.stdout
        )
        try:
            while line := await reader.readline():
                yield json.loads(line)
        finally:
            transport.close()
        self.code = await ended(self._child)

    async def start(self) -> None:
        """Start the child now, before anybody reads its messages. Harmless when it runs already."""
        if self._child is not None:
            return
        pipe = subprocess.PIPE
        self._child = await off_loop(lambda: spawn(self._argv, env=self._env, stdin=pipe, stdout=pipe))
        await off_loop(self._tell, self._child)

    def _tell(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        try:
            child.stdin.write(self._request)
            child.stdin.close()
        except BrokenPipeError:
            pass  # it died at once: its exit code says more than this

    async def close(self) -> None:
        """Kill the child with all that it started. Waits for its end only as long as a healthy kernel needs."""
        if self._child is None or self._child.returncode is not None:
            return
        try:
            os.killpg(self._child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.code = await asyncio.wait_for(ended(self._child), 1)
        except asyncio.TimeoutError:
            pass  # held by a stalled volume: it ends when the volume lets go
