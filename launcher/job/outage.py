"""How long the API server may fail to answer before a command ends with a failure."""

from __future__ import annotations

import time

from launcher.base.kube_errors import Transient
from launcher.errors import Exit, Failure


class OutageLimit:
    """Ignore temporary failures of the API server, for `seconds` after its last answer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last_answer = time.monotonic()
        self._has_answered = False

    def answered(self) -> None:
        """Record that the API server has just answered."""
        self._last_answer, self._has_answered = time.monotonic(), True

    def bear(self, failure: Failure) -> None:
        """Raise the failure if it is permanent, or if the last answer was more than `seconds` ago.

        An API server that has just started answers 403 until it has read the Roles. So 403 counts as temporary if the
        API server has answered before.
        """
        may_pass = isinstance(failure, Transient) or (self._has_answered and failure.code == Exit.DENIED)
        if not may_pass or time.monotonic() - self._last_answer > self._seconds:
            raise failure
