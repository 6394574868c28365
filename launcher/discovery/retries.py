"""Retry calls of the API server, with growing, random pauses.

Only calls whose credentials are rejected have a limit of retries.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential_jitter

from launcher.base.kube import KubeClient
from launcher.base.kube_errors import ApiError, BadCredentials, Denied, Refused, Transient

T = TypeVar("T")

_REJECTED = 4  # at most this many calls in a row with credentials that are rejected or lack a permission
_FINAL = (400, 422)  # HTTP statuses of a wrong request: no retry helps
_backoff = wait_exponential_jitter(initial=0.25, max=15, jitter=0.5)


class Retries:
    """Retry calls that may succeed later.

    If the API server rejects the credentials (401, 403), read the credentials again and retry. Make at most 4 such
    calls in a row.

    report: called with each error that is retried, and with "" once the API server answers again
    """

    def __init__(self, client: KubeClient, report: Callable[[str], None]) -> None:
        client.on_answer = self._answered
        # The caller sets this when no permission is missing. If the API server denies a call after that, it has
        # restarted and has not read the Roles yet.
        self.has_all_rights = False
        self._client = client
        self._report = report
        self._in_trouble = False
        self._rejected = 0

    def run(self, step: Callable[[], T]) -> T:
        """Repeat the step until it succeeds, and return its result. Raise an error that no retry can solve."""
        trying = Retrying(
            retry=retry_if_exception(self._may_pass), wait=_pause, before_sleep=self._prepare, reraise=True
        )
        return trying(step)

    def _answered(self) -> None:
        self._rejected = 0
        if self._in_trouble:
            self._in_trouble = False
            self._report("")

    def _may_pass(self, error: BaseException) -> bool:
        if isinstance(error, BadCredentials):
            return self._rejected + 1 < _REJECTED
        if isinstance(error, Denied):
            return (self._in_trouble or self.has_all_rights) and self._rejected + 1 < _REJECTED
        if isinstance(error, Refused):
            return error.status not in _FINAL
        return isinstance(error, Transient)

    def _prepare(self, state: RetryCallState) -> None:
        error = _error(state)
        self._in_trouble = True
        self._report(error.fact)
        if isinstance(error, (BadCredentials, Denied)):
            self._rejected += 1
            self._client.connect()


def _error(state: RetryCallState) -> ApiError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ApiError)
    return error


def _pause(state: RetryCallState) -> float:
    error = _error(state)
    if isinstance(error, Transient) and error.retry_after:
        return error.retry_after + random.uniform(0, 1)
    return _backoff(state)
