"""Errors of calls to the API server. Each class stands for one thing that the caller can do about the error."""

from __future__ import annotations

import json

from kubernetes.client.exceptions import ApiException

from launcher.errors import Exit, Failure

_LONGEST = 300  # a message has at most this many characters of an error text
_TRANSIENT = (408, 429)


class ApiError(Failure):
    """A call that failed.

    fact: what happened, in one line
    message: what happened, and what the user can do; by default `fact`
    """

    def __init__(self, code: Exit, fact: str, message: str = "") -> None:
        super().__init__(code, message or fact)
        self.fact = fact


class Transient(ApiError):
    """The API server cannot answer now.

    retry_after: how many seconds to wait before a retry, or 0 if the server does not say it
    """

    def __init__(self, fact: str, message: str = "", retry_after: float = 0) -> None:
        super().__init__(Exit.TIMED_OUT, fact, message)
        self.retry_after = retry_after


class Denied(ApiError):
    """The API server does not allow this call (403)."""


class BadCredentials(ApiError):
    """The API server does not accept the credentials (401), or its certificate cannot be trusted."""


class Refused(ApiError):
    """The API server refuses this call with another status: 404 not found, 409 exists already, ..."""

    def __init__(self, status: int, fact: str) -> None:
        super().__init__(Exit.CONFIG, fact)
        self.status = status


class Expired(Refused):
    """The version from which to watch is too old (410). The caller must list again."""


def is_transient(status: int) -> bool:
    """Return whether the same call may succeed later. `status`: the HTTP status of the answer."""
    return status in _TRANSIENT or status >= 500


def server_message(error: ApiException) -> str:
    """Return what the API server says about the error."""
    try:
        return str(json.loads(error.body)["message"])
    except (ValueError, TypeError, KeyError):
        return str(error.reason or error.body or "")[:_LONGEST]


def one_line(error: BaseException) -> str:
    """Return the reason for a connection error in one line."""
    reason = getattr(error, "reason", None)
    return " ".join(str(reason if isinstance(reason, BaseException) else error).split())[:_LONGEST]
