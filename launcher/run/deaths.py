"""Convert the death of a process to a cause: how the process died, why (if that is known), and what to do."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from launcher import paddle
from launcher.errors import Exit
from launcher.model import TRAINER, Cause, CauseKind, Process, role_name
from launcher.processes.proc import program
from launcher.processes.supervisor import Died


def cause(death: Died, mode: str, rank: int | None, pod: str) -> Cause:
    """Return the cause that describes this death."""
    process, code = death.process, paddle.program_exit_code(death.code, death.recent_lines)
    what = death.start_error or _how(process, code)
    if death.out_of_memory:
        what = f"{what}: {death.out_of_memory}"
    if reason := paddle.reason(mode, code, death.recent_lines):
        what = f"{what}: {reason}"
    if known := paddle.advice(mode, process.role, code, death.recent_lines):
        what = f"{what}: {known}"
    return Cause(CauseKind(process.role), rank, pod, what, code, paddle.hide_environment(death.tail))


def _how(process: Process, code: int) -> str:
    name = f"{role_name(process.role)} (`{program(process.argv)}`)"
    if code > 128:
        try:
            return f"{name} was killed by {signal.Signals(code - 128).name} (exit code {code})"
        except ValueError:
            pass
    ended = "ended" if process.role == TRAINER else "ended by itself"
    return f"{name} {ended} with exit code {code}"


def blocked(left: Sequence[Process], rank: int | None, pod: str) -> Cause:
    """Return the cause that describes processes which did not end after SIGKILL."""
    roles_left = ", ".join(role_name(process.role) for process in left)
    what = (
        f"processes did not end after SIGKILL ({roles_left}): they are blocked in the kernel; this pod cannot "
        "start processes again"
    )
    return Cause(CauseKind.LAUNCHER, rank, pod, what, Exit.IO_FAILED)
