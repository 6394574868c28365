"""What is done to a gang in one round: all of it follows from a seed and from the kinds of faults that can be done."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

SILENCE = 15.0  # the shortest that LAUNCHER_SILENCE takes
STOP_GRACE = 2.0
PEER_TIMEOUT = 60
BATCHES = 8  # of one pass, on every member
EXAMPLES = 50  # of one batch, as in the configuration of the example
MOST_FAULTS = 6
TOGETHER = 0.25  # how often a fault comes at the same moment as the one before
SOON = 0.35  # how often soon after it, while the job is about to go on

LAUNCH, TRAINING, ENDING = "launch", "training", "ending"  # what a moment counts from


@dataclass(frozen=True)
class Kind:
    """How often a kind of fault is drawn, how many members it strikes, and how long it lasts."""

    weight: float
    most_victims: int = 1
    lasts: tuple[float, float] | None = None  # None: there is nothing to be undone
    long: tuple[float, float] | None = None  # the same, drawn now and then
    replaced: tuple[float, float] | None = None  # after so long another pod may take the place of each


CLOCK = "clock ahead"  # is there from the launch on, and never undone

FENCE = 15 + STOP_GRACE  # seconds for which the others wait, once somebody is silent, before they go on
_FROZEN = (SILENCE + FENCE + 2, SILENCE + FENCE + 24)
_MISSED = (SILENCE + 6, SILENCE + FENCE - 2)  # all have noticed by then: nobody else answers to what they say to it
_STILL_TRAINING = 4  # times as many passes, so that whoever wakes finds the others training

KINDS: Mapping[str, Kind] = {
    "kill trainer": Kind(3),
    "kill pserver": Kind(2),
    "term trainer": Kind(1),
    "term pserver": Kind(1),
    "stop trainer": Kind(1, lasts=(0.5, 6)),
    "stop pserver": Kind(1, lasts=(0.5, 6)),
    "kill launcher": Kind(3),
    "term launcher": Kind(2),
    "stop launcher": Kind(1.5, lasts=(0.5, 8), long=(20, 28)),
    "freeze launcher": Kind(0.5, lasts=_FROZEN, replaced=_MISSED),
    "freeze machine": Kind(0.5, most_victims=2, lasts=_FROZEN, replaced=_MISSED),  # with all that runs there
    "cut": Kind(1.5, most_victims=3, lasts=(0.5, 8), long=(20, 30)),
    "cut outgoing": Kind(0.8, most_victims=3, lasts=(0.5, 8), long=(20, 30)),  # nobody else hears them
    "cut incoming": Kind(0.8, most_victims=3, lasts=(0.5, 8), long=(20, 30)),  # they hear nobody else
    "volume full": Kind(1, most_victims=0, lasts=(0.5, 5)),
    "volume read-only": Kind(1, most_victims=0, lasts=(0.5, 5)),
    "volume stalled": Kind(1.5, most_victims=0, lasts=(0.5, 6), long=(8, 12)),
    CLOCK: Kind(1, most_victims=3),
    "delete pod": Kind(3),
    "force delete pod": Kind(2),
    "node off": Kind(1, lasts=(5, 20)),
    "api down": Kind(1, most_victims=0, lasts=(3, 15)),
}
LONG = 0.15  # how often the longer time is drawn
REPLACED = 0.6  # how often another pod takes the place of one that is frozen


@dataclass(frozen=True)
class Fault:
    """One of them. `lasts` is None where there is nothing to be undone."""

    number: int
    kind: str
    ranks: tuple[int, ...]
    since: str  # when all members are started, when the first trainer trains, when the last pass is saved
    at: float
    lasts: float | None = None
    replaced: float | None = None  # seconds after which another pod takes the place of each

    def __str__(self) -> str:
        victims = f" of {','.join(map(str, self.ranks))}" if self.ranks else ""
        lasting = "" if self.lasts is None else f" for {self.lasts:g} s"
        replaced = "" if self.replaced is None else f", replaced after {self.replaced:g} s"
        return f"{self.kind}{victims} at {self.since}+{self.at:g} s{lasting}{replaced}"


@dataclass(frozen=True)
class Plan:
    """A round."""

    seed: int
    members: int
    passes: int
    batch_seconds: float
    max_restarts: int
    rejoin_timeout: int
    backoff_limit: int  # failed pods that the Job replaces
    volume_timeout: int
    faults: tuple[Fault, ...] = ()
    ahead: Mapping[int, int] = field(default_factory=dict)  # seconds by which the wall clocks of some members differ
    kinds: tuple[str, ...] = ()  # that the faults were drawn from: with others the same seed is another plan

    @property
    def flags(self) -> tuple[str, ...]:
        """What `paddle-launcher run` gets."""
        return ("--config=trainer_config.lr.py", f"--num_passes={self.passes}", "--log_period=1")

    @property
    def variables(self) -> dict[str, str]:
        """What all members are told."""
        return {
            "LAUNCHER_SILENCE": f"{SILENCE:g}",
            "LAUNCHER_STOP_GRACE": f"{STOP_GRACE:g}",
            "LAUNCHER_PEER_TIMEOUT": str(PEER_TIMEOUT),
            "LAUNCHER_MAX_RESTARTS": str(self.max_restarts),
            "LAUNCHER_REJOIN_TIMEOUT": str(self.rejoin_timeout),
            "LAUNCHER_VOLUME_TIMEOUT": str(self.volume_timeout),
            "STANDIN_BATCH_SECONDS": str(self.batch_seconds),
        }

    @property
    def lines(self) -> int:
        """Examples of the data set, so that every member has BATCHES batches."""
        return self.members * BATCHES * EXAMPLES

    @property
    def training(self) -> float:
        """Seconds that undisturbed training takes."""
        return self.passes * BATCHES * self.batch_seconds

    def __str__(self) -> str:
        settings = f"{self.members} members, {self.passes} passes, MAX_RESTARTS {self.max_restarts}"
        limits = f"REJOIN_TIMEOUT {self.rejoin_timeout}, backoffLimit {self.backoff_limit}"
        return f"{settings}, {limits}, VOLUME_TIMEOUT {self.volume_timeout}"


def make(seed: int, kinds: Collection[str]) -> Plan:
    """The same for the same seed and kinds, whatever the order of these."""
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
    return Plan(seed, members, passes, batch_seconds, **settings, faults=faults, ahead=clocks, kinds=drawn_from)


def _faults(dice: random.Random, kinds: Sequence[str], members: int, training: float) -> list[Fault]:
    count = dice.choice((0, 1, 1, 2, 2, 3, 3, 4, 4, 5, MOST_FAULTS))
    drawn = dice.choices(kinds, [KINDS[kind].weight for kind in kinds], k=count)
    faults: list[Fault] = []
    for number, name in enumerate(drawn):
        since, at = _moment(dice, training, faults[-1] if faults and faults[-1].kind != CLOCK else None)
        if name == CLOCK:
            since, at = LAUNCH, 0.0
        elif since == LAUNCH and name.endswith("trainer"):  # there is none yet
            since = TRAINING
        kind = KINDS[name]
        victims, lasts = _victims(dice, kind, members), _lasts(dice, kind)
        faults.append(Fault(number, name, victims, since, at, lasts, _replaced(dice, kind)))
    return faults


def _moment(dice: random.Random, training: float, before: Fault | None) -> tuple[str, float]:
    """Mostly while it trains; some before all have joined, or in the last moments; some because of the one before."""
    fate = dice.random()
    if before and fate < TOGETHER:
        return before.since, before.at
    if before and fate < TOGETHER + SOON:
        return before.since, round(before.at + dice.uniform(0, 4), 2)
    since, longest = dice.choice(((LAUNCH, 4), (ENDING, 0.8), (TRAINING, training), (TRAINING, training)))
    return since, round(dice.uniform(0, longest), 2)


def _victims(dice: random.Random, kind: Kind, members: int) -> tuple[int, ...]:
    """The hub, rank 0, is struck more often than the others."""
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
