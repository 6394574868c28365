"""What docs/resume.md leaves open: a launcher that is itself frozen ends its children only once it wakes."""

from __future__ import annotations

from chaos.plan import FENCE, SILENCE, STOP_GRACE
from chaos.rounds import Story
from chaos.traces import Run, Stamp

_HEARD = 5.0  # seconds before it froze, at most, it was heard last
_WAKES = 15.0  # what was said meanwhile may still come, for two beats of 5 s; it looks at each beat
_ENDS = 5.0  # its children, on a machine with much to do


def beside(story: Story, run: Run, since: int) -> list[Stamp]:
    """What a trainer did after another one had begun at `since`, and must not do."""
    return [stamp for stamp in run.stamps if stamp.at > since and not is_late(story, stamp, since)]


def is_late(story: Story, stamp: Stamp, since: int) -> bool:
    """Whether its launcher was frozen for so long before `since` as others wait, and could not yet have ended it."""
    waited = int((SILENCE - _HEARD + FENCE) * 1e9)
    within = int((_WAKES + STOP_GRACE + _ENDS) * 1e9)
    return stamp.at > since and any(
        frozen.pod == stamp.pod
        and frozen.replaced
        and frozen.since + waited < since
        and stamp.at < frozen.until + within
        for frozen in story.frozen
    )
