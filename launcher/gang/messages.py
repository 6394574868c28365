"""The messages of a gang at work. `protocol.py` explains them; each `read_` function raises Malformed.

A message with values that its `read_` function would refuse is not made: Unsendable is raised instead.
"""

from __future__ import annotations

from launcher.base.bounds import is_number
from launcher.gang.events import Begin, Restart, Stop, Train
from launcher.gang.protocol import Malformed, Message, checked, number, optional_number, seconds, text
from launcher.model import Cause, CauseKind, Start

_WHAT_LIMIT = 2048
_TAIL_LIMIT = 8 * 1024
_LINE_LIMIT = 200
_REASON_LIMIT = 200


def plain(word: str) -> Message:
    """Return a message without fields."""
    return {"word": word}


def of_attempt(word: str, attempt: int) -> Message:
    """Return a message about one attempt."""
    return {"word": word, "turn": attempt}


def read_attempt(message: Message) -> int:
    return number(message, "turn")


def begin(attempt: int, start: Start) -> Message:
    message = {**of_attempt("begin", attempt), "generation": start.generation, "resume": start.resume}
    return checked(message, read_begin)


def read_begin(message: Message) -> Begin:
    return Begin(read_attempt(message), Start(number(message, "generation"), optional_number(message, "resume")))


def train(attempt: int, stall: float) -> Message:
    return checked({**of_attempt("train", attempt), "stall": stall}, read_train)


def read_train(message: Message) -> Train:
    return Train(seconds(message, "stall"))


def progress(attempt: int, age: float, line: str) -> Message:
    message = {**of_attempt("progress", attempt), "age": max(age, 0.0), "line": line[:_LINE_LIMIT]}
    return checked(message, read_progress)


def read_progress(message: Message) -> tuple[float, str]:
    """Return the age and the text of the last line of a trainer."""
    line = message.get("line")
    if not isinstance(line, str):
        raise Malformed("line")
    return seconds(message, "age"), line[:_LINE_LIMIT]


def collected(attempt: int, processes: int, written: bool) -> Message:
    return checked({**of_attempt("collected", attempt), "processes": processes, "written": written}, read_collected)


def read_collected(message: Message) -> tuple[int, bool]:
    """Return the number of processes, and whether the evidence was written to a file."""
    return number(message, "processes"), message.get("written") is True


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
    printable = "".join(letter if letter.isprintable() else "?" for letter in reason)
    message = {"word": "unreached", "rank": rank, "age": age, "reason": printable[:_REASON_LIMIT]}
    return checked(message, read_unreached)


def read_unreached(message: Message) -> tuple[int, float, str]:
    """Return the rank of the member that was not reached, for how many seconds, and why."""
    return number(message, "rank"), seconds(message, "age"), text(message, "reason")


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
