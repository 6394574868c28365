"""Show a job until it ends: a live table on a terminal, else plain lines."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Protocol, TextIO

from launcher.base.clock import duration
from launcher.live import signals, words
from launcher.live.plain import PlainLines
from launcher.live.view import JobView

HINT = "Ctrl-C ends this view, not the job"

_REDRAW_SECONDS = 0.5
_STALE_SECONDS = 5.0


class Source(Protocol):
    """Makes views of one job. A thread calls its methods, one at a time, and both may block."""

    name: str

    def poll(self) -> JobView | None:
        """Return the state of the job now, or None if it is not known yet. Raises Failure if waiting is no use."""

    def pause(self, took: float) -> float:
        """Return the seconds until the next poll, after a poll of `took` seconds. Raises Failure after a timeout."""


class Drawer(Protocol):
    def open(self) -> None: ...

    def close(self) -> None: ...

    def show(self, view: JobView, stale: str) -> None: ...

    def end(self, view: JobView) -> None: ...


def show(source: Source, stream: TextIO, *, hint: str = HINT) -> int:
    """Show the job until it ends, and return its exit code. Raises what the source raises, and KeyboardInterrupt."""
    drawer = _drawer(stream, hint)
    feed = _Feed(source)
    feed.start()
    view = None
    try:
        with signals.shown(drawer):
            while view is None or not view.verdict:
                view = feed.wait(_REDRAW_SECONDS) or view
                if view is not None:
                    drawer.show(view, _stale(feed.silence, view))
                elif feed.silence > _STALE_SECONDS:
                    drawer.show(_unknown(source.name), _unanswered(feed.silence))
            drawer.end(view)
    finally:
        feed.stop()
    return view.exit_code or 0


def wait(source: Source) -> int:
    """Wait until the job ends, and return its exit code. Show nothing."""
    while True:
        began = time.monotonic()
        view = source.poll()
        if view is not None and view.verdict:
            return view.exit_code or 0
        time.sleep(source.pause(time.monotonic() - began))


class _Feed:
    """Polls a source in a thread, since a volume or an API server may not answer."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._view: JobView | None = None
        self._is_new = False
        self._error: BaseException | None = None
        self._answered_at = time.monotonic()
        self._pause = 0.0
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="watch").start()

    def stop(self) -> None:
        self._stopped.set()

    @property
    def silence(self) -> float:
        """For how many seconds the source should have answered, and has not."""
        with self._changed:
            return max(0.0, time.monotonic() - self._answered_at - self._pause)

    def wait(self, within: float) -> JobView | None:
        """Return a new view, or None if there is none within this time. Raises what the source has raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_new or self._error is not None, within)
            if self._is_new:
                self._is_new = False
                return self._view
            if self._error is not None:
                raise self._error
            return None

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                began = time.monotonic()
                view = self._source.poll()
                pause = self._source.pause(time.monotonic() - began) if view is None or not view.verdict else 0.0
                with self._changed:
                    self._answered_at, self._pause = time.monotonic(), pause
                    if view is not None:
                        self._view, self._is_new = view, True
                    self._changed.notify()
                if view is not None and view.verdict:
                    return
                self._stopped.wait(pause)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify()


def _drawer(stream: TextIO, hint: str) -> Drawer:
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")  # a terminal need not know all characters that a program prints
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown", ""):
        return PlainLines(stream)
    try:
        from launcher.live.screen import Screen
    except ImportError:
        sys.stderr.write("paddle-launcher: plain lines follow: `pip install 'paddle-launcher[ui]'` adds a live table\n")
        return PlainLines(stream)
    return Screen(stream, hint)


def _stale(silence: float, view: JobView) -> str:
    if silence <= _STALE_SECONDS:
        return ""
    return f"{_unanswered(silence)}: this is the state of {words.clock(view.at)}"


def _unanswered(silence: float) -> str:
    return f"no answer for {duration(silence)}"


def _unknown(name: str) -> JobView:
    return JobView(name, "", time.time(), "waiting")
