"""Make the launcher's libraries importable in a Python that has only the package `launcher`."""

from __future__ import annotations

import os
import sys

import launcher


def add_libraries() -> None:
    """Append the launcher's libraries to the import path.

    Images link only the launcher's package into their own Python. The launcher's libraries come last in the import
    path, so that they replace no library of the image.
    """
    folder = os.path.dirname(os.path.dirname(os.path.realpath(launcher.__file__)))
    if folder not in sys.path:
        sys.path.append(folder)
