"""An exception that docs/resume.md describes: a launcher that is frozen ends its children only after it wakes."""

from __future__ import annotations

from chaos.plan import FENCE, SILENCE, STOP_GRACE
from chaos.rounds import Story
from chaos.traces import Run, Stamp

_HEARD = 5.0  # at most so many seconds before it froze, its last message was received
_WAKES = 15.0  # seconds until an awake launcher notices: earlier messages may still arrive for two heartbeats of 5 s
_ENDS = 5.0  # seconds for the end of its children on a busy machine


def beside(story: Story, run: Run, since: int) -> list[Stamp]:
    """Return the stamps of a run after another trainer began at `since`, without those that are allowed."""
    return [stamp for stamp in run.stamps if stamp.at > since and not is_late(story, stamp, since)]


def is_late(story: Story, stamp: Stamp, since: int) -> bool:
    """Return whether a stamp after `since` is allowed, because the trainer's launcher was frozen and replaced.

    The launcher was frozen before `since` for as long as the others wait, and had no time to end the trainer yet.
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
