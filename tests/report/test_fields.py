"""Each field of an event is checked, and every text is short and printable."""

from __future__ import annotations

import math

import pytest

from launcher.report import fields


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2026-11-18T11:06:40Z", 1_795_000_000.0),
        ("2026-11-18T11:06:40.250Z", 1_795_000_000.25),
        ("2026-11-18T11:06:40", None),
        ("2026-99-18T11:06:40Z", None),
        ("x" * 23 + "Z", None),
        (7, None),
        (None, None),
    ],
)
def test_a_stamp_is_a_time_in_utc(stamp: object, seconds: float | None) -> None:
    assert fields.seconds(stamp) == seconds


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (0.5, 0.5),
        ("inf", math.inf),
        (True, None),
        ("1", None),
        (10**40, math.inf),
        (-1e308, -math.inf),
        ([], None),
    ],
)
def test_a_decimal_may_be_a_text_only_if_it_is_not_finite(value: object, number: float | None) -> None:
    assert fields.decimal({"loss": value}, "loss") == number


def test_nan_is_read() -> None:
    assert math.isnan(fields.decimal({"loss": "nan"}, "loss") or 0.0)


def test_texts_are_cut_and_escaped() -> None:
    shown = fields.text({"text": "a\x1b[31m\u202e" + "b" * 9000}, "text")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert len(shown) < 2100


def test_lines_are_the_last_ones() -> None:
    found = fields.lines({"tail": [str(number) for number in range(500)] + [7, "last\x00"]}, "tail")
    assert found[-1] == r"last\x00"
    assert len(found) < 61


def test_only_allowed_variables_are_read_and_none_that_may_be_secret() -> None:
    given = {
        "LAUNCHER_MAX_RESTARTS": 5,
        "AWS_SECRET_ACCESS_KEY": "x",
        "LAUNCHER_SECRET_FILE": "/x",
        "JOB_NAME": {"a": 1},
    }
    assert fields.allowed({"settings": given}, "settings", fields.SETTINGS) == {"LAUNCHER_MAX_RESTARTS": "5"}
    assert not [name for name in fields.SETTINGS if "SECRET" in name or "TLS" in name]
    assert "LAUNCHER_MODE" in fields.SETTINGS
