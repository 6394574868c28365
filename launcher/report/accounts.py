"""Where the time of a job went: goodput, what each restart cost, the passes with their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from launcher.report.facts import Facts, FirstCause, Generation, PassDone
from launcher.report.verdict import COMPLETE, FAILED, Verdict

KEPT, REPEATED, RUNNING = "kept", "lost", "not yet saved"


class PassRow(NamedTuple):
    """A finished pass. `begin`: the end of the previous pass, or the begin of the training of this generation."""

    done: PassDone
    begin: float
    fate: str  # KEPT, REPEATED or RUNNING

    @property
    def seconds(self) -> float:
        return max(0.0, self.done.at - self.begin)


@dataclass(frozen=True)
class GenerationRow:
    """What a generation has cost.

    end: the end of the generation; if unknown, the begin of the next generation or the end of the job
    kept: seconds of training that ended in a kept pass
    lost: seconds of training that ended in no kept pass
    pause: seconds from its end until the next generation trains, or until now; None if no generation follows
    is_failed: it has ended by a failure, not by a change of size
    cause: of its end. Of the last generation, the cause of the job, if the hub could not write it
    """

    generation: Generation
    end: float
    kept: float
    lost: float
    pause: float | None
    is_failed: bool
    cause: FirstCause | None

    @property
    def cost(self) -> float | None:
        """What the restart or the change of size after this generation has cost, or None if no generation follows."""
        return None if self.pause is None else self.lost + self.pause


@dataclass(frozen=True)
class Accounts:
    """Where the time went. All times are seconds, and the shares add up to `wall`.

    pauses, resizes: the time between two generations, after a failure and after a change of size
    start: the time before the first trainer trains and, in a complete job, the time after the last pass
    open: while the job runs, the training since the last finished pass
    has_saved: a whole pass is on the volume
    """

    wall: float
    kept: float
    lost: float
    pauses: float
    start: float
    open: float
    has_saved: bool
    passes: tuple[PassRow, ...]
    generations: tuple[GenerationRow, ...]
    resizes: float = 0.0

    @property
    def goodput(self) -> float | None:
        """The share of the wall time that ended in a kept pass, or None if passes were saved, but none was logged."""
        return self.kept / self.wall if self.wall > 0 and (self.passes or not self.has_saved) else None

    @property
    def restarts(self) -> list[GenerationRow]:
        """The generations that have failed, and after which another one followed or should follow."""
        return [row for row in self.generations if row.pause is not None and not row.generation.is_resize]

    @property
    def changes_of_size(self) -> list[GenerationRow]:
        return [row for row in self.generations if row.pause is not None and row.generation.is_resize]

    @property
    def parts(self) -> list[tuple[str, float]]:
        """The shares of the wall time, with their names."""
        return [
            ("kept passes", self.kept),
            ("lost work", self.lost),
            ("restarts", self.pauses),
            ("start and end", self.start),
            ("pass that runs", self.open),
            ("changes of size", self.resizes),
        ]


def account(facts: Facts, verdict: Verdict, end: float) -> Accounts:
    """Return where the time between the first event and `end` went."""
    history = facts.history
    passes = _passes(facts, verdict)
    rows = []
    opened = 0.0
    for place, generation in enumerate(history):
        following = history[place + 1] if place + 1 < len(history) else None
        over = generation.ended or (following.began if following else end)
        begin = _trains_from(generation)
        mine = [row for row in passes if row.done.generation == generation.number]
        kept = sum(row.seconds for row in mine if row.fate != REPEATED)
        trained = max(0.0, over - begin) if generation.training_from is not None or mine else 0.0
        lost = max(0.0, trained - kept)
        cause = generation.cause
        if cause is None and following is None and verdict.state == FAILED:
            cause = verdict.cause
        has_ended = cause is not None or following is not None
        pause = None
        if following is not None:
            resumed = _trains_from(following) if following.training_from is not None else following.ended or end
            pause = max(0.0, min(resumed, end) - over)
        elif has_ended and not verdict.is_over:
            pause = max(0.0, end - over)  # no generation has begun since
        elif not has_ended and (verdict.state == COMPLETE or not verdict.is_over):
            opened, lost = lost, 0.0  # saving and ending of a complete job, or the pass that runs
        is_failed = has_ended and not generation.is_resize
        rows.append(GenerationRow(generation, over, kept, lost, pause, is_failed, cause))
    wall = max(0.0, end - facts.begin)
    kept, lost = sum(row.kept for row in rows), sum(row.lost for row in rows)
    pauses = sum(row.pause or 0.0 for row in rows if not row.generation.is_resize)
    resizes = sum(row.pause or 0.0 for row in rows if row.generation.is_resize)
    still_open = 0.0 if verdict.is_over else opened
    start = max(0.0, wall - kept - lost - pauses - resizes - still_open)
    has_saved = facts.saved is not None
    return Accounts(wall, kept, lost, pauses, start, still_open, has_saved, tuple(passes), tuple(rows), resizes)


def _trains_from(generation: Generation) -> float:
    return generation.training_from if generation.training_from is not None else generation.began


def _passes(facts: Facts, verdict: Verdict) -> list[PassRow]:
    rows: list[PassRow] = []
    before: dict[int, float] = {}
    resumed = _resumed_after(facts)
    for done in sorted(facts.passes.values(), key=lambda done: (done.generation, done.at)):
        generation = facts.generations.get(done.generation)
        begin = before.get(done.generation, _trains_from(generation) if generation else done.at)
        rows.append(PassRow(done, min(begin, done.at), _fate(facts, verdict, done, resumed.get(done.generation))))
        before[done.generation] = done.at
    return rows


def _resumed_after(facts: Facts) -> dict[int, int]:
    """Return, for all generations but the last, the earliest pass after which a later one resumed, or -1."""
    found: dict[int, int] = {}
    earliest: int | None = None
    for generation in reversed(facts.history):
        if earliest is not None:
            found[generation.number] = earliest
        after = -1 if generation.after_pass is None else generation.after_pass
        earliest = after if earliest is None else min(earliest, after)
    return found


def _fate(facts: Facts, verdict: Verdict, done: PassDone, resumed: int | None) -> str:
    """Return whether the pass is kept: each later generation resumed after it or after a later pass.

    resumed: the earliest pass after which a later generation resumed; None if there is no later generation
    """
    if resumed is not None and resumed < done.number:
        return REPEATED
    if resumed is not None or verdict.state == COMPLETE or (facts.saved is not None and done.number <= facts.saved):
        return KEPT
    return REPEATED if verdict.is_over else RUNNING
