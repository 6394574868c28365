"""The page is one file that loads nothing and runs nothing, whatever the events say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from launcher.report import page, reader
from launcher.report.facts import Facts
from tests.support.report_jobs import BEGIN, MadeJob, cause, stamp

Made = Callable[..., Facts]
_EVIL = (
    "</pre></style></title><script>alert(1)</script><img src=http://evil.test/x onerror=alert(2)>"
    "\"'`&amp;\x1b[31m\u202e"
)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_harmless(content: bytes) -> Elements:
    """Check that the page has no script, no handler, no address, and the policy that forbids all of them."""
    elements = Elements(content)
    tags = {tag for tag, _ in elements.found}
    assert not tags & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "link",
        "base",
        "form",
        "a",
        "image",
        "use",
        "animate",
    }
    for _, attributes in elements.found:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("src", "href", "xlink:href", "srcset", "action")
            assert "//" not in (value or "") or name == "title" or name == "aria-label"
    policy = [attributes["content"] for tag, attributes in elements.found if "http-equiv" in attributes]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    style = re.findall(r"<style>(.*?)</style>", content.decode(), re.DOTALL)
    assert len(style) == 1
    assert not re.search(r"url\((?!#)|@import|expression", style[0])
    return elements


@pytest.mark.parametrize("ends", ["complete", "failed", "running"])
def test_the_page_is_harmless_and_small(made: Made, ends: str) -> None:
    content = page.render(made(ends=ends))
    check_harmless(content)
    assert len(content) <= 300 * 1024


def test_the_page_of_a_large_job_is_at_most_2_mib(made: Made) -> None:
    content = page.render(made(ranks=1000, generations=20, every=40))
    check_harmless(content)
    assert len(content) <= 2 * 1024 * 1024


def test_the_parts_of_the_page_are_there(made: Made) -> None:
    content = page.render(made(ends="failed", settings={"LAUNCHER_MAX_RESTARTS": "5"}, versions={"python": "3.11"}))
    text = Elements(content).text
    for heading in ("What each member did", "Speed", "Passes", "Generations", "Failures", "Members", "Configuration"):
        assert heading in text
    for words in ("Goodput", "Restarts", "Passes kept", "Examples/s", "Newest loss", "LAUNCHER_MAX_RESTARTS", "3.11"):
        assert words in text


def test_everything_from_the_volume_is_escaped(tmp_path: Path) -> None:
    evil = {"pod": _EVIL, "role": _EVIL, "uid": _EVIL}
    why = {**cause(1, what=_EVIL, kind="trainer"), "pod": _EVIL, "tail": [_EVIL], "role": _EVIL}
    job = MadeJob(ends="failed", generations=1, cause=why, settings={"JOB_NAME": _EVIL}, versions={"python": _EVIL})
    output = job.write(tmp_path) / "output"
    gang = {"v": 1, "at": stamp(BEGIN + 9), "event": "gang", "job": _EVIL, "members": [{"rank": 1, **evil}]}
    lines = [json.dumps(gang | {"settings": {"JOB_NAME": _EVIL}, "versions": {"python": _EVIL}})]
    member: list[dict[str, Any]] = [
        {"event": "warning", "text": _EVIL},
        {"event": "phase", "phase": _EVIL, "generation": 0},
        {"event": "process_ended", "process": _EVIL, "exit_code": 1, "out_of_memory": _EVIL, "tail": [_EVIL]},
        {"event": "joined", "rank": 1, **evil},
    ]
    lost = {"v": 1, "at": stamp(BEGIN + 99), "event": "peer_lost", "peer": {"rank": 1, **evil}, "why": _EVIL}
    (output / "events.jsonl").write_text(
        "\n".join([*lines, (output / "events.jsonl").read_text(), json.dumps(lost), ""])
    )
    with (output / "node_1" / "events.jsonl").open("a") as file:
        for number, event in enumerate(member):
            file.write(json.dumps({"v": 1, "at": stamp(BEGIN + 300 + number), **event}) + "\n")
    content = page.render(reader.read(str(output)))
    elements = check_harmless(content)
    assert "alert(1)" in elements.text
    assert "\x1b" not in content.decode()
    assert "\u202e" not in content.decode()


def test_no_secret_is_shown(made: Made) -> None:
    settings = {
        "LAUNCHER_SECRET_FILE": "concealed-1",
        "AWS_TOKEN": "concealed-2",
        "LAUNCHER_TLS_DIR": "concealed-3",
        "x": "concealed-4",
    }
    content = page.render(made(settings=settings, versions={"password": "concealed-5"}))
    assert b"concealed" not in content


def test_a_job_that_has_not_begun_has_a_page_that_says_so(tmp_path: Path) -> None:
    elements = check_harmless(page.render(reader.read(str(tmp_path))))
    assert "The job has not begun" in elements.text


def test_a_diverged_training_and_a_slow_trainer_are_named(tmp_path: Path) -> None:
    job = MadeJob(generations=1)
    job.write(tmp_path)
    with (tmp_path / "output" / "node_0" / "events.jsonl").open("a") as file:
        file.write(
            json.dumps({"v": 1, "at": stamp(job.end), "event": "numbers", "loss": "nan", "generation": 0}) + "\n"
        )
    text = Elements(page.render(reader.read(str(tmp_path / "output")))).text
    assert "The loss is not a number since" in text
    assert "rank 2 (pod quick-start-2) is 3" in text
    assert "slower than the median trainer" in text


def test_the_page_of_a_job_that_changed_its_size_shows_the_size_of_each_generation(elastic: Facts) -> None:
    text = Elements(page.render(elastic)).text
    assert "2 to 3 to 2 trainers" in text
    assert "change of size: the job grows from 2 to 3 trainers" in text
    assert "change of size: rank 2 (pod quick-start-2): got SIGTERM" in text
    assert "Restarts2" in text


def test_the_page_of_a_job_of_fixed_size_says_nothing_of_sizes(made: Made) -> None:
    content = page.render(made(sizes=(3,) * 5)).decode()
    assert "hange of size" not in content
    assert "trainers</th>" not in content
