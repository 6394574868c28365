"""Factories for the objects that act outside of the launcher's process. Simulations use other factories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launcher.data.staging import Staging
from launcher.discovery.finder import Finder, FinderSettings, make_finder
from launcher.processes.supervisor import Supervisor
from launcher.run.page import Page


@dataclass(frozen=True)
class Factories:
    """Each factory takes the same arguments as its default. page: None if no page is rendered."""

    supervisor: Callable[..., Supervisor] = Supervisor
    finder: Callable[[FinderSettings], Finder] = make_finder
    staging: Callable[..., Staging] = Staging
    page: Callable[..., Page] | None = Page


REAL = Factories()
