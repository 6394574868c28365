"""The folder names of saved passes: `pass-00000`, `pass-00001`, ..."""

from __future__ import annotations

import os
import re

_PASS = re.compile(r"pass-(\d{5,})")


def pass_folder(save_dir: str, number: int) -> str:
    return os.path.join(save_dir, f"pass-{number:05d}")


def pass_number(save_dir: str, path: str) -> int | None:
    """Return the number of the pass with this path, or None if the path is not a pass folder of `save_dir`."""
    match = _PASS.fullmatch(os.path.basename(path))
    number = int(match.group(1)) if match else None
    return number if number is not None and path == pass_folder(save_dir, number) else None
