"""The launchers of a job keep their rules in hundreds of random schedules of faults, in simulated time.

The launchers run their real sessions; only their processes, finders and copies are fakes.

GANG_SCHEDULES is the number of schedules. GANG_SEED, if it is not 0, selects other schedules than the default ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import example, given, seed

from launcher.errors import Exit
from tests.simulation import machines
from tests.simulation.schedule import Apart, Broken, Death, Killed, Pace, Told
from tests.simulation.search import SEED, schedules, searching
from tests.simulation.whole_job_rules import RULES
from tests.simulation.whole_jobs import JOB_SCHEDULES, JobSchedule, Play, SigtermTwice, Stalls, Tale

ALWAYS = 200
SCHEDULES = schedules(ALWAYS)

seen: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        machines.move_in(patch)
        yield


def count(tale: Tale) -> None:
    results = [pod.result for pod in tale.pods if pod.result]
    codes = {int(result.code) for result in results}
    kinds = {result.cause.kind for result in results if result.cause}
    texts = [entry.text for entry in tale.scene.entries if entry.kind in ("said", "runs", "file")]
    happened = {
        **{code.name: int(code) in codes for code in (Exit.COMPLETE, Exit.STOPPED, Exit.PEER_FAILED)},
        **{code.name: int(code) in codes for code in (Exit.PEER_LOST, Exit.GIVEN_UP, Exit.TIMED_OUT)},
        **{kind: kind in kinds for kind in ("trainer", "pserver", "staging", "lost", "stopped", "peers", "volume")},
        "a restart": any("processes of the job are restarted" in text for text in texts),
        "all members rejoined": any("for a replacement pod" in text for text in texts),
        "complete after a pod was replaced": Exit.COMPLETE in codes and any(pod.starts for pod in tale.pods),
        "a failure before the join": any("for the gang, to report this failure" in text for text in texts),
        "processes killed after a second signal": "kill" in texts,
        "waited for another gang": any("for the end of another gang" in text for text in texts),
        "members that cannot reach each other": any("cannot reach rank" in text for text in texts),
        "a second lease": any(text.endswith(".leases/1") for text in texts),
    }
    seen.update({name: bool(so) for name, so in happened.items()})


def check(schedule: JobSchedule) -> None:
    with machines.folder() as folder:
        tale = Play(schedule, folder).run()
        count(tale)
        for rule in RULES:
            rule(tale)


# Staging fails on a member before another member has joined.
FAILS_BEFORE_THE_JOIN = JobSchedule(paces=(Pace(), Pace(), Pace(starts=2.0, trains=6.0)), faults=(Broken(0.0, 1),))
# Before the join, first a server dies and then staging fails. A restart repairs only the death of the server.
FAILS_TWICE_BEFORE_THE_JOIN = JobSchedule(faults=(Broken(0.0, 0), Death(0.0, 0, "pserver", 1, 0.0)))
# Processes that take long to end are killed after the second signal.
SIGTERM_TWICE = JobSchedule(paces=(Pace(trains=20.0, ends=21.0),), faults=(SigtermTwice(5.0, 1, 3.0),))
# A member gets SIGTERM while the hub's train message is on its way to it.
SIGTERM_BEFORE_TRAIN = JobSchedule(
    delays=(0.2,), paces=(Pace(stages=1.0, trains=6.0, ends=1.0),), faults=(Told(1.3, 1),)
)
# The member at fault takes longer than the others to end its remaining children.
SLOW_AT_FAULT = JobSchedule(
    paces=(Pace(trains=6.0), Pace(trains=6.0, ends=0.9)), faults=(Death(3.0, 1, "trainer", 1, 0.0),), restarts=0
)
# The hub cannot write to the volume, and ends. In a cluster, another pod would then replace it.
VOLUME_IS_AWAY = JobSchedule(paces=(Pace(trains=200.0, ends=1.0),), faults=(Stalls(7.0, 0, 100.0),), restarts=0)
# The hub takes a lease for a start that is cancelled meanwhile, because a server has died.
LEASE_OF_A_CANCELLED_START = JobSchedule(
    volume_delay=0.3, paces=(Pace(trains=6.0),), faults=(Death(2.2, 1, "pserver", 139, 0.0),), restarts=3
)
# The same job starts twice, and the gang that trains restarts.
SAME_JOB_TWICE = JobSchedule(
    paces=(Pace(trains=6.0),), faults=(Death(3.0, 1, "trainer", 1, 0.0),), restarts=3, second_start=0.5
)
# A launcher is killed. All others wait for the pod that replaces it, and the job completes.
REPLACED = JobSchedule(
    paces=(Pace(trains=20.0),), faults=(Killed(8.0, 1),), restarts=3, rejoins=True, saves=True, replaces=5.0
)
# Two members cannot reach each other, and a trainer dies.
APART_AND_FAILS = JobSchedule(
    paces=(Pace(trains=100.0),), faults=(Apart(5.0, 0, 100.0), Death(60.0, 0, "trainer", 1, 0.0)), restarts=3
)


@seed(SEED)
@searching(SCHEDULES)
@example(FAILS_BEFORE_THE_JOIN)
@example(FAILS_TWICE_BEFORE_THE_JOIN)
@example(SLOW_AT_FAULT)
@example(SIGTERM_TWICE)
@example(SIGTERM_BEFORE_TRAIN)
@example(VOLUME_IS_AWAY)
@example(LEASE_OF_A_CANCELLED_START)
@example(SAME_JOB_TWICE)
@example(REPLACED)
@example(APART_AND_FAILS)
@given(JOB_SCHEDULES)
def the_launchers_keep_their_rules(schedule: JobSchedule) -> None:
    check(schedule)


@pytest.mark.slow
@pytest.mark.timeout(1200 if SCHEDULES == ALWAYS else 0)
def test_the_launchers_of_a_job_keep_their_rules_in_every_schedule() -> None:
    seen.clear()
    the_launchers_keep_their_rules()
    missed = [what for what, times in seen.items() if not times]
    assert not missed or SCHEDULES < ALWAYS, f"no schedule had: {missed}"
