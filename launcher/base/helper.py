"""A child process for work that needs much memory or must be killable. The child runs one module of this package.

The request is one line of JSON, and the child's messages are lines of JSON. When the child ends, the memory of its
imports is freed. The launcher can kill it even while a volume or a server does not answer.
launcher.base.helper_child is the child's side.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from typing import IO, Any

from launcher.base import shortage
from launcher.base.aio import run_in_thread, wait_within
from launcher.base.spawn import module_command, spawn, wait_for_exit
from launcher.errors import Exit, Failure

_LINE_LIMIT = 16 * 1024 * 1024
_TAIL = 4096  # bytes of standard error that are kept: enough for its last line
_PATIENCE = 1.0  # seconds; a healthy kernel ends a killed process at once


class Helper:
    """A child that runs `python -m MODULE`. The caller must always close it.

    All methods except `close` raise Failure if the child cannot be started.

    exit_code: the child's exit code; None until all messages are read or the helper is closed
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
        """Start the child before its messages are read. Do nothing if the child was started already."""
        await self._started()

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Start the child, and iterate over its messages until the child has closed its output and ended."""
        child = await self._started()
        reader = asyncio.StreamReader(limit=_LINE_LIMIT)
        await self._read(child.stderr, self._errors)
        await self._read(child.stdout, asyncio.StreamReaderProtocol(reader))
        while (line := await reader.readline()).endswith(b"\n"):  # the last line of a killed child may be incomplete
            yield json.loads(line)
        self.exit_code = await wait_for_exit(child)
        try:
            await wait_within(self._errors.complete.wait(), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # a grandchild still has standard error open

    def last_error_line(self) -> str:
        """Return the last line of the child's standard error. In a traceback, this line has the exception."""
        return self._errors.last_line()

    async def close(self) -> None:
        """Kill the child's process group, and wait until the child has ended, for at most 1 s."""
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

    def _cannot_start(self, error: OSError) -> Failure:
        why = shortage.explain(error, starting=True) or error
        return Failure(Exit.IO_FAILED, f"the helper process {self._argv[-1]} cannot be started: {why}")

    async def _kill(self, child: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.exit_code = await wait_within(wait_for_exit(child), _PATIENCE)
        except asyncio.TimeoutError:
            pass  # the child is blocked on a stalled volume, and ends later

    async def _started(self) -> subprocess.Popen[bytes]:
        if self._starting is None:
            self._starting = run_in_thread(self._spawn)
        try:
            # Shielded, so that `close` can kill the child even if this start is cancelled.
            return await asyncio.shield(self._starting)
        except OSError as error:
            raise self._cannot_start(error) from None

    def _spawn(self) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        # Not in the work directory: `-m` imports from the current folder first, and a user's json.py may be there.
        child = spawn(self._argv, env=self._env, cwd="/", stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        assert child.stdin is not None
        try:
            child.stdin.write(self._request)
        except BrokenPipeError:
            pass  # the child has already ended: its exit code says why
        child.stdin.close()
        return child


class _Tail(asyncio.Protocol):
    """Read all of the child's standard error, so that the child never blocks, and keep only the last bytes."""

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
