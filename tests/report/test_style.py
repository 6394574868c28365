"""All texts can be read in light and dark, and all states can be told apart without colours."""

from __future__ import annotations

import re

import pytest

from launcher.report.drawing import PATTERNS
from launcher.report.facts import STATES
from launcher.report.style import STYLE

_THEMES = re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)


def colours(theme: str) -> dict[str, str]:
    found = dict(re.findall(r"--([a-z0-9]+):\s*(#[0-9a-f]{3,6})", theme))
    return {
        name: value if len(value) == 7 else "#" + "".join(c * 2 for c in value[1:]) for name, value in found.items()
    }


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", _THEMES, ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [*((text, ground) for text in ("ink", "soft", "faint", "bad", "good", "busy") for ground in ("paper", "card"))]
    + [("on", "training")],
)
def test_texts_have_the_contrast_that_wcag_asks_for(theme: str, text: str, ground: str) -> None:
    known = colours(theme)
    assert contrast(known[text], known[ground]) >= 4.5


@pytest.mark.parametrize("theme", _THEMES, ids=["light", "dark"])
def test_curves_can_be_seen(theme: str) -> None:
    known = colours(theme)
    for number in range(8):
        assert contrast(known[f"l{number}"], known["paper"]) >= 3


def test_each_state_has_a_style_and_states_of_like_brightness_have_patterns() -> None:
    for state in STATES:
        assert f".s-{state}" in STYLE
    for state in ("waiting", "staging", "serving", "restarting", "lost"):
        assert f'id="p-{state}"' in PATTERNS
