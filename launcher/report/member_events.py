"""Fold the events of one member into a `Member`."""

from __future__ import annotations

from launcher.report import fields
from launcher.report.facts import (
    ENDING,
    FINISHED,
    RESTARTING,
    SERVING,
    STAGING,
    STARTING,
    TRAINING,
    WAITING,
    Death,
    Member,
    PassDone,
    Run,
    Sample,
    Span,
)
from launcher.store.events import Event

_RUNS, _SPANS, _DEATHS, _WARNINGS = 100, 1000, 30, 50  # only the newest of each are kept; of the warnings, the first
_PASSES = 20_000  # of the job
_STATES = {
    "training": TRAINING,
    "serving": SERVING,
    "trained": FINISHED,
    "finishing": FINISHED,
    "restarting": RESTARTING,
    "ending": ENDING,
    "gathering": WAITING,
}
_LAST = ("complete", "stopped", "failed")

Passes = dict[tuple[int, int], list[PassDone]]


class MemberEvents:
    """The facts from the events of one member. Memory is bounded for any number of events.

    passes: of all members, by generation and pass
    training_from: of all members: when the first trainer of a generation began to train
    samples: at most this many are kept: if there are more, every second one is dropped
    """

    def __init__(self, member: Member, passes: Passes, training_from: dict[int, float], samples: int) -> None:
        self.member = member
        self._passes = passes
        self._training_from = training_from
        self._most_samples = samples
        self._stride, self._skipped = 1, 0
        self._staging = False
        self._begun = False  # a generation has begun in this session
        self._had_generation = False  # an event of this launcher had a generation

    def add(self, event: Event, shift: float = 0.0) -> None:
        """Add an event. `shift`: is added to its time."""
        at = fields.seconds(event.get("at"))
        if at is None:
            return
        at += shift
        name = event["event"]
        generation = fields.number(event, "generation")
        run = self._run(at, name, event, generation)
        run.last = max(run.last, at)
        self._had_generation = self._had_generation or generation is not None
        if generation is not None:
            self.member.generation = generation
        match name:
            case "staging_begun":
                self._staging = True
            case "staging_ended":
                self._staging = False
                self.member.copied = (self.member.copied or 0) + (fields.number(event, "bytes") or 0)
            case "joined":
                self._join(run, event)
            case "generation":
                self._begun = True
                self.member.last_pass = fields.number(event, "after_pass")
            case "phase":
                self._enter(run, at, fields.text(event, "phase", 40), generation)
            case "pass":
                self._add_pass(at, event, generation)
            case "numbers":
                self._add_sample(at, event)
            case "process_ended":
                self._add_death(at, event, generation)
            case "stop_requested":
                self.member.stops = [*self.member.stops[-_RUNS:], at]
            case "warning":
                self._warn(at, fields.text(event, "text"))
            case "ended":
                run.exit_code, run.ended = fields.code(event, "exit_code"), at
                run.cause = fields.cause(event)
        self._settle(run, at)

    def _run(self, at: float, name: str, event: Event, generation: int | None) -> Run:
        """Return the launcher that has written this event. The first events of a launcher have no generation."""
        run = self.member.run
        is_other = run is not None and (
            (run.ended is not None and name in ("staging_begun", "joined", "phase") and generation is None)
            or (self._had_generation and generation is None and name not in ("joined", "dropped", "clock_set"))
            or (name == "joined" and run.uid != "" and fields.text(event, "uid", 260) not in ("", run.uid))
        )
        if run is None or is_other:
            run = Run(at, at, since=at)
            self.member.runs = [*self.member.runs[-_RUNS:], run]
            self._staging = self._begun = self._had_generation = False
        return run

    def _join(self, run: Run, event: Event) -> None:
        self._begun = False
        run.pod, run.uid = fields.text(event, "pod", 260), fields.text(event, "uid", 260)
        self.member.pod = run.pod or self.member.pod
        self.member.role = fields.role(event) or self.member.role

    def _enter(self, run: Run, at: float, phase: str, generation: int | None) -> None:
        run.phase = phase
        if phase == "gathering":
            self._begun = False
        if phase == "training" and generation is not None and len(self._training_from) < _PASSES:
            self._training_from[generation] = min(at, self._training_from.get(generation, at))

    def _settle(self, run: Run, at: float) -> None:
        """End the span of the present state, if this event has changed the state."""
        state = self._state(run)
        if state == run.state:
            return
        if at > run.since:
            run.spans.append(Span(run.state, run.since, at))
            del run.spans[:-_SPANS]
        run.state, run.since = state, at

    def _state(self, run: Run) -> str:
        if run.phase in _LAST:
            return ""
        if run.phase in ("", "starting"):
            return STARTING if self._begun else STAGING if self._staging else WAITING
        return _STATES.get(run.phase, WAITING)

    def _add_pass(self, at: float, event: Event, generation: int | None) -> None:
        number = fields.number(event, "pass")
        if number is None or generation is None:
            return
        self.member.last_pass = number
        key = (generation, number)
        if key in self._passes or len(self._passes) < _PASSES:
            self._passes.setdefault(key, []).append(pass_of(event, generation, number, at))

    def _add_sample(self, at: float, event: Event) -> None:
        sample = Sample(
            at,
            fields.decimal(event, "loss"),
            fields.decimal(event, "accuracy"),
            fields.decimal(event, "examples_per_second"),
        )
        if sample[1:] == (None, None, None):
            return
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.member.samples.append(sample)
        if len(self.member.samples) >= 2 * self._most_samples:
            del self.member.samples[1::2]
            self._skipped = self._stride  # this sample was dropped, too
            self._stride *= 2

    def _add_death(self, at: float, event: Event, generation: int | None) -> None:
        code, process = fields.code(event, "exit_code"), fields.text(event, "process", 40)
        memory, tail = fields.text(event, "out_of_memory", 500), fields.lines(event, "tail")
        if code is None or (code == 0 and not memory):
            return
        self.member.deaths.append(Death(at, process, code, memory, tail, generation))
        del self.member.deaths[:-_DEATHS]

    def _warn(self, at: float, text: str) -> None:
        known = self.member.warnings
        if text and (text in known or len(known) < _WARNINGS):
            count, first = known.get(text, (0, at))
            known[text] = (count + 1, first)


def pass_of(event: Event, generation: int, number: int, at: float) -> PassDone:
    return PassDone(
        generation,
        number,
        at,
        fields.decimal(event, "loss"),
        fields.decimal(event, "accuracy"),
        fields.decimal(event, "examples_per_second"),
    )
