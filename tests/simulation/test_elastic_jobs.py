"""The launchers of a job whose size changes keep their rules in hundreds of random schedules, in simulated time.

GANG_SCHEDULES is the number of schedules. GANG_SEED, if it is not 0, selects other schedules than the default ones.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given, seed

from launcher.errors import Exit
from tests.simulation import machines
from tests.simulation.elastic_jobs import ELASTIC_SCHEDULES, ElasticPlay, ElasticSchedule, Scale
from tests.simulation.elastic_rules import RULES, history, schedule_of
from tests.simulation.schedule import Freeze, Killed, Pace, Told
from tests.simulation.search import SEED, schedules, searching
from tests.simulation.whole_jobs import Tale

ALWAYS = 150
SCHEDULES = schedules(ALWAYS)

seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        machines.move_in(patch)
        yield


def count(tale: Tale) -> None:
    sizes, elastic = [one["trainers"] for one in history(tale)], schedule_of(tale)
    kinds = {one["first_cause"]["kind"] for one in history(tale) if one["first_cause"]}
    complete = any(pod.result and pod.result.code == Exit.COMPLETE for pod in tale.pods)
    texts = [entry.text for entry in tale.scene.entries if entry.kind == "said"]
    sent = [entry for entry in tale.scene.entries if entry.kind == "out"]
    hubs = {entry.pod.rank for entry in sent if b'"word":"welcome"' in entry.facts["line"]}
    happened = {
        "grew": any(one < other for one, other in itertools.pairwise(sizes)),
        "shrank": any(one > other for one, other in itertools.pairwise(sizes)),
        "complete after two changes": complete and len(set(itertools.pairwise(sizes))) > 1,
        "complete after a loss": complete and "lost" in kinds,
        "grew after a saved pass": "resized" in kinds,
        "another pod than pod 0 led": bool(hubs - {0}),
        "two pods led": len(hubs) > 1,
        "a hub that followed another one": any("comes first" in text for text in texts),
        "a member that found the hub by the lease": any("runs already" in text for text in texts),
        "all saved after the same step": any("agreed" in entry.facts for entry in tale.scene.entries),
        "complete without numbers": complete and not elastic.is_numbered and len(set(sizes)) > 1,
        "waited in vain": any(pod.result and pod.result.code == Exit.TIMED_OUT for pod in tale.pods),
    }
    seen.update({name: bool(so) for name, so in happened.items()})


def check(schedule: ElasticSchedule) -> None:
    with machines.folder() as folder:
        tale = ElasticPlay(schedule, folder).run()
        count(tale)
        for rule in RULES:
            rule(tale)


QUICK = (Pace(),)
# The job grows after each pass, and shrinks again.
GROWS_AND_SHRINKS = ElasticSchedule(
    size=4, begins=2, paces=QUICK, faults=(Scale(2.0, 0, 3), Scale(7.0, 0, 4), Scale(7.0, 0, 2))
)
# Pod 0 leads, and is told to stop. It is replaced later.
THE_HUB_IS_TOLD_TO_STOP = ElasticSchedule(size=4, begins=3, paces=QUICK, faults=(Told(8.0, 0),), replaces=5.0)
# Pod 0 is killed while the job grows.
THE_HUB_IS_KILLED_WHILE_THE_JOB_GROWS = ElasticSchedule(
    size=4, begins=3, paces=QUICK, faults=(Scale(6.0, 0, 4), Killed(2.0, 0)), replaces=5.0, shrink="now"
)

# A member is told to stop before it knows its rank, which is not the number of its pod.
TOLD_BEFORE_IT_KNOWS_ITS_RANK = ElasticSchedule(
    size=4,
    begins=4,
    delays=(0.001,),
    paces=(Pace(), Pace(), Pace(starts=0.5)),
    faults=(Freeze(0.3, 3, 20.0), Scale(0.0, 0, 1)),
    saves=False,
    shrink="now",
    each=0.5,
)

# A member is told to stop, and all trainers save first.
ALL_SAVE = ElasticSchedule(
    size=4, begins=3, mode="collective", paces=QUICK, faults=(Told(8.0, 1), Scale(4.0, 0, 4)), step=0.2, each=30.0
)


@seed(SEED)
@searching(SCHEDULES)
@example(GROWS_AND_SHRINKS)
@example(THE_HUB_IS_TOLD_TO_STOP)
@example(THE_HUB_IS_KILLED_WHILE_THE_JOB_GROWS)
@example(ALL_SAVE)
@example(TOLD_BEFORE_IT_KNOWS_ITS_RANK)
@given(ELASTIC_SCHEDULES)
def the_launchers_keep_their_rules(schedule: ElasticSchedule) -> None:
    check(schedule)


@pytest.mark.slow
@pytest.mark.timeout(1200 if SCHEDULES == ALWAYS else 0)
def test_the_launchers_of_an_elastic_job_keep_their_rules_in_every_schedule() -> None:
    seen.clear()
    the_launchers_keep_their_rules()
    missed = [what for what, times in seen.items() if not times]
    assert not missed or SCHEDULES < ALWAYS, f"no schedule had: {missed}"
