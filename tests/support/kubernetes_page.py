"""docs/kubernetes.md: its blocks by heading, which of them a reader runs, and the names that the reader gives."""

from __future__ import annotations

import os
import re

from tests.support.pages import Block, blocks
from tests.support.paths import REPOSITORY

PAGE = REPOSITORY / "docs" / "kubernetes.md"
CAN_WRITE = "Let the pods write to the volume"  # messages of the launcher name this heading

# The headings of the page whose blocks a reader runs, in this order.
SHARED = ("Create the namespace and your manifests", "Create the volume", CAN_WRITE)
TODAY = (
    "Build the images",
    *SHARED,
    "Make the shards",
    "Train",
    "Find out why a job failed",
    "Run your own job",
    "Clean up",
)
V0 = (
    "Build the images for Paddle v0",
    *SHARED,
    "Make the shards for Paddle v0",
    "Train with Paddle v0 in three pods",
    "Why a job of Paddle v0 failed",
    "Run your own job of Paddle v0",
    "Use the 2016 manifests",
    "Clean up",
)
VOLCANO = "If you removed Volcano"  # for the whole cluster, so it has a test of its own


def names_for(namespace: str) -> str:
    """Return the settings of the first block of a page, for a test on a cluster."""
    image, _, tag = os.environ["E2E_IMAGE"].rpartition(":")
    data_image, _, data_tag = os.environ["E2E_DATA_IMAGE"].rpartition(":")
    assert tag == data_tag, "the pages give both images one tag: E2E_IMAGE and E2E_DATA_IMAGE must have that too"
    return f"export NAMESPACE={namespace} IMAGE={image} DATA_IMAGE={data_image} TAG={tag}"


def sections() -> dict[str, list[Block]]:
    """Return the blocks of each heading that has some, without those of the headings below it."""
    page = PAGE.read_text()
    headings = [
        (page.count("\n", 0, found.start()) + 1, found[1]) for found in re.finditer(r"^##+ (.+)$", page, re.MULTILINE)
    ]
    made: dict[str, list[Block]] = {}
    for block in blocks(page):
        heading = max((line, name) for line, name in headings if line < block.line)[1]
        made.setdefault(heading, []).append(block)
    return made
