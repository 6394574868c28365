"""The page of a job is rendered by a child. Whatever happens to this child, the launcher does not wait for it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from launcher.base.files import Folder
from launcher.run import page
from launcher.run.page import Page
from launcher.store.events import EventLog, new_event
from tests.support.members import in_loop, until


def job(folder: Path) -> EventLog:
    """Return the timeline of a job whose only event is not written yet."""
    log = EventLog()
    log.add(new_event("gang", job="job", members=[]))
    log.open(Folder(str(folder)))
    return log


def page_of(folder: Path, log: EventLog) -> Page:
    return Page(str(folder), dict(os.environ), log.flush)


@in_loop
async def test_the_page_is_there_when_the_launcher_has_finished_it(tmp_path: Path) -> None:
    await page_of(tmp_path, job(tmp_path)).finish(30)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


@in_loop
async def test_a_page_that_is_not_rendered_in_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def stalls(self: Page) -> None:
        await asyncio.Event().wait()

    caplog.set_level("INFO")
    monkeypatch.setattr(Page, "_render", stalls)
    began = time.monotonic()
    await page_of(tmp_path, job(tmp_path)).finish(0.1)
    assert time.monotonic() - began < 20
    assert caplog.messages == ["report.html does not show the end of the job: it was not rendered within 0.1 s"]


@in_loop
async def test_one_more_page_is_rendered_after_all_changes_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered: list[None] = []
    gate = asyncio.Event()

    async def render(self: Page) -> None:
        rendered.append(None)
        await gate.wait()

    monkeypatch.setattr(Page, "_render", render)
    shown = page_of(tmp_path, job(tmp_path))
    shown.render()
    await until(lambda: rendered)
    for _ in range(5):
        shown.render()
    gate.set()
    await shown.finish(30)
    assert len(rendered) == 2


@pytest.mark.parametrize("child", ["launcher.no_such_module", "launcher.report.child"])
@in_loop
async def test_a_child_that_fails_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, child: str
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(page, "_CHILD", child)
    shown = page_of(tmp_path / "missing", job(tmp_path))
    for _ in range(2):
        await shown.finish(30)
    (line,) = caplog.messages
    assert line.startswith("report.html is not up to date: ")
    assert line.endswith("; `paddle-launcher report` renders it again")
