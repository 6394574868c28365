"""Conceal what looks like a secret in the texts of the report: people send the page to others.

A program may print anything, so this finds only usual forms: `--token=abc`, `API_KEY: abc`, `"password": "abc"`,
`Authorization: Bearer abc` and `https://user:abc@host`.
"""

from __future__ import annotations

import re

_CONCEALED = "[concealed]"
_NAME = r"[\w-]{0,60}(?:secret|password|passwd|token|credential|(?:api|access|private|secret)[_-]?key)(?:[_-]?id)?"
_VALUE = r"(?!\d+(?:\.\d+)?(?:[\s,;]|$))[^\s'\",;&]{4,}"  # a number is no secret: `token: 512`
_HINT = re.compile(r"secret|passw|token|credential|key|authorization|://", re.IGNORECASE)  # each match has one of these
_PATTERNS = (
    re.compile(rf"(\b{_NAME}['\"]?\s{{0,4}}[=:]\s{{0,4}}['\"]?){_VALUE}", re.IGNORECASE),
    re.compile(rf"(--{_NAME}\s{{1,4}}['\"]?)(?!-){_VALUE}", re.IGNORECASE),
    re.compile(rf"(\bauthorization['\"]?\s{{0,4}}[=:]\s{{0,4}}['\"]?(?:bearer|basic)\s{{1,4}}){_VALUE}", re.IGNORECASE),
    re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,60}:)[^\s/@]{1,200}(?=@)", re.IGNORECASE),
)


def conceal(text: str) -> str:
    """Return the text with what looks like a secret replaced."""
    for pattern in _PATTERNS if _HINT.search(text) else ():
        text = pattern.sub(rf"\1{_CONCEALED}", text)
    return text
