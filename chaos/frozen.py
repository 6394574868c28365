"""An exception that docs/resume.md describes: a frozen launcher ends its processes only after it wakes."""

from __future__ import annotations

from chaos.plan import FENCE, SILENCE, STOP_GRACE
from chaos.rounds import Story
from chaos.traces import Run, Stamp

_HEARD = 5.0  # seconds: the last message before the freeze is at most so old
_WAKES = 15.0  # seconds until an awake launcher notices the loss. Earlier messages may still arrive for 10 s
_ENDS = 5.0  # seconds until its processes have ended, on a busy machine


def beside(story: Story, run: Run, since: int) -> list[Stamp]:
    """Return the stamps of a run after another trainer began at `since`, without those that are allowed."""
    return [stamp for stamp in run.stamps if stamp.at > since and not is_late(story, stamp, since)]


def is_late(story: Story, stamp: Stamp, since: int) -> bool:
    """Return whether a stamp after `since` is allowed, because the trainer's launcher was frozen and replaced.

    Before `since`, the launcher was frozen for as long as the other members wait.
    Since it woke, the launcher had no time yet to end the trainer.
    """
    waited = int((SILENCE - _HEARD + FENCE) * 1e9)
    within = int((_WAKES + STOP_GRACE + _ENDS) * 1e9)
    return stamp.at > since and any(
        frozen.pod == stamp.pod
        and frozen.replaced
        and frozen.since + waited < since
        and stamp.at < frozen.until + within
        for frozen in story.frozen
    )
