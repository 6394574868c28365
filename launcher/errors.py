"""The exit codes of the launcher, and `Failure`, an exception with an exit code and a message for the user."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """The launcher's own exit codes (docs/exit-codes.md).

    If a child process ends with one of these codes, `MASKED` replaces its code.
    """

    COMPLETE = 0
    USAGE = 64
    NO_INPUT = 66
    PEER_FAILED = 69
    MASKED = 70
    GIVEN_UP = 71
    STALLED = 72
    CANNOT_WRITE = 73
    IO_FAILED = 74
    TIMED_OUT = 75
    PEER_LOST = 76
    DENIED = 77
    CONFIG = 78
    STOPPED = 143


# The exit codes of a shell whose command cannot be run. Children end with them, too, and they are never masked.
CANNOT_RUN = 126
NOT_FOUND = 127

# No retry helps. After 126 a retry may help: the pid limit may have been used up.
FOR_GOOD = frozenset({Exit.USAGE, Exit.NO_INPUT, Exit.GIVEN_UP, Exit.DENIED, Exit.CONFIG, NOT_FOUND})


class Failure(Exception):
    """End the command with an exit code and a message for the user. The user sees no traceback.

    message: what happened, where, and what to do
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ConfigProblems(Failure):
    """Report all problems of the environment, one line per problem, then all warnings.

    code: another exit code, if another code says more about the only problem
    """

    def __init__(self, problems: list[str], warnings: Sequence[str] = (), code: int = Exit.CONFIG) -> None:
        super().__init__(code, "\n".join([*problems, *(f"warning: {warning}" for warning in warnings)]))
        self.problems = problems
        self.warnings = tuple(warnings)
