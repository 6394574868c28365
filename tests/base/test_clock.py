"""Times in words."""

from __future__ import annotations

import time

import pytest

from launcher.base.clock import WallClock, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 s"),
        (7.4, "7 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (20_000, "5 h 33 min"),
        (270_000, "3 d 3 h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_clock_that_was_set_is_noticed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, now = WallClock(), time.time
    assert clock.change() == 0.0
    monkeypatch.setattr(time, "time", lambda: now() - 7200)
    assert clock.change() == pytest.approx(-7200, abs=1)
    assert clock.change() == 0.0
