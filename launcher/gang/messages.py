"""The messages of a gang at work. `protocol.py` explains them; each `read_` function raises Malformed.

A message with values that its `read_` function would refuse is not made: Unsendable is raised instead.
"""

from __future__ import annotations

from launcher.base.bounds import is_number, is_seconds, is_text
from launcher.gang.events import PASSES, Begin, Collect, Progress, Restart, Stop, Train, Until
from launcher.gang.protocol import Malformed, Message, checked, number, optional_number, seconds, text
from launcher.model import Cause, CauseKind, MemberReport, ProcessState, Start

_WHAT_LIMIT = 2048
_TAIL_LIMIT = 8 * 1024
_LINE_LIMIT = 200
_REASON_LIMIT = 200
_STATES_LIMIT = 8


def plain(word: str) -> Message:
    """Return a message without fields."""
    return {"word": word}


def of_attempt(word: str, attempt: int) -> Message:
    """Return a message about one attempt."""
    return {"word": word, "turn": attempt}


def read_attempt(message: Message) -> int:
    return number(message, "turn")


def begin(attempt: int, start: Start) -> Message:
    message = {
        **of_attempt("begin", attempt),
        "generation": start.generation,
        "resume": start.resume,
        "before": start.trainers_before,
    }
    return checked(message, read_begin)


def read_begin(message: Message) -> Begin:
    resume, before = optional_number(message, "resume"), optional_number(message, "before")
    return Begin(read_attempt(message), Start(number(message, "generation"), resume, before))


def train(attempt: int, stall: float) -> Message:
    return checked({**of_attempt("train", attempt), "stall": stall}, read_train)


def read_train(message: Message) -> Train:
    return Train(seconds(message, "stall"))


def until(attempt: int, step: int) -> Message:
    return checked({**of_attempt("until", attempt), "step": step}, read_until)


def read_until(message: Message) -> Until:
    return Until(number(message, "step"))


def reached(attempt: int, step: int | None) -> Message:
    return checked({**of_attempt("reached", attempt), "step": step}, read_reached)


def read_reached(message: Message) -> int | None:
    """Return the step that a member has reached, or None if its trainers count no steps."""
    return optional_number(message, "step")


def progress(attempt: int, age: float, report: Progress) -> Message:
    """Return the message about a progress report that is `age` seconds old."""
    message = {
        **of_attempt("progress", attempt),
        "age": max(age, 0.0),
        "line": report.line[:_LINE_LIMIT],
        "first": max(report.first_line_after, 0.0),
        "pause": max(report.longest_pause, 0.0),
        "passes": report.passes,
    }
    return checked(message, read_progress)


def read_progress(message: Message) -> tuple[float, Progress]:
    """Return the age of the report, and the report."""
    line, passes = message.get("line"), message.get("passes")
    if not isinstance(line, str):
        raise Malformed("line")
    if passes not in PASSES:
        raise Malformed("passes")
    report = Progress(line[:_LINE_LIMIT], seconds(message, "first"), seconds(message, "pause"), str(passes))
    return seconds(message, "age"), report


def collect(survey: int, to_file: bool) -> Message:
    return checked({"word": "collect", "survey": survey, "file": to_file}, read_collect)


def read_collect(message: Message) -> Collect:
    return Collect(number(message, "survey"), message.get("file") is True)


def collected(survey: int, report: MemberReport) -> Message:
    message = {
        "word": "collected",
        "survey": survey,
        "phase": report.phase,
        "processes": report.processes,
        "states": [_state_fields(state) for state in report.states[:_STATES_LIMIT]],
        "written": report.written,
    }
    return checked(message, read_collected)


def read_collected(message: Message) -> tuple[int, MemberReport]:
    """Return the number of the survey, and the answer of the member."""
    states = message.get("states")
    if not isinstance(states, list) or len(states) > _STATES_LIMIT:
        raise Malformed("states")
    report = MemberReport(
        text(message, "phase"),
        number(message, "processes"),
        tuple(_read_state(state) for state in states),
        message.get("written") is True,
    )
    return number(message, "survey"), report


def _state_fields(state: ProcessState) -> list[str | float]:
    role, where, frame = (_printable(each) for each in (state.role, state.where, state.frame))
    return [role, where, frame, max(state.quiet, 0.0), state.count]


def _read_state(fields: object) -> ProcessState:
    match fields:
        case [str(role), str(where), str(frame), quiet, count] if is_seconds(quiet) and is_number(count):
            if all(is_text(each) for each in (role, where, frame)):
                return ProcessState(role, where, frame, float(quiet), count)
    raise Malformed("states")


def restart(attempt: int, cause: Cause) -> Message:
    return checked({**of_attempt("restart", attempt), "cause": _cause_fields(cause)}, read_restart)


def read_restart(message: Message) -> Restart:
    return Restart(read_attempt(message), _read_cause(message))


def failed(attempt: int, cause: Cause, age: float) -> Message:
    message = {**of_attempt("failed", attempt), "cause": _cause_fields(cause), "age": max(age, 0.0)}
    return checked(message, read_failed)


def read_failed(message: Message) -> tuple[Cause, float]:
    """Return the cause, and how many seconds before the message was sent the failure happened."""
    return _read_cause(message), seconds(message, "age")


def stop(cause: Cause, rejoin: bool = False) -> Message:
    return checked({"word": "stop", "cause": _cause_fields(cause), "again": rejoin}, read_stop)


def read_stop(message: Message) -> Stop:
    return Stop(_read_cause(message), message.get("again") is True)


def finish(after: float = 0.0) -> Message:
    return checked({"word": "finish", "after": after}, read_finish)


def read_finish(message: Message) -> float:
    """Return after how many seconds no process of the gang runs any more."""
    return seconds(message, "after")


def unreached(rank: int, age: float, reason: str) -> Message:
    """Return the message that the member `rank` was not reached for `age` seconds."""
    message = {"word": "unreached", "rank": rank, "age": age, "reason": _printable(reason)}
    return checked(message, read_unreached)


def read_unreached(message: Message) -> tuple[int, float, str]:
    """Return the rank of the member that was not reached, for how many seconds, and why."""
    return number(message, "rank"), seconds(message, "age"), text(message, "reason")


def _printable(given: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in given[:_REASON_LIMIT])


def _cause_fields(cause: Cause) -> Message:
    return {
        "kind": cause.kind,
        "rank": cause.rank,
        "pod": cause.pod,
        "what": cause.what[:_WHAT_LIMIT],
        "code": int(cause.code),
        "tail": _last_lines(cause.tail),
        "final": cause.final,
        "silent": cause.silent,
    }


def _last_lines(tail: tuple[str, ...]) -> list[str]:
    """Return as many of the last lines as fit into 8 KiB: the hub sends these lines to every member."""
    kept: list[str] = []
    room = _TAIL_LIMIT
    for line in reversed(tail):
        if room <= 0:
            break
        kept.append(line[:room])
        room -= len(line) + 1
    return kept[::-1]


def _read_cause(message: Message) -> Cause:
    match message.get("cause"):
        case {
            "kind": str(kind),
            "rank": None | int() as rank,
            "pod": str(pod),
            "what": str(what),
            "code": int(code),
            "tail": list(tail),
            "final": bool(final),
            "silent": bool(silent),
        } if all(isinstance(line, str) for line in tail) and (rank is None or is_number(rank)):
            return Cause(_read_kind(kind), rank, pod, what, code, tuple(tail), final, silent)
    raise Malformed("cause")


def _read_kind(name: str) -> CauseKind:
    """Return the kind. An unknown kind becomes LAUNCHER, after which there is no restart and no rejoin."""
    try:
        return CauseKind(name)
    except ValueError:
        return CauseKind.LAUNCHER
