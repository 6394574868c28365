"""A child process for heavy work, or for work that must be killable: it runs one module of this package.

Its request is one line of JSON, its messages are lines of JSON. The memory of its imports is freed when it ends, and a
stalled volume or server cannot keep it from being killed. launcher.base.helper_child is the child's side.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

from launcher.base.aio import run_in_thread, wait_within
from launcher.base.spawn import module_command, spawn, wait_for_exit

_LINE_LIMIT = 16 * 1024 * 1024
_TAIL = 4096  # bytes of standard error that are kept: enough for its last line
_PATIENCE = 1.0  # seconds; a healthy kernel ends a killed process at once


class Helper:
    """A child that runs `python -m MODULE`. Always close it.

    exit_code: once all messages are read
    """

    def __init__(self, module: str, request: Mapping[str, Any], env: Mapping[str, str]) -> None:
        self._argv = module_command(module)
        self._request = json.dumps(request).encode() + b"\n"
        self._env = env
        self._starting: asyncio.Future[subprocess.Popen[bytes]] | None = None
        self._errors = _Tail()
        self._transports: list[asyncio.ReadTransport] = []
        self.exit_code: int | None = None

    async def start(self) -> None:
        """Start the child before its messages are read. Does nothing if it runs already."""
        await self._started()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Start the child and iterate over its messages, until it has closed its output and ended."""
        child = await self._started()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        await self._read(child.stderr, self._errors)
        await self._read(child.stdout, asyncio.StreamReaderProtocol(reader))
        while (line := await reader.readline()).endswith(b"\n"):  # a kill cuts the last line short
            yield json.loads(line)
        self.exit_code = await wait_for_exit(child)
        try:
            await wait_within(self._errors.complete.wait(), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # a grandchild holds it open

    def last_error_line(self) -> str:
        """Return the last line of the child's standard error: of a traceback, the one with the exception."""
        return self._errors.last_line()

    async def close(self) -> None:
        """Kill the child and all that it started, and wait for its end for a moment."""
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
            self.exit_code = await wait_within(wait_for_exit(child), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # a stalled volume holds it: it ends later

    async def _started(self) -> subprocess.Popen[bytes]:
        if self._starting is None:
            self._starting = run_in_thread(self._spawn)
        # Shielded, so that `close` finds the child even if this start is cancelled.
        return await asyncio.shield(self._starting)

    def _spawn(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        # Not in the work directory: `-m` imports from there first, and a user's json.py may be in it.
        child = spawn(self._argv, env=self._env, cwd="/", stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert child.stdin is not None
        try:
            child.stdin.write(self._request)
        except BrokenPipeError:
            pass  # it has ended already: its exit code says why
        child.stdin.close()
        return child


class _Tail(asyncio.Protocol):
    """Reads all of standard error, so that the child never blocks on it, and keeps the end."""

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
