"""Compare this launcher with `python -m paddle.distributed.launch`, for Paddle 2.x and 3.x, on the same machine.

    PADDLE_2=.../python PADDLE_3=.../python python -m bench paddle    # `make test-paddle` makes both
    PADDLE_2=... PADDLE_3=... python -m bench.paddle start memory     # only these rows

This launcher runs on the Python of this benchmark. The worker and Paddle's launcher run on the Pythons with Paddle.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from bench.jobs import now, until_quiet
from bench.processes import Ends
from bench.sides import SECRET, WORKER, InOrder, Peer, Plain, Side, fresh
from tests.support.jobs import until

RUNS = 10
SLOW_RUNS = 3
NEVER = 15.0  # seconds to wait for an event
GRACE = 5
DEADLINE = 30
SETTLED = 4.0
SPAN = 20.0  # seconds for which the CPU time of a waiting launcher is measured
MIB = 2**20
TWO_WORKERS = {"LAUNCHER_MODE": "collective", "LAUNCHER_TRAINERS_PER_NODE": "2", "PADDLE_NPROC_PER_NODE": "2"}
PATIENCE = 60.0
WITH_SERVERS, NEWER = "2.6.2", "3.3.1"
VERSIONS = {WITH_SERVERS: "PADDLE_2", NEWER: "PADDLE_3"}
SERVE_AND_TRAIN = Path(__file__).parents[1] / "tests/wheels/programs/server_and_trainer.py"
BOTH: tuple[type[Side], ...] = (Peer, Side)


@dataclass(frozen=True)
class Ended:
    """The exit codes of launchers, None for a launcher that has not ended, and the seconds until then."""

    codes: Sequence[int | None]
    seconds: float


Sample = Callable[[type[Side], str], float]


# ---- times of a start ------------------------------------------------------------------------------------------------


def start() -> None:
    """Measure the time until the worker's first line."""
    for size in (1, 2):
        took = _in_turn((Plain, *BOTH), NEWER, RUNS, partial(_begins, size))
        print(f"first line of the worker, {_nodes(size)}, {NEWER}: {_said(took)}")
        _compare(took, Plain)


def _begins(size: int, kind: type[Side], python: str) -> float:
    with fresh(kind, size) as job:
        begin = now()
        job.launch(python, "begins")
        return job.marked("began") - begin


def meet() -> None:
    """Measure the time until init_parallel_env has returned in all workers of two nodes."""
    took = _in_turn((Plain, InOrder, *BOTH), NEWER, RUNS, _meets)
    print(f"two workers have connected, {NEWER}: {_said(took)}")
    for plain in (Plain, InOrder):
        _compare(took, plain)


def _meets(kind: type[Side], python: str) -> float:
    with fresh(kind, 2) as job:
        begin = now()
        job.launch(python, "meets")
        return job.marked("met") - begin


# ---- memory while the job trains, CPU time while a launcher waits ----------------------------------------------------


def memory() -> None:
    """Measure the memory of the launcher of a node, without its worker, while two nodes train."""
    for version in VERSIONS:
        took = _in_turn(BOTH, version, SLOW_RUNS, _resident)
        said = "; ".join(f"{kind.name} {median(used):.1f} MiB, worst {max(used):.1f}" for kind, used in took.items())
        print(f"resident beside the worker, {version}: {said}")


def _resident(kind: type[Side], python: str) -> float:
    """Return the MiB of the launcher, and of its helper processes the memory that they do not share with it."""
    with fresh(kind, 2) as job:
        job.launch(python, "adds").marked("met")
        time.sleep(SETTLED)
        launcher, *others = job.own_processes(1)
        own = launcher.memory_info().rss / MIB
        more = sum(one.memory_full_info().uss for one in others) / MIB
        print(f"# {kind.name}: {own:.1f} MiB, {more:.1f} more in {len(others)} processes of its own")
        return float(own + more)


def absent() -> None:
    """Start only the second of two nodes, and measure what its launcher does."""
    for kind in BOTH:
        until_quiet()
        with fresh(kind, 2, {"LAUNCHER_PEER_TIMEOUT": str(DEADLINE)}) as job:
            begin = now()
            job.launch(_python(NEWER), "meets", 1)
            share = _share_of_a_core(job)
            code = _code(job, 1, within=DEADLINE + NEVER - (now() - begin))
            said = f"{share:.2f} % of a core; {_codes([code])} after {now() - begin:.1f} s"
            print(f"an absent peer, deadline {DEADLINE} s, {NEWER}, {kind.name}: {said}")
            print("\n".join(f"#   {line}" for line in job.stderr(1).splitlines()[-3:]))


def _share_of_a_core(job: Side) -> float:
    time.sleep(SETTLED)
    own = job.own_processes(1)
    before = sum(sum(one.cpu_times()[:2]) for one in own)
    time.sleep(SPAN)
    return 100 * (sum(sum(one.cpu_times()[:2]) for one in own) - before) / SPAN


# ---- ends ------------------------------------------------------------------------------------------------------------


def killed() -> None:
    """Kill a worker, and measure the time until the launcher of the other node has ended."""
    for how in ("waits", "adds"):
        _ends(f"a worker is killed, the other worker {how}; launcher of the other node", NEWER, partial(_killed, how))


def _killed(how: str, kind: type[Side], python: str) -> Ended:
    with fresh(kind, 2) as job:
        job.launch(python, how).marked("met")
        worker = job.process(1, WORKER.name)
        begin = now()
        worker.kill()
        return Ended([_code(job, 0, NEVER)], now() - begin)


def fails() -> None:
    """Let a worker end with 3 while another worker waits for it, and print the exit codes of the launchers."""
    for version in VERSIONS:
        for kind in BOTH:
            apart, together = [], []
            for _ in range(SLOW_RUNS):
                with fresh(kind, 2) as job:
                    job.launch(_python(version), "3")
                    apart.append([_code(job, rank, PATIENCE) for rank in (1, 0)])
                with fresh(kind, 1, TWO_WORKERS) as job:
                    job.launch(_python(version), "3")
                    together.append(_code(job, 0, PATIENCE))
            own, other = zip(*apart, strict=True)
            said = f"{_codes(own)}, other launcher {_codes(other)}; with both workers on one node {_codes(together)}"
            print(f"a worker ends with 3, {version}: its launcher, {kind.name}: {said}")


def stop() -> None:
    """Send SIGTERM to a launcher whose worker ignores SIGTERM."""
    _ends(f"SIGTERM, the worker ignores it, grace {GRACE} s", NEWER, _stopped)


def _stopped(kind: type[Side], python: str) -> Ended:
    with fresh(kind, 1, {"LAUNCHER_STOP_GRACE": str(GRACE)}) as job:
        job.launch(python, "stubborn").marked("began")
        begin = now()
        job.launchers[0].terminate()
        return Ended([_code(job, 0, PATIENCE)], now() - begin)


def servers() -> None:
    """Measure how a job with parameter servers ends after its last trainer."""
    _ends("parameter servers, after the last trainer", WITH_SERVERS, _served)


def _served(kind: type[Side], python: str) -> Ended:
    with fresh(kind, 2) as job:
        job.serve(python, SERVE_AND_TRAIN)
        until(partial(_all_train, job), PATIENCE, "trainers")
        last = max(Ends(_trainers(job)).wait().values())
        codes = [_code(job, rank, max(0.0, last + NEVER - now())) for rank in range(job.size)]
        return Ended(codes, now() - last)


def _all_train(job: Side) -> bool:
    return len(_trainers(job)) == job.size


def _trainers(job: Side) -> list[int]:
    return [pid for pid in job.nodes.inside() if _trains(pid)]


def _trains(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        runs_it = str(SERVE_AND_TRAIN) in process.cmdline()[1:3]
        return runs_it and process.environ().get("TRAINING_ROLE") == "TRAINER"
    except psutil.Error:
        return False


# ---- the environment -------------------------------------------------------------------------------------------------


def secrets() -> None:
    """Print which files contain the value of a secret variable after a worker has failed."""
    for version in VERSIONS:
        for kind in BOTH:
            with fresh(kind, 2, {"DATABASE_PASSWORD": SECRET}, volume=True) as job:
                job.launch(_python(version), "3")
                _code(job, 1, PATIENCE)
                found = [f"{path} ({mode})" for path, mode in job.files_with_the_secret()]
                said = ": ".join([f"{len(found)} files", *filter(None, [", ".join(found)])])
                print(f"a secret variable is in, {version}, {kind.name}: {said}")


# ---- helpers ---------------------------------------------------------------------------------------------------------


def _in_turn(kinds: Iterable[type[Side]], version: str, runs: int, sample: Sample) -> dict[type[Side], list[float]]:
    found: dict[type[Side], list[float]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        for kind, values in found.items():
            until_quiet()
            values.append(sample(kind, _python(version)))
    return found


def _ends(what: str, version: str, case: Callable[[type[Side], str], Ended]) -> None:
    """Run a case with both launchers in turn. Paddle's launcher is slow, so it runs only SLOW_RUNS times."""
    found: dict[type[Side], list[Ended]] = {kind: [] for kind in BOTH}
    for run in range(RUNS):
        for kind, ends in found.items():
            if run < SLOW_RUNS or kind is Side:
                until_quiet()
                ends.append(case(kind, _python(version)))
    for kind, ends in found.items():
        codes = _codes(code for end in ends for code in end.codes)
        print(f"{what}, {version}, {kind.name}: {_spread([end.seconds for end in ends])}; {codes}")


def _python(version: str) -> str:
    variable = VERSIONS[version]
    given = os.environ.get(variable)
    if not given:
        raise SystemExit(f"{variable} must name a Python that has Paddle {version}: `make test-paddle` makes one")
    return os.path.abspath(given)


def _code(job: Side, rank: int, within: float) -> int | None:
    """Return the exit code of a launcher, or None if it still runs."""
    try:
        status = job.launchers[rank].wait(within)
    except subprocess.TimeoutExpired:
        return None
    return status if status >= 0 else 128 - status


def _codes(codes: Iterable[int | None]) -> str:
    shown = sorted({"still running" if code is None else f"exit code {code}" for code in codes})
    return ", ".join(shown)


def _nodes(size: int) -> str:
    return "one node" if size == 1 else f"{size} nodes"


def _spread(values: list[float]) -> str:
    return f"median {median(values):.2f} s, worst {max(values):.2f} s of {len(values)}"


def _said(took: dict[type[Side], list[float]]) -> str:
    return "; ".join(f"{kind.name} {_spread(values)}" for kind, values in took.items())


def _compare(took: dict[type[Side], list[float]], plain: type[Side]) -> None:
    """Print how much longer each launcher takes than no launcher."""
    theirs, ours = (median(took[kind]) - median(took[plain]) for kind in BOTH)
    print(f"  above {plain.name}: {Peer.name} {theirs:.2f} s, {Side.name} {ours:.2f} s; ratio {ours / theirs:.2f}")


ROWS: dict[str, Callable[[], None]] = {
    row.__name__: row for row in (start, meet, memory, absent, killed, fails, stop, servers, secrets)
}


def main(arguments: list[str]) -> None:
    for version in VERSIONS:
        _python(version)
    if unknown := set(arguments) - set(ROWS):
        raise SystemExit(f"{', '.join(sorted(unknown))}: expected some of {', '.join(ROWS)}")
    for name in arguments or ROWS:
        print(f"# {name}: load {os.getloadavg()[0]:.1f}", flush=True)
        ROWS[name]()
        sys.stdout.flush()
    print(f"# load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
