"""Helpers for tests of staging: the copies of a job, and runs of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from launcher.data import tree
from launcher.data.pool import Pool
from launcher.data.staging import Copy, Staging
from launcher.data.tree import Tree
from launcher.errors import Failure
from tests.support.logs import logged
from tests.support.paths import REPOSITORY

ENV = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def configuration(job: Path) -> Copy:
    return Copy(str(job / "quick_start"), str(work(job)), "configuration", str(job))


def shard(job: Path, rank: int, destination: Path | None = None) -> Copy:
    target = destination or work(job) / "data"
    return Copy(str(job / str(rank) / "data"), str(target), f"shard of rank {rank}", str(job), 3)


def work(job: Path) -> Path:
    return job.parent.parent / "work"


def stage(job: Path, *copies: Copy) -> list[str]:
    """Run the copies as the launcher does. Return the messages."""

    async def run() -> None:
        staging = Staging(copies, str(work(job)), ENV)
        try:
            await staging.run()
        finally:
            await staging.close()

    with logged() as messages:
        asyncio.run(run())
    return messages


def failing(job: Path, *copies: Copy) -> Failure:
    with pytest.raises(Failure) as failed:
        stage(job, *copies)
    return failed.value


def scanned(pool: Pool, source: Path) -> Tree:
    """Return the scanned tree of a source folder."""
    found = Tree(os.fsencode(source))
    tree.scan(pool, found)
    return found
