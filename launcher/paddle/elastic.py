"""The variables that only programs of elastic jobs get: docs/elastic.md explains them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from launcher.config import JobConfig
from launcher.model import Start

STEP_FILE = "LAUNCHER_STEP_FILE"


def sizes(config: JobConfig, nodes: int, start: Start) -> Mapping[str, str]:
    """Return how many nodes train now, and how many did before: the program adapts its batch size or learning rate."""
    if not config.is_elastic:
        return {}
    before = "" if start.trainers_before is None else str(start.trainers_before)
    return {"LAUNCHER_NODES_NOW": str(nodes), "LAUNCHER_NODES_BEFORE": before}


def step_file(config: JobConfig, number: int) -> Mapping[str, str]:
    """Return where `launcher.train.should_stop` finds whether to stop. `number`: of the trainer in this member."""
    if not config.is_elastic:
        return {}
    return {STEP_FILE: os.path.join(config.workdir, f".launcher-steps-{number}")}


def data_folders(config: JobConfig, number: int, shards: range) -> Mapping[str, str]:
    """Return where one trainer of this member finds its shards. `number`: of the trainer in this member."""
    data = config.data_folder(number)
    return {"LAUNCHER_DATA_DIRS": os.pathsep.join(os.path.join(data, str(shard)) for shard in shards)}
