"""A whole gang on this machine: N launchers as processes of one network of their own, by the same code as in pods."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence

from launcher import config, namespace, paddle
from launcher.errors import Exit
from launcher.processes import own_module

MOST_NODES = 200
NOT_THE_USERS = frozenset(f"LAUNCHER_{name}" for name in ("RANK", "DISCOVERY", "PEERS", "SERVICE", "SELECTOR", "ROLE"))
_LAST_LINES = 2.0  # seconds for standard output to take what is left: its reader may have stopped
_PR_SET_PDEATHSIG = 1


def run(
    nodes: int,
    own: Mapping[str, str],
    flags: Sequence[str],
    command: Sequence[str],
    environment: Mapping[str, str],
    received: list[int],
) -> int:
    """Start one launcher a node, show their lines with the rank in front, and end with the job's exit code."""
    places = [("lo", "127.0.0.1")] if nodes == 1 else namespace.enter(nodes)
    with tempfile.TemporaryDirectory(prefix="paddle-launcher-") as folder:
        shared = _one_job({**environment, **own}, places, folder)
        told = [_one_node(shared, rank, *place, folder) for rank, place in enumerate(places)]
        config.read(told[0], {}, programs=paddle.programs(command))
        words = [*flags, *(["--", *command] if command else [])]
        return _see_through([_start(variables, words) for variables in told], received)


def _one_job(given: Mapping[str, str], places: Sequence[tuple[str, str]], folder: str) -> dict[str, str]:
    """What all members are told. Without an identity of the user's own each run is another job."""
    told = {
        **given,
        "CONF_PADDLE_GRADIENT_NUM": str(len(places)),
        "LAUNCHER_ROLE": "",
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
    """What one member is told. Where data is staged each has a work directory of its own, as pods do."""
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
    """A session of its own: Ctrl-C reaches the launchers through this process, once."""
    return subprocess.Popen(
        [*own_module("launcher"), "run", *words],
        env=told,
        cwd="/",  # `-m` looks in the current directory first, which may hold a json.py of the user's
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_end_with_this_process,
    )


def _end_with_this_process() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _see_through(launchers: Sequence[subprocess.Popen[bytes]], received: list[int]) -> int:
    """Until the last one has ended. Signals go on to all of them."""

    forwarded: list[int] = []

    def forward(number: int, _frame: object) -> None:
        forwarded.append(number)
        for launcher in launchers:
            launcher.terminate()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    if received and not forwarded:
        forward(received[0], None)
    lock = threading.Lock()
    printers = [
        threading.Thread(target=_print_lines, args=(rank, launcher, lock), daemon=True)
        for rank, launcher in enumerate(launchers)
    ]
    for printer in printers:
        printer.start()
    codes = [launcher.wait() for launcher in launchers]
    for printer in printers:
        printer.join(_LAST_LINES)
    return _job_code(codes)


def _print_lines(rank: int, launcher: subprocess.Popen[bytes], lock: threading.Lock) -> None:
    assert launcher.stdout is not None
    with launcher.stdout:  # closed when nobody reads ours any more: the launcher must not wait for us
        for line in launcher.stdout:
            try:
                with lock:
                    sys.stdout.buffer.write(b"[%d] %s" % (rank, line))
                    sys.stdout.buffer.flush()
            except OSError:
                return


def _job_code(codes: Sequence[int]) -> int:
    """The code of the member at fault, not of those who ended because of it."""
    shown = [code if code >= 0 else 128 - code for code in codes]
    followers = (Exit.COMPLETE, Exit.PEER_FAILED, Exit.STOPPED)
    at_fault = [code for code in shown if code not in followers]
    return next(iter(at_fault), max(shown))
