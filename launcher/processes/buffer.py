"""What a child has written and not every place has taken yet: bounded, in order, taken at each place's own pace."""

from __future__ import annotations

import threading
import time
from collections import deque

CHUNK = 256 * 1024

_USUAL = 1024 * 1024  # enough while places take what comes; only for one that takes nothing more is kept
_PATIENCE = 0.05  # seconds without progress, after which a place takes nothing


class _Chunk:
    """A piece of memory that is filled once from its beginning; `start` counts from the first byte of all."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.data = bytearray(CHUNK)
        self.filled = 0


class Cursor:
    """How far one place has come."""

    def __init__(self) -> None:
        self.position = 0
        self.left = False  # it takes no more, and nobody waits for it


class Buffer:
    """One thread puts bytes in (`room`, `added`), one thread a cursor takes them out (`take`, `took`)."""

    def __init__(self, limit: int, spare: int) -> None:
        """`spare` of the `limit` is for the last words of a dead child: nobody could make that one wait."""
        self._limit = limit
        self._spare = spare
        self._changed = threading.Condition()
        self._chunks = deque([_Chunk(0)])
        self._cursors: list[Cursor] = []
        self._end = 0
        self._progress = time.monotonic()  # when the slowest place last took something
        self._finished = False

    def cursor(self) -> Cursor:
        """A place that takes everything from the first byte. All are made before the first byte comes."""
        cursor = Cursor()
        self._cursors.append(cursor)
        return cursor

    def room(self, stop: threading.Event, dead: threading.Event) -> memoryview | None:
        """Where the next bytes go, once there is room for them. None: told to stop (then `wake` was called).

        Once the writer is `dead`, the spare room is used and nobody waits: None when that is full, too.
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
            self._changed.wait_for(lambda: self._may_grow(_USUAL) or self._is_stuck() or dead.is_set(), _PATIENCE)
            chunk = self._chunks[-1]
            if chunk.filled == CHUNK:
                chunk = _Chunk(self._end)
                self._chunks.append(chunk)
            return memoryview(chunk.data)[chunk.filled :]

    def added(self, count: int) -> tuple[bytearray, int, int]:
        """So many bytes were put into the room. Gives where they are: valid until the next call of `room`."""
        with self._changed:
            chunk = self._chunks[-1]
            begin = chunk.filled
            chunk.filled += count
            self._end += count
            self._free()
            return chunk.data, begin, chunk.filled

    def take(self, cursor: Cursor, at_most: int) -> memoryview | None:
        """The next bytes for this place, once there are any. None: there will be no more, or it has left."""
        with self._changed:
            while cursor.position == self._end and not self._finished and not cursor.left:
                self._changed.wait()
            if cursor.left or cursor.position == self._end:
                return None
            chunk = next(c for c in self._chunks if cursor.position < c.start + c.filled)
            begin = cursor.position - chunk.start
            return memoryview(chunk.data)[begin : min(chunk.filled, begin + at_most)]

    def took(self, cursor: Cursor, count: int) -> None:
        """This place has so many bytes more."""
        with self._changed:
            if count and cursor.position <= self._chunks[0].start + self._chunks[0].filled:
                self._progress = time.monotonic()
            cursor.position += count
            self._free()

    def leave(self, cursor: Cursor) -> None:
        """This place takes no more."""
        with self._changed:
            cursor.left = True
            self._free()

    def rest(self, cursor: Cursor, seconds: float) -> None:
        """Wait before the next attempt, unless this place is told to leave."""
        with self._changed:
            self._changed.wait_for(lambda: cursor.left, seconds)

    def finish(self) -> None:
        """No more bytes will come."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Something that `room` looks at has changed."""
        with self._changed:
            self._changed.notify_all()

    def waiting(self, cursor: Cursor) -> int:
        """The number of bytes that this place has not taken."""
        with self._changed:
            return 0 if cursor.left else self._end - cursor.position

    def _may_grow(self, limit: int) -> bool:
        return self._chunks[-1].filled < CHUNK or (len(self._chunks) + 1) * CHUNK <= limit

    def _is_stuck(self) -> bool:
        return time.monotonic() - self._progress > _PATIENCE

    def _free(self) -> None:
        """Let go of what every place has taken."""
        taken = min((c.position for c in self._cursors if not c.left), default=self._end)
        while len(self._chunks) > 1 and self._chunks[0].start + self._chunks[0].filled <= taken:
            self._chunks.popleft()
        self._changed.notify_all()
