"""Run a whole gang on this machine: N launchers in one network namespace. They run the same code as in pods."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

from launcher import config, paddle
from launcher.base import shortage
from launcher.base.log import StderrHandler, shown_by
from launcher.base.spawn import module_command
from launcher.errors import Exit, Failure
from launcher.run import netns
from launcher.run.signals import FORWARDED, STOPS

log = logging.getLogger(__name__)

MOST_NODES = 200
NOT_THE_USERS = frozenset(
    f"LAUNCHER_{name}" for name in ("RANK", "DISCOVERY", "PEERS", "SERVICE", "SELECTOR", "ROLE", "HETERS")
)
_FOLLOWERS = frozenset({Exit.COMPLETE, Exit.PEER_FAILED, Exit.STOPPED})
_FOLLOW_WITHIN = 10.0  # seconds after a failure in which the other launchers may end by themselves: a gang needs 2 to 7
_LAST_LINES = 2.0  # seconds to write the last lines: the reader of standard output may have stopped reading
_PR_SET_PDEATHSIG = 1


def run(
    nodes: int,
    own: Mapping[str, str],
    flags: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    received: list[int],
) -> int:
    """Start one launcher per node, and print their lines, each with its rank. Return the job's exit code."""
    places = [("lo", "127.0.0.1")] if nodes == 1 else netns.enter(nodes)
    with tempfile.TemporaryDirectory(prefix="paddle-launcher-") as folder:
        shared = _one_job({**environment, **own}, places, folder)
        told = [_one_node(shared, rank, *place, folder) for rank, place in enumerate(places)]
        grace = config.read(told[0], {}, programs=paddle.programs(command)).stop_grace
        words = [*flags, *(["--", *command] if command else [])]
        return _wait_for_all([_start(variables, words) for variables in told], received, grace)


def _one_job(given: Mapping[str, str], places: Sequence[tuple[str, str]], folder: str) -> dict[str, str]:
    """Return the variables that all members share. If the user has set no identity, each run is a new job."""
    told = {
        **given,
        "CONF_PADDLE_GRADIENT_NUM": str(len(places)),
        "LAUNCHER_ROLE": "",
        "LAUNCHER_HETERS": "",
        "LAUNCHER_JOB_ID": given.get("LAUNCHER_JOB_ID") or f"local-{secrets.token_hex(4)}",
        "LAUNCHER_WORKDIR": given.get("LAUNCHER_WORKDIR") or os.getcwd(),
        "LAUNCHER_TERMINATION_LOG": os.path.join(folder, "termination-log"),
    }
    if len(places) > 1:
        told["LAUNCHER_DISCOVERY"] = "static"
        told["LAUNCHER_PEERS"] = ",".join(address for _, address in places)
        if not given.get("JOB_PATH") and not given.get("LAUNCHER_SECRET_FILE"):
            told["LAUNCHER_SECRET_FILE"] = _secret_file(folder)
    return told


def _secret_file(folder: str) -> str:
    path = os.path.join(folder, "secret")
    with open(path, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    return path


def _one_node(shared: Mapping[str, str], rank: int, device: str, address: str, folder: str) -> dict[str, str]:
    """Return the variables of one member. With JOB_PATH, each member gets its own work directory, as in a pod."""
    told = {
        **shared,
        "LAUNCHER_RANK": str(rank),
        "CONF_PADDLE_NIC": device,
        "POD_NAME": f"node-{rank}",
        "POD_IP": address,
    }
    if shared.get("JOB_PATH"):
        told["LAUNCHER_WORKDIR"] = os.path.join(folder, f"node_{rank}")
        os.mkdir(told["LAUNCHER_WORKDIR"])
    return told


def _start(told: Mapping[str, str], words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a launcher in its own process session, so that only this process forwards Ctrl-C to the launcher."""
    try:
        return subprocess.Popen(
            [*module_command("launcher"), "run", *words],
            env=told,
            cwd="/",  # `-m` imports from the current directory first, and a user's json.py may be there
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_this_process,
        )
    except OSError as error:
        why = shortage.explain(error, starting=True) or error
        raise Failure(Exit.IO_FAILED, f"node {told['LAUNCHER_RANK']} cannot be started: {why}") from None


def _end_with_this_process() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _wait_for_all(launchers: Sequence[subprocess.Popen[bytes]], received: list[int], grace: float) -> int:
    """Wait until the last launcher has ended, and return the job's exit code. Forward signals to all launchers."""

    forwarded: list[int] = []

    def stop(number: int, _frame: object) -> None:
        forwarded.append(number)
        for launcher in launchers:
            launcher.terminate()

    def pass_on(number: int, _frame: object) -> None:
        for launcher in launchers:
            launcher.send_signal(number)

    for number in STOPS:
        signal.signal(number, stop)
    for number in FORWARDED:
        signal.signal(number, pass_on)
    if received and not forwarded:
        stop(received[0], None)
    lock = threading.Lock()
    printers = [
        threading.Thread(target=_print_lines, args=(rank, pipe, target.buffer, lock), daemon=True)
        for rank, launcher in enumerate(launchers)
        for pipe, target in ((launcher.stdout, sys.stdout), (launcher.stderr, sys.stderr))
    ]
    for printer in printers:
        printer.start()
    codes = _Ends(launchers, grace).wait(forwarded)
    for printer in printers:
        printer.join(_LAST_LINES)
    return _job_code(codes)


@contextmanager
def _deaths() -> Iterator[int]:
    """Yield a descriptor that becomes readable when a child dies, or another signal arrives."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        signal.signal(signal.SIGCHLD, handler)
        os.close(reading)
        os.close(writing)


class _Ends:
    """Wait until all launchers have ended. If one fails, and the others do not end in time, stop the others."""

    def __init__(self, launchers: Sequence[subprocess.Popen[bytes]], grace: float) -> None:
        self._launchers = launchers
        self._grace = grace
        self._running = set(range(len(launchers)))
        self._codes: dict[int, int] = {}  # by rank, in the order in which they ended
        self._deadline = math.inf  # time at which launchers that still run are stopped
        self._stopped = False  # whether the launchers got a signal: a second signal would kill all processes at once

    def wait(self, forwarded: Sequence[int]) -> list[int]:
        """Return the exit codes, as a shell shows them, in the order in which the launchers ended.

        forwarded: the signals that were sent to all launchers
        """
        with _deaths() as deaths:
            signalled = select.poll()
            signalled.register(deaths, select.POLLIN)
            while self._running:
                self._stopped = self._stopped or bool(forwarded)
                waits = not self._stopped and self._deadline < math.inf
                if ended := [rank for rank in self._running if self._launchers[rank].poll() is not None]:
                    for rank in ended:
                        self._ended(rank)
                elif signalled.poll(max(0.0, self._deadline - time.monotonic()) * 1000 if waits else None):
                    os.read(deaths, 4096)
                elif not forwarded:
                    self._stop_the_others()
        return list(self._codes.values())

    def _ended(self, rank: int) -> None:
        self._running.remove(rank)
        code = self._launchers[rank].wait()
        code = code if code >= 0 else 128 - code
        self._codes[rank] = code
        if code != Exit.COMPLETE:  # another launcher may be at fault, and may still be in its grace period
            within = _FOLLOW_WITHIN + (self._grace if code in _FOLLOWERS else 0)
            self._deadline = min(self._deadline, time.monotonic() + within)

    def _stop_the_others(self) -> None:
        self._stopped = True
        failed = ", ".join(f"node {rank} ended with exit code {code}" for rank, code in self._codes.items() if code)
        others = sorted(self._running)
        for rank in others:
            self._launchers[rank].terminate()
        handler = StderrHandler(name="local")
        with shown_by(handler):
            log.info(f"{failed}: stopping the other nodes: {', '.join(map(str, others))}")
            handler.close(_LAST_LINES)


def _print_lines(rank: int, pipe: IO[bytes] | None, target: IO[bytes], lock: threading.Lock) -> None:
    assert pipe is not None
    with pipe:  # without a reader of this process's output, close the pipe: else the launcher would block
        for line in pipe:
            try:
                with lock:
                    target.write(b"[%d] %s" % (rank, line))
                    target.flush()
            except OSError:
                return


def _job_code(codes: Sequence[int]) -> int:
    """Return the exit code of the first member that is at fault. If no member is at fault, return the highest code.

    The codes of `_FOLLOWERS` show that a member is not at fault.
    """
    at_fault = [code for code in codes if code not in _FOLLOWERS]
    return next(iter(at_fault), max(codes))
