"""How this project calls the API server, by the official client: no call without a bound, errors in few words."""

from __future__ import annotations

import json

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from urllib3 import Retry

CONNECT, READ = 5.0, 30.0  # seconds
_LONGEST = 300  # characters


def tried_once(settings: client.Configuration) -> client.Configuration:
    """Without tries of the client's own, each of which would have all the time of a call."""
    settings.retries = Retry(total=0)
    return settings


def message(error: ApiException) -> str:
    """What the API server said."""
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason or error.body or "")[:_LONGEST]


def short(error: BaseException) -> str:
    """What went wrong on the way to it."""
    cause = getattr(error, "reason", None)
    return " ".join(str(cause if isinstance(cause, BaseException) else error).split())[:_LONGEST]
