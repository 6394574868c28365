"""A bounded buffer between one writer and several readers. Each reader gets all bytes in order, at its own speed.

The bytes may come from two streams: standard output (0) and standard error (1). The buffer knows the stream of each
byte.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections import deque

CHUNK = 256 * 1024

_SOFT_LIMIT = 768 * 1024  # bytes; above this, the writer first waits for the readers, while they make progress
_MOST_CHANGES = 1024  # of the stream within a chunk: a chunk with more of them is full, so that memory stays bounded
_PATIENCE = 0.5  # seconds to wait for the slowest reader: a busy disk or machine pauses for less
_PATIENCE_AT_DEATH = 0.05  # the same once the child is dead: the last lines name the cause, and must not come late


class _Chunk:
    """Memory that is filled once, from its beginning.

    start: the offset of its first byte in the whole output
    stream: the stream of its first byte
    changes: where in the chunk the stream changes to the other one
    """

    def __init__(self, start: int, stream: int) -> None:
        self.start = start
        self.stream = stream
        self.changes: list[int] = []
        self.data = bytearray(CHUNK)
        self.filled = 0

    @property
    def is_full(self) -> bool:
        return self.filled == CHUNK or len(self.changes) >= _MOST_CHANGES

    def part_at(self, begin: int) -> tuple[int, int]:
        """Return the stream of the byte at `begin`, and the end of the bytes of this stream."""
        passed = bisect.bisect_right(self.changes, begin)
        end = self.changes[passed] if passed < len(self.changes) else self.filled
        return self.stream ^ (passed & 1), end


class Cursor:
    """The position of one reader."""

    def __init__(self) -> None:
        self.position = 0
        self.closed = False  # the reader takes no more bytes, and the writer does not wait for this reader


class Buffer:
    """The writer's thread calls `reserve` and `commit`. Each reader's thread calls `next_bytes` and `advance`."""

    def __init__(self, limit: int, spare: int) -> None:
        """Keep `spare` of the `limit` bytes for the output that is still in the pipe when the child dies."""
        self._limit = limit
        self._spare = spare
        self._changed = threading.Condition()
        self._stream = 0  # of the newest bytes
        self._chunks = deque([_Chunk(0, self._stream)])
        self._cursors: list[Cursor] = []
        self._end = 0
        self._progress_at = time.monotonic()  # when the slowest reader last took bytes, or when its bytes arrived
        self._finished = False

    def cursor(self) -> Cursor:
        """Return the position of a new reader, at the first byte.

        The caller must create all cursors before the first write.
        """
        cursor = Cursor()
        self._cursors.append(cursor)
        return cursor

    def reserve(self, stop: threading.Event, dead: threading.Event) -> memoryview | None:
        """Wait for free memory, and return this memory for the next bytes.

        If there is no free memory and `stop` is set, return None. Once the child is `dead`, use the spare memory and do
        not wait. Return None if the spare memory is full, too.

        The thread that sets one of the events must then call `wake`.
        """
        with self._changed:
            while not self._may_grow(self._limit - self._spare):
                if dead.is_set():
                    if self._may_grow(self._limit):
                        break
                    return None
                if stop.is_set():
                    return None
                self._changed.wait()
            self._wait_for_readers(dead)
            chunk = self._chunks[-1]
            if chunk.is_full:
                chunk = _Chunk(self._end, self._stream)
                self._chunks.append(chunk)
            return memoryview(chunk.data)[chunk.filled :]

    def commit(self, count: int, stream: int = 0) -> tuple[bytearray, int, int]:
        """Add the first `count` bytes of the reserved memory to the output. They come from this stream.

        Return the memory, and the offsets in it at which these bytes begin and end. The next `reserve` may reuse it.
        """
        with self._changed:
            if all(cursor.closed or cursor.position == self._end for cursor in self._cursors):
                self._progress_at = time.monotonic()  # a reader that had nothing to take was not stuck
            chunk = self._chunks[-1]
            begin = chunk.filled
            if stream != self._stream:
                self._stream = stream
                if begin:
                    chunk.changes.append(begin)
                else:
                    chunk.stream = stream
            chunk.filled += count
            self._end += count
            self._free_chunks()
            return chunk.data, begin, chunk.filled

    def next_bytes(self, cursor: Cursor, limit: int) -> memoryview | None:
        """Wait for bytes. Return at most `limit` bytes, or None if the cursor is closed or at the end of the output."""
        with self._changed:
            chunk = self._wait_for_bytes(cursor)
            if chunk is None:
                return None
            begin = cursor.position - chunk.start
            return memoryview(chunk.data)[begin : min(chunk.filled, begin + limit)]

    def next_part(self, cursor: Cursor, limit: int) -> tuple[memoryview, int] | None:
        """Return the same as `next_bytes`, but only bytes of one stream, and this stream."""
        with self._changed:
            chunk = self._wait_for_bytes(cursor)
            if chunk is None:
                return None
            begin = cursor.position - chunk.start
            stream, end = chunk.part_at(begin)
            return memoryview(chunk.data)[begin : min(end, begin + limit)], stream

    def advance(self, cursor: Cursor, count: int) -> None:
        """Move a cursor forward, past bytes that its reader has taken."""
        with self._changed:
            if count and cursor.position <= self._chunks[0].start + self._chunks[0].filled:
                self._progress_at = time.monotonic()
            cursor.position += count
            self._free_chunks()

    def close(self, cursor: Cursor) -> None:
        """Close a cursor: its reader takes no more bytes, and the writer no longer waits for this reader."""
        with self._changed:
            cursor.closed = True
            self._free_chunks()

    def pause(self, cursor: Cursor, seconds: float) -> None:
        """Wait for this number of seconds, or until the cursor is closed."""
        with self._changed:
            self._changed.wait_for(lambda: cursor.closed, seconds)

    def finish(self) -> None:
        """Mark the end: no more bytes will be written."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Make a waiting `reserve` check its events again."""
        with self._changed:
            self._changed.notify_all()

    def pending(self, cursor: Cursor) -> int:
        """Return how many bytes this reader has not taken yet."""
        with self._changed:
            return 0 if cursor.closed else self._end - cursor.position

    def size(self) -> int:
        """Return how many bytes were written in all."""
        with self._changed:
            return self._end

    def _wait_for_bytes(self, cursor: Cursor) -> _Chunk | None:
        """Return the chunk with the next byte of a cursor. None if the cursor is closed or at the end of the output."""
        while cursor.position == self._end and not self._finished and not cursor.closed:
            self._changed.wait()
        if cursor.closed or cursor.position == self._end:
            return None
        return next(c for c in self._chunks if cursor.position < c.start + c.filled)

    def _may_grow(self, limit: int) -> bool:
        return not self._chunks[-1].is_full or (len(self._chunks) + 1) * CHUNK <= limit

    def _wait_for_readers(self, dead: threading.Event) -> None:
        """Wait until little output waits, or the slowest reader is stuck. Once the child is dead, wait less."""
        was_dead = dead.is_set()
        patience = _PATIENCE_AT_DEATH if was_dead else _PATIENCE
        self._changed.wait_for(
            lambda: (
                self._may_grow(_SOFT_LIMIT)
                or time.monotonic() - self._progress_at > patience
                or dead.is_set() is not was_dead
            ),
            patience,
        )

    def _free_chunks(self) -> None:
        """Drop the chunks that all readers have taken."""
        taken = min((c.position for c in self._cursors if not c.closed), default=self._end)
        while len(self._chunks) > 1 and self._chunks[0].start + self._chunks[0].filled <= taken:
            self._chunks.popleft()
        self._changed.notify_all()
