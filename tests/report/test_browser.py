"""The page in a real browser. Needs Debian's chromium and the package playwright."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.report import fields, page, reader
from launcher.report.facts import Facts
from tests.support.browser import CHROMIUM, running_browser
from tests.support.report_jobs import MadeJob, cause

pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running_browser() as running:
        yield running


class Opened:
    """A page in the browser, with all that it has asked for and complained about."""

    def __init__(self, browser: Any, path: Path, width: int, height: int, scheme: str) -> None:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(path.as_uri())

    def boxes(self, selector: str) -> list[dict[str, float]]:
        """Return the places of all elements that match, in pixels."""
        script = "all => all.map(one => {const b = one.getBoundingClientRect();"
        script += " return {left: b.left, right: b.right, top: b.top, bottom: b.bottom}})"
        found: list[dict[str, float]] = self.page.eval_on_selector_all(selector, script)
        return found

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Open:
    """Write the report of a job, and open it."""

    def open_page(job: MadeJob, width: int = 1280, height: int = 800, scheme: str = "light") -> Opened:
        job.write(tmp_path)
        facts = reader.read(str(tmp_path / "output"), now=job.end + 1)
        return Opened(browser, written(tmp_path, facts), width, height, scheme)

    return open_page


def written(folder: Path, facts: Facts) -> Path:
    path = folder / "report.html"
    path.write_bytes(page.render(facts))
    return path


def timeline(folder: Path) -> list[dict[str, Any]]:
    """Return the events of one member, each with its time in seconds."""
    found = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [event | {"time": fields.seconds(event["at"])} for event in found]


@pytest.mark.parametrize("ends", ["complete", "failed", "running"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_asks_for_nothing_and_has_no_error(opened: Open, ends: str, scheme: str) -> None:
    shown = opened(MadeJob(ends=ends), scheme=scheme)
    assert [url.partition(":")[0] for url in shown.requests] == ["file"]
    assert shown.complaints == []


def test_the_browser_blocks_what_the_page_could_ask_for(opened: Open) -> None:
    shown = opened(MadeJob())
    shown.run("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x'}))")
    shown.page.wait_for_timeout(200)
    assert any("Content Security Policy" in text for text in shown.complaints)


@pytest.mark.parametrize("lines", [3, 60], ids=["few short lines", "many long lines"])
def test_the_first_cause_is_seen_without_scrolling(opened: Open, lines: int) -> None:
    tail = [f"line {number} " + "x" * (6 * lines) for number in range(lines)]
    what = "trainer (`python train.py`) ended with exit code 1: " + "the reason of the failure, in many words. " * 5
    shown = opened(MadeJob(ends="failed", generations=2, cause=cause(1, what=what, tail=tail)))
    (head,) = shown.boxes("h1")
    assert head["bottom"] < 400
    assert "rank 1 (pod quick-start-1)" in shown.page.inner_text("h1")
    places = [*shown.boxes(".why > div > pre"), *shown.boxes(".why ul")]
    assert len(places) == 2
    assert all(place["bottom"] <= 800 for place in places)
    assert f"line {lines - 1} " in shown.page.inner_text(".why > div > pre")


def test_the_lanes_have_the_times_of_the_events(opened: Open, tmp_path: Path) -> None:
    shown = opened(MadeJob())
    found = [timeline(tmp_path / "output" / f"node_{rank}") for rank in range(3)]
    begin = min(events[0]["time"] for events in found)
    end = timeline(tmp_path / "output")[-1]["time"]
    for rank, events in enumerate(found):
        (lane,) = shown.boxes(f'svg.lane[aria-label="rank {rank}"]')
        width = lane["right"] - lane["left"]
        bars = shown.boxes(f'svg.lane[aria-label="rank {rank}"] > rect.s-training')
        phases = [event for event in events if event["event"] == "phase"]
        expected = [
            (one["time"], other["time"]) for one, other in itertools.pairwise(phases) if one["phase"] == "training"
        ]
        assert len(bars) == len(expected) == 5
        for bar, times in zip(bars, expected, strict=True):
            wanted = [lane["left"] + (at - begin) / (end - begin) * width for at in times]
            assert [bar["left"], bar["right"]] == pytest.approx(wanted, abs=3)


def test_the_curves_have_the_numbers_of_the_events(opened: Open, tmp_path: Path) -> None:
    shown = opened(MadeJob(generations=2))
    begin = min(timeline(tmp_path / "output" / f"node_{rank}")[0]["time"] for rank in range(3))
    end = timeline(tmp_path / "output")[-1]["time"]
    script = "(all) => all.map(one => one.getAttribute('d'))"
    paths = shown.page.eval_on_selector_all('svg.chart[aria-label="loss over time"] path.line', script)
    assert len(paths) == 3
    for rank, path in enumerate(paths):
        points = [tuple(map(float, point.split())) for part in path.split("M")[1:] for point in part.split("L")]
        numbers = [event for event in timeline(tmp_path / "output" / f"node_{rank}") if event["event"] == "numbers"]
        assert len(points) == len(numbers)
        for (x, _), event in zip(points, numbers, strict=True):
            assert x == pytest.approx((event["time"] - begin) / (end - begin) * 1000, abs=0.2)
        losses = [event["loss"] for event in numbers]
        heights = [-y for _, y in points]
        rise = (heights[0] - heights[-1]) / (losses[0] - losses[-1])
        for height, loss in zip(heights, losses, strict=True):
            assert height == pytest.approx(heights[-1] + rise * (loss - losses[-1]), abs=0.5)


@pytest.mark.parametrize("ends", ["complete", "failed", "running"])
def test_the_page_is_legible_on_a_small_screen(opened: Open, ends: str) -> None:
    shown = opened(MadeJob(ends=ends), width=400, height=800)
    assert shown.run("document.documentElement.scrollWidth") <= 400
    (head,) = shown.boxes("h1")
    assert head["right"] <= 400
    assert head["bottom"] < 400
    sizes = "[...document.querySelectorAll('main *')].filter(e => e.textContent.trim() && e.offsetParent !== null)"
    assert shown.run(f"Math.min(...{sizes}.map(e => parseFloat(getComputedStyle(e).fontSize)))") >= 11
    texts = shown.boxes('svg[aria-label="time, UTC"] g:not(.narrow) > text:first-child')
    row = [box for box in texts if box["top"] == texts[0]["top"]]
    assert len(row) >= 2
    assert all(one["right"] <= other["left"] for one, other in itertools.pairwise(row))


def test_numbers_of_many_generations_and_passes_do_not_overlap_on_a_small_screen(opened: Open) -> None:
    shown = opened(MadeJob(generations=20, passes=4, every=0), width=400, height=800)
    for row in ("generations", "passes"):
        boxes = shown.boxes(f'svg[aria-label="{row}"] > text')
        seen = [box for box in boxes if box["right"] > box["left"]]
        assert 4 <= len(seen) < len(boxes)
        assert all(one["right"] <= other["left"] for one, other in itertools.pairwise(seen))


def test_a_large_job_is_shown_without_a_wide_page(opened: Open) -> None:
    shown = opened(MadeJob(ranks=300, generations=6, every=20))
    assert len(shown.boxes("svg.lane")) <= 40
    assert shown.run("document.documentElement.scrollWidth") <= 1280
    assert "ranks 5\N{EN DASH}299" in shown.page.inner_text(".time")


def test_without_scripts_the_page_is_the_same(browser: Any, tmp_path: Path) -> None:
    job = MadeJob()
    job.write(tmp_path)
    path = written(tmp_path, reader.read(str(tmp_path / "output"), now=job.end + 1))
    texts = []
    for enabled in (True, False):
        shown = browser.new_context(java_script_enabled=enabled).new_page()
        shown.goto(path.as_uri())
        texts.append(shown.locator("body").inner_text())
    assert texts[0] == texts[1]
    assert "What each member did" in texts[0]
