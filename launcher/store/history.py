"""All generations of one job: when each began, after which pass, why it ended. Kept over gangs that come and go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from launcher.base.clock import utc_now
from launcher.model import Cause, Shape
from launcher.store.json_fields import cause_fields

_KEPT = 100  # generations; the numbers of older ones are still known by those that follow


class History:
    """What attempts.json holds. `without_progress`: how many generations in a row ended before a pass was done."""

    def __init__(self, content: Mapping[str, Any], shape: Shape) -> None:
        self._shape = shape
        count, generations = content.get("without_progress"), content.get("generations")
        self.without_progress = count if isinstance(count, int) else 0
        known = generations if isinstance(generations, list) else []
        self._generations = [dict(one) for one in known if isinstance(one, dict) and type(one.get("number")) is int]

    @property
    def generation(self) -> int | None:
        """The number of the latest one."""
        return self._generations[-1]["number"] if self._generations else None

    def catch_up(self, content: Mapping[str, Any]) -> None:
        """With what another gang of this job has written meanwhile."""
        other = History(content, self._shape)
        if other._reached > self._reached:
            self.without_progress, self._generations = other.without_progress, other._generations

    @property
    def _reached(self) -> tuple[int, bool]:
        latest = self._generations[-1] if self._generations else {"number": -1}
        return latest["number"], latest.get("ended") is not None

    def begin(self, number: int, resume: int | None) -> None:
        """One that ended without a word of its hub keeps its end open."""
        self._generations.append(
            {"number": number, "began": utc_now(), "after_pass": resume, "ended": None, "first_cause": None}
        )
        del self._generations[:-_KEPT]

    def end(self, cause: Cause | None) -> None:
        """The latest one is over; without a cause the job is complete. Said again where more is known of the cause."""
        if self._generations:
            latest = self._generations[-1]
            words = cause_fields(cause and replace(cause, tail=()), self._shape)
            latest |= {"ended": latest.get("ended") or utc_now(), "first_cause": words}

    def explain(self, number: int, cause: Cause) -> bool:
        """By somebody who knows more of the end of a generation than its hub could say. False: it is known already."""
        latest = self._generations[-1] if self._generations else {}
        known = latest.get("first_cause") or {}
        its_own = latest.get("number") == number and latest.get("ended") is None
        if not its_own and (known.get("kind"), known.get("pod")) != (cause.kind, cause.pod):
            return False
        self.end(cause)
        return True

    def content(self) -> dict[str, Any]:
        return {"without_progress": self.without_progress, "generations": list(self._generations)}
