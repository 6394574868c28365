"""Hub and members keep their rules in a thousand random schedules of faults, in simulated time.

GANG_SCHEDULES is the number of schedules. GANG_SEED, if it is not 0, selects other schedules than the default ones.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given, seed

from launcher.base.log import shown_by
from launcher.gang import (
    Begin,
    Finish,
    HubLost,
    Stop,
)
from launcher.model import Cause, Start
from tests.simulation import world
from tests.simulation.rules import RULES
from tests.simulation.schedule import (
    NEARLY_LOST,
    SCHEDULED,
    SLOW_MARK,
    Apart,
    Cut,
    Death,
    Freeze,
    Off,
    Pace,
    Schedule,
    Silence,
    Told,
)
from tests.simulation.search import SEED, schedules, searching
from tests.simulation.story import Failed, Job, Judged, LastWord, Named, Prepared, Story, Welcomed

ALWAYS = 1000
SCHEDULES = schedules(ALWAYS)


seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, shown_by(logging.NullHandler()):
        world.move_in(patch)
        yield


def count(story: Story) -> None:
    ends = [entry.what for entry in story.ends().values()]
    stops = [end for end in ends if isinstance(end, Stop)]
    complete = any(isinstance(end, Finish) for end in ends)
    welcomed = Counter(entry.rank for entry in story.of(Welcomed))
    failed = {entry.what.cause for entry in story.of(Failed)}
    judged = story.of(Judged)
    starts = [entry.what.start for entry in story.of(Prepared)]
    happened = {
        "complete": complete,
        "complete after a restart": complete and judged,
        "complete after a reconnect": complete and max(welcomed.values()) > 1,
        "a third attempt": any(entry.what.attempt == 2 for entry in story.of(Begin)),
        "all stopped by one cause": len(stops) == story.schedule.size and len({stop.cause for stop in stops}) == 1,
        "to rejoin": any(stop.rejoin for stop in stops),
        "lost in silence": any(stop.cause.silent for stop in stops),
        "processes that did not end in time": any("not started again" in stop.cause.what for stop in stops),
        "a start that was refused": any(isinstance(start, Cause) for start in starts),
        "resumed after a pass": any(isinstance(start, Start) and start.resume for start in starts),
        "another gang is ahead": any(
            isinstance(start, Start) and start.generation > number for number, start in enumerate(starts)
        ),
        "a third pause": len([start for start in starts if isinstance(start, Start)]) > 3,
        "twice the same": any(
            isinstance(start, Cause) and "came twice without progress" in start.what for start in starts
        ),
        "no attempts left": any("attempts in a row" in entry.what.sent.what for entry in judged),
        "no restarts left": 0 < story.schedule.restarts < sum(entry.what.cause.kind.is_child for entry in judged),
        "stopped without a verdict": any(
            isinstance(end.what, Stop) and rank and not story.of(LastWord, rank=rank)
            for rank, end in story.ends().items()
        ),
        "hub lost": any(isinstance(end, HubLost) for end in ends),
        "members that cannot reach each other": bool(story.of(Named)),
        "a cause that names them": any("cannot reach" in entry.what.sent.what for entry in judged),
        "several causes, undisturbed": story.undisturbed() and judged and len(failed) > 1,
    }
    seen.update({name: bool(so) for name, so in happened.items()})


# Rank 2 repeats that it has ended attempt 0. The cut holds it back, and the hub hears it when attempt 1 is over, too.
HEARD_TOO_LATE = Schedule(
    delays=(0.2,),
    paces=(Pace(trains=20.0), Pace(trains=20.0), Pace(trains=20.0, ends=4.0)),
    faults=(
        Death(0.0, 1, "pserver", 137, 0.0),
        Cut(7.0, 2, 0.0, 0.0),
        Silence(0.6, 2, up=True, down=False, seconds=3.0),
        Death(0.1, 1, "trainer", 137, 0.0),
    ),
    restarts=2,
)
# The mark fails after the hub has stopped waiting for it, while one member is still there.
MARK_FAILS_LATE = Schedule(marks=SLOW_MARK, mark_fails=True, paces=(Pace(trains=2.0),), faults=(Freeze(3.0, 2, 20.0),))
# The first connection passes nothing for longer than the silence timeout. A second one works after 20 s.
HELD_FOR_TOO_LONG = Schedule(
    paces=(Pace(trains=60.0),),
    faults=(Silence(5.0, 0, up=True, down=True, seconds=20.0), Death(5.0, 0, "trainer", 1, 0.0)),
)
# The same in one direction: the member hears the hub, and the hub tells it that it is unheard.
UNHEARD_FOR_TOO_LONG = Schedule(
    paces=(Pace(trains=60.0),),
    faults=(Silence(5.0, 1, up=True, down=False, seconds=20.0),),
)
# The hub sends finish while the member is cut off, and leaves.
FINISHED_DURING_A_CUT = Schedule(
    paces=(Pace(starts=0.0, stages=0.0, serves=0.0, trains=0.0),),
    faults=(Silence(7.0, 0, up=False, down=True, seconds=20.0),),
    prepares=3.0,
    marks=3.0,
)
# Each generation fails in another way than the one before it, and none completes a pass.
NEVER_A_PASS = Schedule(
    paces=(Pace(trains=6.0),),
    faults=tuple(Death(0.0, 1, "pserver", code, 0.0) for code in (1, 139, 1, 139, 1, 139)),
    restarts=6,
)
# The same failure three times, but a pass was completed before the second one.
PROGRESS_ONCE = Schedule(
    paces=(Pace(starts=3.0, trains=6.0),),
    faults=tuple(Death(after, 1, "trainer", 1, 0.0) for after in (0.0, 1.5, 0.0)),
    restarts=3,
    passes=1.0,
)
# The connections are slow, and the hub waits for a member that reconnects: its verdict arrives 1.5 s after the failure.
SLOW_VERDICT = Schedule(
    delays=(0.2,),
    faults=(Death(0.0, 0, "trainer", 1, 0.0), Cut(1.0, 1, 0.05, 0.4), Death(0.0, 2, "pserver", 1, 0.0)),
    restarts=3,
    rejoins=True,
)
# The same, but the member that reported the failure reconnects itself.
SLOW_VERDICT_AFTER_A_RECONNECT = Schedule(
    delays=(0.2,),
    faults=(Death(0.0, 0, "trainer", 1, 0.0), Cut(1.0, 0, 0.0, 0.0), Death(0.0, 1, "pserver", 1, 0.0)),
    restarts=3,
    rejoins=True,
)
# The hub gets SIGTERM, and its processes take a second to end. Meanwhile all connections to it end.
CUT_FROM_A_HUB_THAT_ENDS = Schedule(
    paces=(Pace(trains=20.0, ends=1.0), Pace(trains=20.0), Pace(trains=20.0)),
    faults=(Told(5.0, 0), Cut(0.7, 0, 0.0, 0.0)),
    rejoins=True,
)


# Two members cannot reach each other for longer than the silence, and the job completes.
APART = Schedule(paces=(Pace(trains=100.0),), faults=(Apart(5.0, 0, 80.0),))
# The same in a larger gang, and the job fails meanwhile: it restarts, and fails again.
APART_AND_FAILS = Schedule(
    size=5,
    delays=(0.2,),
    paces=(Pace(trains=100.0),),
    faults=(Apart(2.0, 2, 120.0), Death(55.0, 4, "trainer", 1, 0.0), Death(20.0, 4, "trainer", 137, 0.0)),
    restarts=1,
)
# Two members cannot reach each other for less than the silence, long after the begin: nobody may be named.
APART_FOR_A_WHILE = Schedule(paces=(Pace(trains=100.0),), faults=(Apart(45.0, 0, 20.0),))
# One of the two members is away from the hub meanwhile, so that the hub must not name them.
APART_AND_CUT_OFF = Schedule(
    paces=(Pace(trains=100.0),),
    faults=(Apart(5.0, 0, 45.0), Silence(15.0, 1, up=True, down=True, seconds=20.0)),
)
# All are told to gather again while the connections are cut. The processes of one of them end after it has reconnected.
GATHERS_DURING_A_CUT = Schedule(
    size=4,
    paces=(Pace(), Pace(), Pace(), Pace(ends=1.0)),
    faults=(Death(0.0, 0, "pserver", 1, 0.0), Told(0.05, 3), Death(0.0, 0, "pserver", 1, 0.0), Cut(0.5, 0, 0.0, 0.1)),
    restarts=3,
    rejoins=True,
)
# The same, but the member has got SIGTERM, and all connections are cut while its processes still end.
STOPS_DURING_A_CUT = Schedule(
    size=4,
    paces=(Pace(), Pace(), Pace(), Pace(ends=21.0)),
    faults=(Death(0.0, 0, "pserver", 1, 0.0), Told(0.05, 3), Death(0.0, 0, "pserver", 1, 0.0), Cut(7.0, 0, 0.0, 0.0)),
    restarts=3,
    rejoins=True,
)
# The hub gets SIGTERM while it writes the mark, and the last pass is not whole.
TOLD_DURING_THE_MARK = Schedule(
    faults=(
        Death(0.0, 0, "pserver", 1, 0.0),
        Death(0.0, 0, "pserver", 1, 0.05),
        Death(0.0, 0, "pserver", 1, 0.0),
        Told(2.0, 0),
    ),
    restarts=3,
    marks=3.0,
    flawed=1,
)
# The hub gets SIGTERM while the mark takes too long. Its members are cut off three times before they have reconnected.
CUT_AGAIN_AND_AGAIN = Schedule(
    delays=(0.2,),
    faults=(
        Death(0.0, 0, "pserver", 1, 0.0),
        Told(7.0, 0),
        Cut(0.0, 0, 0.0, 0.0),
        Cut(0.5, 0, 0.0, 0.4),
    ),
    restarts=3,
    rejoins=True,
    marks=SLOW_MARK,
)
# What the hub sends arrives after it has left, and in its order.
LATE_IN_ORDER = Schedule(
    delays=(0.01, 0.0),
    faults=(
        Told(7.0, 0),
        Death(0.0, 0, "pserver", 1, 0.0),
        Silence(0.01, 0, up=False, down=True, seconds=20.0),
        Freeze(0.0, 1, 28.0),
    ),
    restarts=3,
    marks=SLOW_MARK,
)
# The hub is frozen while a member's node is powered off: when it continues, it does not know that the member is gone.
FROZEN_WHILE_A_NODE_GOES_OFF = Schedule(
    paces=(Pace(serves=3.0),), faults=(Cut(1.2, 0, 0.0, 0.0), Freeze(1.0, 0, 28.0), Off(1.0, 1)), restarts=3
)
FROZEN_HUB_OF_FOUR = Schedule(
    size=4,
    paces=(Pace(), Pace(starts=0.05, serves=1.0), Pace(), Pace(trains=6.0), Pace()),
    faults=(Cut(7.0, 1, 0.0, 0.0), Freeze(0.0, 0, 28.0), Told(0.05, 0), Off(0.05, 3)),
    restarts=3,
    marks=3.0,
)


@seed(SEED)
@searching(SCHEDULES)
@example(HEARD_TOO_LATE)
@example(MARK_FAILS_LATE)
@example(HELD_FOR_TOO_LONG)
@example(UNHEARD_FOR_TOO_LONG)
@example(FINISHED_DURING_A_CUT)
@example(NEVER_A_PASS)
@example(PROGRESS_ONCE)
@example(SLOW_VERDICT)
@example(SLOW_VERDICT_AFTER_A_RECONNECT)
@example(CUT_FROM_A_HUB_THAT_ENDS)
@example(APART)
@example(APART_AND_FAILS)
@example(APART_FOR_A_WHILE)
@example(APART_AND_CUT_OFF)
@example(FROZEN_WHILE_A_NODE_GOES_OFF)
@example(FROZEN_HUB_OF_FOUR)
@example(GATHERS_DURING_A_CUT)
@example(TOLD_DURING_THE_MARK)
@example(STOPS_DURING_A_CUT)
@example(CUT_AGAIN_AND_AGAIN)
@example(LATE_IN_ORDER)
@given(SCHEDULED)
def the_gang_keeps_its_rules(schedule: Schedule) -> None:
    story = Job(schedule).run()
    count(story)
    for rule in RULES:
        rule(story)


@pytest.mark.timeout(1200 if SCHEDULES == ALWAYS else 0)
@pytest.mark.slow
def test_the_gang_keeps_its_rules_in_every_schedule() -> None:
    seen.clear()
    the_gang_keeps_its_rules()
    missed = [what for what, times in seen.items() if not times]
    assert not missed or SCHEDULES < ALWAYS, f"no schedule had: {missed}"


@pytest.mark.parametrize("tenths", range(0, 100, 4))
def test_a_member_that_is_frozen_while_it_checks_its_neighbour_is_not_named(tenths: int) -> None:
    """When it continues, its check has failed, and the last check that was successful is long ago."""
    freeze = Freeze(5 + tenths / 10, 1, NEARLY_LOST)
    story = Job(Schedule(delays=(0.2,), paces=(Pace(trains=100.0),), faults=(freeze,))).run()
    for rule in RULES:
        rule(story)
    assert not story.of(Named)
