"""Exit codes, and the exception whose message tells the user what happened, where, and what to do."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """The launcher's own exit codes (docs/exit-codes.md). MASKED replaces a child's code that equals one of them."""

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


FOR_GOOD = frozenset({Exit.USAGE, Exit.NO_INPUT, Exit.GIVEN_UP, Exit.DENIED, Exit.CONFIG})  # no retry helps


class Failure(Exception):
    """Ends the command with an exit code and a message for the user. It is never shown as a traceback."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ConfigProblems(Failure):
    """Everything that is wrong with the environment, one line per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(Exit.CONFIG, "\n".join(problems))
        self.problems = problems
