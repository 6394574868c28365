"""Keep evidence of a round that has violated an invariant."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from chaos import limits
from chaos.rounds import Story


def keep(story: Story, violated: list[str], again: str) -> Path:
    """Write all evidence to a new folder, which is not removed, and return the folder.

    again: the command that repeats the round
    """
    kept = Path(tempfile.mkdtemp(prefix=f"chaos-seed-{story.plan.seed}-"))
    limit = [f"{seconds:6.1f} s  {reason}" for reason, seconds in limits.parts(story.plan)]
    chapters = {
        "violated": violated,
        "again": [again],
        "plan": [str(story.plan), *map(str, story.plan.faults)],
        "done": [f"{done}: {done.what}" for done in story.done],
        "ends": [f"{end}" for end in story.ends],
        "limit": [*limit, f"{limits.seconds(story.plan):6.1f} s"],
        "said": [story.said],
        "left": story.left,
        "processes": [story.processes],
    }
    for name, lines in chapters.items():
        (kept / name).write_text("\n".join(lines) + "\n")
    shutil.copy(story.stamps, kept / "stamps")
    shutil.copytree(story.folder / "output", kept / "output", ignore_dangling_symlinks=True, dirs_exist_ok=True)
    return kept
