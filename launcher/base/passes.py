"""How the folders of saved passes are named: `pass-00000`, `pass-00001`, ..."""

from __future__ import annotations

import os
import re

_PASS = re.compile(r"pass-(\d{5,})")


def pass_folder(save_dir: str, number: int) -> str:
    """Where a pass is saved."""
    return os.path.join(save_dir, f"pass-{number:05d}")


def pass_number(save_dir: str, path: str) -> int | None:
    """Which pass of this folder a path is."""
    match = _PASS.fullmatch(os.path.basename(path))
    number = int(match.group(1)) if match else None
    return number if number is not None and path == pass_folder(save_dir, number) else None
