"""Heavy or killable work in a child: one of our own modules, asked by a line of JSON, answering in lines of JSON.

The memory of what it imports ends with it, and it can be killed whatever a volume or a server does to it.
Its own side of this is launcher.base.helper_child.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

from launcher.base.aio import bounded, off_loop
from launcher.base.spawn import ended, own_module, spawn

_LINE_LIMIT = 16 * 1024 * 1024
_TAIL = 4096  # of standard error: enough for its last line
_PATIENCE = 1.0  # seconds for what a healthy kernel does at once


class Helper:
    """A child running `python -m MODULE`. Iterate over `messages()`; `close()` ends it and is always due."""

    def __init__(self, module: str, request: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._argv = own_module(module)
        self._request = json.dumps(request).encode() + b"\n"
        self._env = env
        self._starting: asyncio.Future[subprocess.Popen[bytes]] | None = None
        self._errors = _Tail()
        self._transports: list[asyncio.ReadTransport] = []
        self.code: int | None = None  # the exit code, once all messages are read

    async def start(self) -> None:
        """Start the child now, before anybody reads its messages. Harmless when it runs already."""
        await self._started()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Start the child and give what it says, until it has closed its output and ended."""
        child = await self._started()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        await self._read(child.stderr, self._errors)
        await self._read(child.stdout, asyncio.StreamReaderProtocol(reader))
        while (line := await reader.readline()).endswith(b"\n"):  # a last line without its end was cut by a kill
            yield json.loads(line)
        self.code = await ended(child)
        try:
            await bounded(self._errors.complete.wait(), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # a grandchild holds it open

    def last_words(self) -> str:
        """The last line on the child's standard error: of a traceback, the line that says what happened."""
        return self._errors.last_line()

    async def close(self) -> None:
        """Kill the child with all that it started. Waits for its end only as long as a healthy kernel needs."""
        if self._starting is None:
            return
        await asyncio.wait([self._starting], timeout=_PATIENCE)
        if not self._starting.done() or self._starting.exception():
            return
        child = self._starting.result()
        if child.returncode is None:
            await self._kill(child)
        for transport in self._transports:
            transport.close()
        if not self._transports:
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()

    async def _read(self, pipe: IO[bytes] | None, protocol: asyncio.Protocol) -> None:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        self._transports.append(transport)

    async def _kill(self, child: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.code = await bounded(ended(child), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # held by a stalled volume: it ends when the volume lets go

    async def _started(self) -> subprocess.Popen[bytes]:
        if self._starting is None:
            self._starting = off_loop(self._spawn)
        # Shielded: whoever is cancelled here still leaves a child that `close` knows of.
        return await asyncio.shield(self._starting)

    def _spawn(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        # Not in the work directory: `-m` looks there first, and it may hold a json.py of the user's.
        child = spawn(self._argv, env=self._env, cwd="/", stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert child.stdin is not None
        try:
            child.stdin.write(self._request)
        except BrokenPipeError:
            pass  # it died at once: its exit code says more than this
        child.stdin.close()
        return child


class _Tail(asyncio.Protocol):
    """Reads all of standard error, so that the child never waits for it, and keeps the end."""

    def __init__(self) -> None:
        self._tail = b""
        self.complete = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.complete.set()

    def last_line(self) -> str:
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
