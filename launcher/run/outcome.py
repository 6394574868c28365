"""Derive the outcome of a member from the first cause: exit code, text and termination message."""

from __future__ import annotations

import os
from collections.abc import Sequence

from launcher.base import shortage
from launcher.errors import Exit
from launcher.model import Cause, CauseKind, Outcome, Shape, describe_cause

_OWN_CODES = frozenset(int(code) for code in Exit)
_STOPPED = "got SIGTERM, and stopped in order"
_TERMINATION_LIMIT = 4096  # bytes: Kubernetes cuts longer messages


def outcome_of(
    cause: Cause | None, rank: int | None, *, told_to_stop: bool, shape: Shape, alone: str | None = None
) -> Outcome:
    """Return how this launcher ends.

    cause: the first cause; None if the job is complete
    told_to_stop: this launcher has received SIGTERM
    alone: why the Job of the other role starts no new pod after this cause, or None if it may start one. If `alone`
        is set, this member ends with GIVEN_UP instead of PEER_FAILED. After PEER_FAILED, this member's own Job would
        start a new pod, which would wait for the other role in vain.
    """
    code = _exit_code(cause, rank, told_to_stop)
    if alone and cause and code == Exit.PEER_FAILED:
        return Outcome(code=Exit.GIVEN_UP, cause=cause, text=f"given up: {alone}: {describe_cause(cause, shape)}")
    return Outcome(code=code, cause=cause, text=_text(cause, rank, code, shape))


def stands_for(cause: Cause, rank: int | None) -> bool:
    """Return whether this member reports the cause in place of a member that is gone.

    The hub reports for every other member. Rank 1 reports for the hub.
    """
    return rank == (1 if cause.rank == 0 else 0)


def is_blamed(cause: Cause, rank: int | None) -> bool:
    """Return whether this member must end first, since Kubernetes blames the first failed pod that it sees."""
    return _shows(cause, rank) and cause.kind is not CauseKind.STOPPED


def _shows(cause: Cause, rank: int | None) -> bool:
    """Return whether this member's exit code shows the cause. If not, its exit code shows that a peer failed."""
    if cause.kind is CauseKind.STALLED:
        return rank == 0
    if cause.kind is CauseKind.LOST:
        return stands_for(cause, rank)
    return cause.rank == rank


def _exit_code(cause: Cause | None, rank: int | None, told_to_stop: bool) -> int:
    if told_to_stop:
        return Exit.STOPPED
    if cause is None:
        return Exit.COMPLETE
    if cause.final:
        return Exit.GIVEN_UP
    if cause.kind is CauseKind.PEERS:
        return cause.code
    if not _shows(cause, rank):
        return Exit.PEER_FAILED
    if cause.kind is CauseKind.LOST:
        return Exit.PEER_LOST
    if cause.kind.is_child and cause.code in _OWN_CODES:
        return Exit.MASKED
    return cause.code


def _text(cause: Cause | None, rank: int | None, code: int, shape: Shape) -> str:
    if cause is None:
        return "the job is complete" if code == Exit.COMPLETE else _STOPPED
    first = describe_cause(cause, shape)
    if code == Exit.STOPPED and (cause.kind is not CauseKind.STOPPED or cause.rank != rank):
        return f"{_STOPPED}; first cause: {first}"
    if code == Exit.STOPPED:
        return _STOPPED
    if code == Exit.PEER_FAILED and cause.kind is not CauseKind.STALLED:
        return f"ended because of a peer: {first}"
    if code == Exit.MASKED and cause.kind.is_child:
        return (
            f"{first}; exit code {cause.code} is shown as {code}, since {cause.code} is one of the launcher's own codes"
        )
    return first


def termination_message(result: Outcome, earlier: Sequence[str] = ()) -> bytes:
    """Return the outcome, the causes of earlier generations, and the last lines of the dead process.

    If there are over 4096 bytes, drop the oldest of the last lines, and the end of the outcome.
    """
    causes = "".join(f"{line}\n" for line in earlier).encode(errors="backslashreplace")[: _TERMINATION_LIMIT // 2]
    text = f"exit code {result.code}: {result.text}".encode(errors="backslashreplace")
    cut = text[: _TERMINATION_LIMIT - len(causes) - 1].decode(errors="ignore").encode()  # no part of a character
    head = cut + b"\n" + causes
    lines = [line.encode(errors="backslashreplace") + b"\n" for line in result.cause.tail] if result.cause else []
    while lines and len(head) + sum(map(len, lines)) > _TERMINATION_LIMIT:
        lines.pop(0)
    return head + b"".join(lines)


def write_termination_message(path: str, message: bytes) -> None:
    """Write the message to the file at `path`, if Kubernetes has created this file.

    Blocks: the event loop must not call it.
    """
    try:
        descriptor = _open_termination_log(path)
    except OSError:
        return
    try:
        os.write(descriptor, message)
    except OSError:
        pass  # standard error has the same text
    finally:
        os.close(descriptor)


def _open_termination_log(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError as error:
        if not shortage.is_of_descriptors(error):
            raise
        os.close(0)  # no file descriptor is left, and the launcher does not use its standard input
        return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
