"""A job is shown until it ends, whatever its source does."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from launcher.errors import Exit, Failure
from launcher.live import show as showing
from launcher.live.show import show, wait
from launcher.live.view import JobView

RUNNING = JobView("job", "/v", 1000.0, "training")
ENDED = replace(RUNNING, exit_code=3, verdict="exit code 3: it failed")


class Scripted:
    """A source that does these things, one per poll."""

    name = "job"

    def __init__(self, *steps: Callable[[], JobView | None]) -> None:
        self._steps: Iterator[Callable[[], JobView | None]] = iter(steps)

    def poll(self) -> JobView | None:
        return next(self._steps)()

    def pause(self, took: float) -> float:
        return 0.0


def fails() -> JobView:
    raise Failure(Exit.NO_INPUT, "it is gone")


def test_the_exit_code_of_the_job_is_returned_and_its_verdict_is_the_last_line() -> None:
    stream = io.StringIO()
    assert show(Scripted(lambda: None, lambda: RUNNING, lambda: ENDED), stream) == 3
    assert stream.getvalue().endswith("job: exit code 3: it failed\n")
    assert wait(Scripted(lambda: None, lambda: RUNNING, lambda: ENDED)) == 3


def test_a_failure_of_the_source_is_raised() -> None:
    with pytest.raises(Failure, match="it is gone"):
        show(Scripted(lambda: RUNNING, fails), io.StringIO())


def test_a_source_that_does_not_answer_is_said_to_be_old_and_later_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "_STALE_SECONDS", 0.1)
    monkeypatch.setattr(showing, "_REDRAW_SECONDS", 0.01)
    release, stream = threading.Event(), io.StringIO()

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            if "no answer for" in text:
                release.set()
            return stream.write(text)

    def stalls() -> JobView:
        assert release.wait(30)
        return ENDED

    assert show(Scripted(lambda: RUNNING, stalls), Watched()) == 3
    assert "this is the state of " in stream.getvalue()


def test_a_source_that_never_answers_is_shown_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "_STALE_SECONDS", 0.1)
    monkeypatch.setattr(showing, "_REDRAW_SECONDS", 0.01)
    never = threading.Event()

    class Interrupting(io.StringIO):
        def write(self, text: str) -> int:
            if "no answer for" in text:
                raise KeyboardInterrupt
            return len(text)

    def stalls() -> JobView:
        never.wait()
        return ENDED

    with pytest.raises(KeyboardInterrupt):
        show(Scripted(stalls), Interrupting())
    never.set()
