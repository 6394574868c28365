"""How the simulation searches through schedules: with a seed, and always the same ones for it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

SEED = int(os.environ.get("GANG_SEED", "0"))


def schedules(always: int) -> int:
    """Return how many schedules to search: GANG_SCHEDULES, or the number that every run searches."""
    return int(os.environ.get("GANG_SCHEDULES", always))


def searching(number: int) -> settings:
    """Return the settings of a search through this many schedules. Without a deadline: a schedule may take long."""
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
