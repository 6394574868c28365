"""The plan of one round. It is determined by a seed and by the kinds of faults that are possible."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

SILENCE = 15.0  # the smallest valid LAUNCHER_SILENCE
STOP_GRACE = 2.0
PEER_TIMEOUT = 60
BATCHES = 8  # batches of one pass, on each member
EXAMPLES = 50  # examples of one batch, as in the configuration of the example
MOST_FAULTS = 6
TOGETHER = 0.25  # the share of faults at the same time as the fault before
SOON = 0.35  # the share of faults soon after the fault before, while the job recovers

LAUNCH, TRAINING, ENDING = "launch", "training", "ending"  # the events from which the time of a fault counts


@dataclass(frozen=True)
class Kind:
    """How often a kind of fault is drawn, how many members it affects, and how many seconds it lasts."""

    weight: float
    most_victims: int = 1
    lasts: tuple[float, float] | None = None  # seconds; None: the fault is not undone
    long: tuple[float, float] | None = None  # seconds, used instead of `lasts` in some faults (LONG)
    replaced: tuple[float, float] | None = None  # seconds after which another pod may replace each victim


CLOCK = "clock ahead"  # begins at the launch and is never undone

FENCE = 15 + STOP_GRACE  # seconds that the other members wait after the silence of a member, before they restart
_FROZEN = (SILENCE + FENCE + 2, SILENCE + FENCE + 24)
_MISSED = (SILENCE + 6, SILENCE + FENCE - 2)  # at this time all members have noticed the silence
_STILL_TRAINING = 4  # the factor for passes, so that the other members still train after a launcher wakes

KINDS: Mapping[str, Kind] = {
    "kill trainer": Kind(3),
    "kill pserver": Kind(2),
    "term trainer": Kind(1),
    "term pserver": Kind(1),
    "stop trainer": Kind(1, lasts=(0.5, 6)),
    "stop pserver": Kind(1, lasts=(0.5, 6)),
    "hang trainer": Kind(0.4, lasts=(150, 150)),  # longer than the hub needs to notice a stall: see docs/faults.md
    "kill launcher": Kind(3),
    "term launcher": Kind(2),
    "stop launcher": Kind(1.5, lasts=(0.5, 8), long=(20, 28)),
    "freeze launcher": Kind(0.5, lasts=_FROZEN, replaced=_MISSED),
    "freeze machine": Kind(0.5, most_victims=2, lasts=_FROZEN, replaced=_MISSED),  # with all processes of the member
    "cut": Kind(1.5, most_victims=3, lasts=(0.5, 8), long=(20, 30)),
    "cut outgoing": Kind(0.8, most_victims=3, lasts=(0.5, 8), long=(20, 30)),  # packets from the victims are lost
    "cut incoming": Kind(0.8, most_victims=3, lasts=(0.5, 8), long=(20, 30)),  # packets to the victims are lost
    "volume full": Kind(1, most_victims=0, lasts=(0.5, 5)),
    "volume read-only": Kind(1, most_victims=0, lasts=(0.5, 5)),
    "volume stalled": Kind(1.5, most_victims=0, lasts=(0.5, 6), long=(8, 12)),
    "nfs lost answers": Kind(1, most_victims=0, lasts=(2, 15)),  # see nfs.c
    "nfs stale handles": Kind(1, most_victims=0, lasts=(2, 15)),
    "nfs old names": Kind(1, most_victims=0, lasts=(2, 30)),
    "nfs node stalled": Kind(1, most_victims=2, lasts=(0.5, 6), long=(8, 12)),
    CLOCK: Kind(1, most_victims=3),
    "grow": Kind(1.5, most_victims=0),  # in an elastic job, the user asks for one pod more
    "shrink": Kind(1.5, most_victims=0),  # the same, one pod less: the highest number is told to stop
    "delete pod": Kind(3),
    "force delete pod": Kind(2),
    "node off": Kind(1, lasts=(5, 20)),
    "api down": Kind(1, most_victims=0, lasts=(3, 15)),
}
SIZES = frozenset({"grow", "shrink"})  # a round with one of these has an elastic job
LONG = 0.15  # the share of faults that last for the longer time
REPLACED = 0.6  # the share of frozen pods that are replaced


@dataclass(frozen=True)
class Fault:
    """One fault. `lasts` is None if the fault is not undone."""

    number: int
    kind: str
    ranks: tuple[int, ...]
    since: str  # LAUNCH: all members are started; TRAINING: the first trainer trains; ENDING: the last pass is saved
    at: float  # seconds after `since`
    lasts: float | None = None
    replaced: float | None = None  # seconds after which another pod replaces each victim

    def __str__(self) -> str:
        victims = f" of {','.join(map(str, self.ranks))}" if self.ranks else ""
        lasting = "" if self.lasts is None else f" for {self.lasts:g} s"
        replaced = "" if self.replaced is None else f", replaced after {self.replaced:g} s"
        return f"{self.kind}{victims} at {self.since}+{self.at:g} s{lasting}{replaced}"


@dataclass(frozen=True)
class Plan:
    """The settings of the job, and the faults, of one round."""

    seed: int
    members: int
    passes: int
    batch_seconds: float
    max_restarts: int
    rejoin_timeout: int
    backoff_limit: int  # failed pods that the Job replaces
    volume_timeout: int
    faults: tuple[Fault, ...] = ()
    begins: int = 0  # how many members an elastic job has at first; at most `members`. 0: the job is not elastic
    ahead: Mapping[int, int] = field(default_factory=dict)  # seconds by which the wall clocks of some members differ
    kinds: tuple[
        str, ...
    ] = ()  # the kinds from which faults were drawn; with other kinds, the same seed makes another plan

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags for `paddle-launcher run`."""
        return ("--config=trainer_config.lr.py", f"--num_passes={self.passes}", "--log_period=1")

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of all members."""
        return {
            "LAUNCHER_SILENCE": f"{SILENCE:g}",
            "LAUNCHER_STOP_GRACE": f"{STOP_GRACE:g}",
            "LAUNCHER_PEER_TIMEOUT": str(PEER_TIMEOUT),
            "LAUNCHER_MAX_RESTARTS": str(self.max_restarts),
            "LAUNCHER_REJOIN_TIMEOUT": str(self.rejoin_timeout),
            "LAUNCHER_VOLUME_TIMEOUT": str(self.volume_timeout),
            "STANDIN_BATCH_SECONDS": str(self.batch_seconds),
            **(self._elastic if self.begins else {}),
        }

    @property
    def _elastic(self) -> dict[str, str]:
        return {
            "CONF_PADDLE_GRADIENT_NUM": f"1:{self.members}",
            "LAUNCHER_SETTLE": "3",
            "LAUNCHER_SHRINK": "now" if self.seed % 2 else "wait",
        }

    @property
    def lines(self) -> int:
        """The number of lines of the data set, so that each member has BATCHES batches."""
        return self.members * BATCHES * EXAMPLES

    @property
    def training(self) -> float:
        """The seconds that training takes without faults."""
        return self.passes * BATCHES * self.batch_seconds

    def __str__(self) -> str:
        settings = f"{self.members} members, {self.passes} passes, MAX_RESTARTS {self.max_restarts}"
        settings += f", elastic: begins with {self.begins}" if self.begins else ""
        limits = f"REJOIN_TIMEOUT {self.rejoin_timeout}, backoffLimit {self.backoff_limit}"
        return f"{settings}, {limits}, VOLUME_TIMEOUT {self.volume_timeout}"


def make(seed: int, kinds: Collection[str]) -> Plan:
    """Return the plan of this seed and these kinds. The order of the kinds does not matter."""
    dice = random.Random(f"chaos {seed}")
    members = dice.randint(3, 8)
    passes = dice.randint(4, 7)
    batch_seconds = dice.choice((0.05, 0.1, 0.15))
    settings = {
        "max_restarts": dice.choice((0, 3, 3, 6, 6, 6)),
        "rejoin_timeout": dice.choice((5, 60, 60, 60)),
        "backoff_limit": dice.choice((0, members, 4 * members, 4 * members, 4 * members)),
        "volume_timeout": dice.choice((4, 30, 30)),
    }
    training = passes * BATCHES * batch_seconds
    drawn_from = tuple(sorted(kinds))
    faults = tuple(_faults(dice, drawn_from, members, training))
    clocks = {rank: dice.choice((-3, 2, 26)) * 3600 for fault in faults if fault.kind == CLOCK for rank in fault.ranks}
    if any(KINDS[fault.kind].lasts == _FROZEN for fault in faults):
        passes *= _STILL_TRAINING
    begins = 0
    if any(fault.kind in SIZES for fault in faults):
        begins = max(2, members - sum(fault.kind == "grow" for fault in faults))
        settings |= {"max_restarts": 6, "rejoin_timeout": 60}  # an elastic job needs both
        passes *= 2
    return Plan(
        seed, members, passes, batch_seconds, **settings, faults=faults, begins=begins, ahead=clocks, kinds=drawn_from
    )


def _faults(dice: random.Random, kinds: Sequence[str], members: int, training: float) -> list[Fault]:
    count = dice.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, MOST_FAULTS))
    drawn = dice.choices(kinds, [KINDS[kind].weight for kind in kinds], k=count)
    faults: list[Fault] = []
    for number, name in enumerate(drawn):
        since, at = _moment(dice, training, faults[-1] if faults and faults[-1].kind != CLOCK else None)
        if name == CLOCK:
            since, at = LAUNCH, 0.0
        elif since == LAUNCH and name.endswith("trainer"):  # at the launch there is no trainer yet
            since = TRAINING
        kind = KINDS[name]
        victims, lasts = _victims(dice, kind, members), _lasts(dice, kind)
        faults.append(Fault(number, name, victims, since, at, lasts, _replaced(dice, kind)))
    return faults


def _moment(dice: random.Random, training: float, before: Fault | None) -> tuple[str, float]:
    """Draw the time of a fault: mostly during the training, sometimes at its start or end, or after the last fault."""
    fate = dice.random()
    if before and fate < TOGETHER:
        return before.since, before.at
    if before and fate < TOGETHER + SOON:
        return before.since, round(before.at + dice.uniform(0, 4), 2)
    since, longest = dice.choice(((LAUNCH, 4), (ENDING, 0.8), (TRAINING, training), (TRAINING, training)))
    return since, round(dice.uniform(0, longest), 2)


def _victims(dice: random.Random, kind: Kind, members: int) -> tuple[int, ...]:
    """Draw the victims. The hub, rank 0, is drawn more often than other ranks."""
    if kind.most_victims == 0:
        return ()
    count = dice.randint(1, min(kind.most_victims, members - 1))
    ranks = dice.sample(range(members), count)
    if dice.random() < 0.2:
        ranks[0] = 0
    return tuple(sorted(set(ranks)))


def _lasts(dice: random.Random, kind: Kind) -> float | None:
    if kind.lasts is None:
        return None
    span = kind.long if kind.long and dice.random() < LONG else kind.lasts
    return round(dice.uniform(*span), 2)


def _replaced(dice: random.Random, kind: Kind) -> float | None:
    return round(dice.uniform(*kind.replaced), 2) if kind.replaced and dice.random() < REPLACED else None
