"""Quantities of memory, as Kubernetes writes them."""

from __future__ import annotations

import re

_FACTORS = {
    "": 1.0,
    "m": 1e-3,
    **{suffix: 1000.0**power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{suffix}i": 1024.0**power for power, suffix in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}
_FACTORS["K"] = _FACTORS["k"]
_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([A-Za-z]{0,2})")
_LEAST = 1000.0**2  # bytes: no program starts with less


def too_little(quantity: object) -> str | None:
    """Return why this is too little memory for any program, and what may be meant. None if it may be enough.

    A number without a suffix is a number of bytes, so 512 is hardly what the user means. Quantities that are not valid
    are not judged.
    """
    match = _QUANTITY.fullmatch(str(quantity)) if isinstance(quantity, (int, float, str)) else None
    if match is None or isinstance(quantity, bool) or match[2] not in _FACTORS:
        return None
    size = float(match[1]) * _FACTORS[match[2]]
    if not 0 < size < _LEAST:
        return None
    return f"{quantity!r}: is {size:.12g} bytes, too little for any program: expected {match[1]}M or {match[1]}Mi?"
