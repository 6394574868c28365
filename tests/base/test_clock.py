"""Times in words."""

from __future__ import annotations

import pytest

from launcher.base.clock import duration


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
