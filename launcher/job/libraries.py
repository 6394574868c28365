"""The libraries of this package, where a Python can import the package alone."""

from __future__ import annotations

import os
import sys

import launcher


def reach() -> None:
    """Images link this package into their own Python, which is to keep its own libraries: ours come after them all."""
    ours = os.path.dirname(os.path.dirname(os.path.realpath(launcher.__file__)))
    if ours not in sys.path:
        sys.path.append(ours)
