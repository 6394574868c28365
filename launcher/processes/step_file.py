"""The steps of a trainer that calls `launcher.train.should_stop`, in a small file in the work directory.

Program and launcher map the file into their memory, so no call waits. It has three numbers of 8 bytes:

    asked   1 while the launchers agree on a step: the program waits at its next call
    until   the step after which the program ends; 0: none
    step    how often the program has called `should_stop`
"""

from __future__ import annotations

import mmap
import os

_ASKED, _UNTIL, _STEP, _SIZE = 0, 1, 2, 3  # as in launcher/train.py


class StepFile:
    """The file of one trainer. Raises OSError if it cannot be made."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, 8 * _SIZE)
            self._numbers = memoryview(mmap.mmap(descriptor, 8 * _SIZE)).cast("q")
        finally:
            os.close(descriptor)

    @property
    def step(self) -> int:
        """How often the program has called `should_stop`. 0 if it does not use it, so far."""
        return self._numbers[_STEP]

    def ask(self) -> int:
        """Let the program wait at its next call, and return its step. It makes at most one call more."""
        self._numbers[_ASKED] = 1
        return self.step

    def let_go(self, until: int) -> None:
        """Let the program continue until this step; 0: as long as it wants."""
        self._numbers[_UNTIL] = until
        self._numbers[_ASKED] = 0
