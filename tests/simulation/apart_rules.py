"""The rules for members that cannot reach each other, although both reach the hub."""

from __future__ import annotations

import math

from launcher.gang import Finish, HubLost, Stop
from tests.simulation.schedule import Silence
from tests.simulation.story import SILENCE, Judged, Left, Named, Parted, Story, Welcomed

EVERY, CHECK = SILENCE / 3, 5.0  # seconds between two checks, and for one check
NOTICED = SILENCE + EVERY + CHECK + 6.0  # seconds until members that cannot reach each other are named, with any delays


def members_that_cannot_reach_each_other_are_named(story: Story) -> None:
    """Without disturbances: if a member is cut off from the hub meanwhile, the hub cannot know the reason."""
    if not story.undisturbed():
        return
    welcomed = {entry.rank: entry.at for entry in story.of(Welcomed)}
    over = min((entry.at for entry in story.of(Stop, Finish, HubLost, Left)), default=math.inf)
    for parted in story.of(Parted):
        one, other = parted.rank, parted.what.other
        since = max([parted.at, *(welcomed.get(rank, math.inf) for rank in (one, other))])
        names = [named.at for named in story.of(Named, rank=one) if named.what.other == other]
        if min(over, parted.what.until) - since > NOTICED:
            assert [at for at in names if at <= since + NOTICED], f"not named: {parted}"
            causes = [
                judged
                for judged in story.of(Judged)
                if since + NOTICED < judged.at < parted.what.until and judged.what.cause.kind.is_child
            ]
            words = f"rank {one} cannot reach rank {other} at "
            assert all(words in judged.what.sent.what for judged in causes), f"the cause does not name them: {parted}"


def only_members_that_cannot_reach_each_other_are_named(story: Story) -> None:
    """The hub may also name itself and the first member, if its messages do not arrive there, but those of the member.

    Members that are frozen, or that the hub does not hear, are not named for this reason.
    """
    size, faults = story.schedule.size, story.schedule.faults
    unheard = {fault.rank % size for fault in faults if isinstance(fault, Silence)}
    for named in story.of(Named):
        one, other = named.rank, named.what.other
        parted = [
            entry
            for entry in story.of(Parted, rank=one)
            if entry.what.other == other and entry.at < named.at < entry.what.until + EVERY + CHECK
        ]
        assert parted or (one == 0 and unheard & {0, other}), f"they can reach each other: {named}"
        if story.undisturbed():
            assert parted[0].at < named.at - SILENCE + EVERY + CHECK, f"named too early: {named} {parted}"
