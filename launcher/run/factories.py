"""How a launcher makes what reaches outside of its own process; the simulation passes others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launcher.data.staging import Staging
from launcher.discovery.finder import Finder, FinderSettings, make_finder
from launcher.processes.supervisor import Supervisor


@dataclass(frozen=True)
class Factories:
    """Each is called with the arguments of its default."""

    supervisor: Callable[..., Supervisor] = Supervisor
    finder: Callable[[FinderSettings], Finder] = make_finder
    staging: Callable[..., Staging] = Staging


REAL = Factories()
