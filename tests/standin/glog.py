"""Write log lines and end the process as glog does: information, a failed check, a crash, a signal."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from . import knobs

_STACK = """\
    @     0x7f5d2f3c6390 (unknown)
    @     0x7f5d2d8c5428 gsignal
    @     0x7f5d2d8c702a abort
    @           0x8e5d2c paddle::{}
    @           0x51f2a5 (unknown)
"""

_info_fds: list[int] = [2]


def start(program: str) -> None:
    """Set the process name and the signal handling of the original, and open the log."""
    with open("/proc/self/comm", "w") as comm:
        comm.write(program)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if knobs.deaf() else _terminated)
    folder = os.environ.get("GLOG_log_dir", "")  # noqa: SIM112
    if os.environ.get("GLOG_logtostderr") == "0" and folder:  # noqa: SIM112
        name = f"{folder}/{program}.INFO.{time.strftime('%Y%m%d-%H%M%S')}.{os.getpid()}"
        _info_fds[:] = [os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)]


def info(where: str, message: str) -> None:
    for fd in _info_fds:
        _write(fd, _line("I", where, message))


def raw(text: str) -> None:
    """Write to standard error without glog, as the original does for dots, line ends and Python's tracebacks."""
    _write(2, text)


def fatal(where: str, message: str) -> NoReturn:
    """Fail a check: write the line and a stack trace, and end with SIGABRT. A shell shows 134."""
    line = _line("F", where, message)
    for fd in {*_info_fds, 2}:
        _write(fd, line)
    _write(2, "*** Check failure stack trace: ***\n" + _STACK.format(where.split(".")[0] + "::check()"))
    _signal_text(signal.SIGABRT)
    os.abort()


def segfault(where: str) -> NoReturn:
    """Crash: write a stack trace, and end with SIGSEGV. A shell shows 139."""
    _signal_text(signal.SIGSEGV, where)
    _die(signal.SIGSEGV)


def command_line() -> str:
    """Return the command line as the original logs it: with the name of the binary, not of this module."""
    program = sys.argv[0][: -len(".py")] if sys.argv[0].endswith(".py") else sys.argv[0]
    return " ".join([program, *sys.argv[1:]])


def _line(level: str, where: str, message: str) -> str:
    now = time.time()
    stamp = time.strftime("%m%d %H:%M:%S", time.localtime(now))
    return f"{level}{stamp}.{int(now % 1 * 1e6):06d} {os.getpid():5d} {where}] {message}\n"


def _write(fd: int, text: str) -> None:
    data = text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        pass  # glog also loses lines if standard error is closed


def _signal_text(number: signal.Signals, where: str = "SocketChannel::read()") -> None:
    pid, now = os.getpid(), int(time.time())
    _write(
        2,
        f'*** Aborted at {now} (unix time) try "date -d @{now}" if you are using GNU date ***\n'
        "PC: @     0x7f5d2d8c5428 (unknown)\n"
        f"*** {number.name} (@0x{pid:x}) received by PID {pid} (TID 0x7f5d30c5a740); stack trace: ***\n"
        + _STACK.format(where),
    )


def _terminated(number: int, frame: FrameType | None) -> None:
    _signal_text(signal.SIGTERM, "Trainer::train()")
    _die(signal.SIGTERM)


def _die(number: signal.Signals) -> NoReturn:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise AssertionError("a signal at its default ended nothing")
