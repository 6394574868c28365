"""Who was refused on the gang port, and why: counted by reason, told without flooding the log."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

log = logging.getLogger(__name__)

_TELL_EVERY = 30.0


class Refusal(Exception):
    """No to a hello. `reason` is counted, `text` goes to the other side, which may `retry` here or looks elsewhere."""

    def __init__(self, reason: str, text: str, *, retry: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.retry = retry


class RefusalLog:
    """Tells the first of each reason at once, the further ones every 30 s as a number."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def refused(self, reason: str, peer: str, text: str = "") -> None:
        self.counts[reason] += 1
        if reason not in self._told:
            self._told[reason] = 1
            log.info(f"gang port: refused {peer}: {reason}" + (f" ({text})" if text else ""))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TELL_EVERY, self._tell)

    def close(self) -> None:
        """Tell what is untold."""
        if self._timer is not None:
            self._timer.cancel()
            self._tell()

    def _tell(self) -> None:
        self._timer = None
        for reason, count in self.counts.items():
            if more := count - self._told[reason]:
                self._told[reason] = count
                log.info(f"gang port: refused {more} more: {reason} ({count} in all)")
