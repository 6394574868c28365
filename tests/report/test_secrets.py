"""What looks like a secret is concealed, and numbers of a training are not."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from launcher.report import page
from launcher.report.facts import Facts
from launcher.report.secrets import conceal
from tests.support.report_jobs import cause


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --token=abc123 --epochs 3", "train.py --token=[concealed] --epochs 3"),
        ("train.py --hub-token abc123 --epochs 3", "train.py --hub-token [concealed] --epochs 3"),
        ("AWS_SECRET_ACCESS_KEY=abc/12+3=", "AWS_SECRET_ACCESS_KEY=[concealed]"),
        ("AWS_ACCESS_KEY_ID: AKIA12345", "AWS_ACCESS_KEY_ID: [concealed]"),
        ('{"password": "abc123", "user": "x"}', '{"password": "[concealed]", "user": "x"}'),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [concealed]"),
        ("proxy http://user:abc123@proxy:3128/", "proxy http://user:[concealed]@proxy:3128/"),
        ("token: 512, tokens: 8, tokens_per_second=812.5", "token: 512, tokens: 8, tokens_per_second=812.5"),
        ("loss: 0.25, key: value, http://host:80/a", "loss: 0.25, key: value, http://host:80/a"),
    ],
)
def test_what_looks_like_a_secret_is_concealed(text: str, shown: str) -> None:
    assert conceal(text) == shown


def test_no_text_takes_long() -> None:
    began = time.process_time()
    for text in ("a" * 2000, "token" * 400, "--token " * 250, "http://" + ":" * 2000, "secret_" * 300 + "="):
        conceal(text)
    assert time.process_time() - began < 5


def test_a_secret_in_the_last_lines_is_not_on_the_page(made: Callable[..., Facts]) -> None:
    told = "started with --token=hidden-1"
    why = cause(1, what=f"trainer ended: {told}", tail=["API_KEY=hidden-2", told])
    facts = made(ends="failed", generations=1, cause=why)
    content = page.render(facts)
    assert b"hidden-" not in content
    assert b"API_KEY=[concealed]" in content
