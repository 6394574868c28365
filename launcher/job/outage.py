"""How long what watches a job puts up with an API server that does not answer, or does so out of its mind."""

from __future__ import annotations

import time

from launcher.errors import Exit, Failure
from launcher.job.access import Unreachable


class Patience:
    """An API server that once answered may be away for so many seconds. `over` raises when it is too long."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._answered = time.monotonic()
        self._ever = False

    def answered(self) -> None:
        """It has just done so."""
        self._answered, self._ever = time.monotonic(), True

    def bear(self, failure: Failure) -> None:
        """Raises the failure unless it may pass. Who has just started says 403 to all until the roles are read."""
        passing = isinstance(failure, Unreachable) or (self._ever and failure.code == Exit.DENIED)
        if not passing or time.monotonic() - self._answered > self._seconds:
            raise failure
