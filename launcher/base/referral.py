"""The answers of `why` in a pod that does not know where all processes are. The command that asks looks for the hub."""

from __future__ import annotations

import re

_HUB = "only rank 0 can answer this: kubectl exec {} -- paddle-launcher why"
_WAITS = "waiting until the job grows: "
_NAMES_HUB = re.compile(_HUB.format("([a-z0-9][-a-z0-9.]*)"))


def to_hub(pod: str) -> str:
    """Return the answer of a member that is not the hub. `pod`: of the hub."""
    return _HUB.format(pod)


def of_newcomer(what: str) -> str:
    """Return the answer of a pod that no running gang has taken yet. `what`: it waits for."""
    return f"{_WAITS}{what}"


def is_referral(answer: str) -> bool:
    """Return whether another pod knows more."""
    return hub_in(answer) != "" or answer.startswith(_WAITS)


def hub_in(answer: str) -> str:
    """Return the pod that an answer names as the hub, or ""."""
    named = _NAMES_HUB.fullmatch(answer.strip())
    return named[1] if named else ""
