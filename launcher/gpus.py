"""How many GPUs a trainer of this pod can see."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping


def visible(environment: Mapping[str, str], devices: str = "/dev") -> int:
    """As CUDA_VISIBLE_DEVICES says, else as many as the container was given: device files nvidia0, nvidia1, ..."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return len([name for name in listed.split(",") if name.strip() not in ("", "-1", "NoDevFiles")])
    try:
        names = os.listdir(devices)
    except OSError:
        return 0
    return sum(bool(re.fullmatch(r"nvidia[0-9]+", name)) for name in names)
