"""Count and log what this launcher refuses on the network."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

log = logging.getLogger(__name__)

FORGED = "a line that the peer did not send, so the connection is made again: is there a proxy or an attacker?"
_LOG_EVERY = 30.0


class RefusalLog:
    """Count refusals by reason. Log the first refusal of each reason at once, and every 30 s how many more came."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._logged: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, reason: str, peer: str, text: str = "") -> None:
        self.counts[reason] += 1
        if reason not in self._logged:
            self._logged[reason] = 1
            log.info(f"gang port: refused {peer}: {reason}" + (f" ({text})" if text else ""))
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOG_EVERY, self._log)

    def close(self) -> None:
        """Log the refusals that are not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._log()

    def _log(self) -> None:
        self._timer = None
        for reason, count in self.counts.items():
            if more := count - self._logged[reason]:
                self._logged[reason] = count
                log.info(f"gang port: refused {more} more connections: {reason} ({count} in all)")
