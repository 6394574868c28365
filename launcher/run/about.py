"""What a job runs with, as the report shows it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from launcher import __version__, paddle
from launcher.config import JobConfig


def about(config: JobConfig, command: Sequence[str]) -> Mapping[str, object]:
    """Return mode, settings and versions. The report shows them, so no variable of the user is among them."""
    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "mode": paddle.mode(config, command),
        "settings": config.given,
        "versions": {"launcher": __version__, "python": python, "kernel": os.uname().release},
    }
