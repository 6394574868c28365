"""A job without output ends as stalled, with evidence of all its processes. Output of any trainer prevents this."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher import config
from launcher.errors import ConfigProblems, Exit, Failure
from launcher.gang import (
    ALL_PASSES,
    NO_PASS,
    SOME_PASSES,
    Collect,
    Finish,
    Progress,
    Restart,
    Stop,
    Train,
    Verdict,
    messages,
)
from launcher.model import Cause, MemberReport
from launcher.processes import evidence, stacks
from launcher.processes.proc import program as program_of
from launcher.run.stall import Watchdog
from tests.support.jobs import Job, until
from tests.support.members import Node, Scene, died, in_loop, settings
from tests.support.members import until as soon
from tests.support.supervising import eventually, needs_root, run, silent_volume

TRAINER = "paddle_trainer"
MANY = ("--config=trainer_config.lr.py", "--num_passes=1000", "--log_period=1")
STALLED = re.compile(r"the job is stalled: no trainer has printed anything for (\d+) s \(LAUNCHER_STALL_TIMEOUT=5\)")


@pytest.fixture
def watched(job: Job) -> Job:
    """Return a job with the shortest valid stall timeout."""
    job.environment |= {"LAUNCHER_STALL_TIMEOUT": "5"}
    return job


# As Paddle's first trainer does, which the others wait for.
_LISTENS = """
import os, socket
listening = socket.create_server((os.environ["POD_IP"], int(os.environ["PADDLE_PORT"])))
"""


def program(job: Job, text: str) -> tuple[str, ...]:
    """Return the command of a job that runs this program."""
    path = job.folder / "program.py"
    path.write_text(_LISTENS + text)
    job.environment |= {"LAUNCHER_MODE": "collective"}
    return "--", sys.executable, str(path)


def found(job: Job, rank: int, generation: int = 0) -> str:
    return (job.output / f"node_{rank}" / f"stalled-{generation}.txt").read_text()


# ---- whole jobs ------------------------------------------------------------------------------------------------------


def test_a_program_that_hangs_ends_the_job_as_stalled_and_its_stack_names_where(watched: Job) -> None:
    job = watched
    hangs = """
import os, threading
def waits_for_a_lock_that_is_never_released():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
print("this is", os.environ["TRAINER_ID"], flush=True)
waits_for_a_lock_that_is_never_released()
"""
    began = time.monotonic()
    job.start(flags=program(job, hangs), PASSWORD="hunter2")
    assert job.codes() == [Exit.STALLED, 69, 69], job.stderr()
    assert time.monotonic() - began >= 5
    for rank in range(3):
        text = found(job, rank)
        assert "in waits_for_a_lock_that_is_never_released" in text
        assert f"its last lines (train.log):\n    this is {rank}\n\n" in text
        assert "hunter2" not in text
        assert STALLED.search(job.termination(rank))
        assert "each member has 1 process;" in job.termination(rank)
        assert f"{job.output}/*/stalled-0.txt" in job.termination(rank)
    assert re.search(r"the last line was of rank \d: 'this is \d'", job.termination(0)), job.termination(0)
    cause = json.loads((job.output / "job.json").read_text())["first_cause"]
    assert (cause["kind"], cause["rank"], cause["code"]) == ("stalled", None, 72)
    assert job.nothing_left()


def test_a_stopped_trainer_stalls_the_job_and_is_reported_as_stopped(watched: Job) -> None:
    job = watched.start(flags=MANY, STANDIN_BATCH_SECONDS="0.05").until_training()
    pid = job.process(1, TRAINER).pid
    job.kill(1, TRAINER, signal.SIGSTOP)
    assert job.codes(60) == [Exit.STALLED, 69, 69], job.stderr()
    own = found(job, 1).partition(f"-------- process {pid}:")[2].partition("-------- ")[0]
    assert "Python stacks: none: a signal or a debugger has stopped this process" in own
    assert "is stopped by a signal (T)" in own
    for rank in range(3):
        assert "======== pserver, process" in found(job, rank)
        assert "Batch=" in found(job, rank)
        assert re.search(r"connection \S+ to 127\.0\.1\.\d:\d+, rank \d: ESTABLISHED", found(job, rank))
    assert "paddle_trainer.py" in found(job, 0), "the stand-in's own stack, of a Python below a shell"
    assert job.nothing_left()


def test_a_job_in_which_only_rank_0_prints_is_not_stalled(watched: Job) -> None:
    prints = """
import os, time
for second in range(13):
    time.sleep(1)
    if os.environ["TRAINER_ID"] == "0":
        print("step", second, flush=True)
"""
    job = watched.start(flags=program(watched, prints))
    assert job.codes(60) == [0, 0, 0], job.stderr()
    assert not list(job.output.glob("*/stalled-*"))


def test_silence_before_training_does_not_count(watched: Job) -> None:
    """Members start late, and servers start slowly, for longer than the stall timeout."""
    job = watched.start(0, 1)
    time.sleep(6)
    job.start(2, STANDIN_PSERVER_START_SECONDS="6")
    assert job.codes(60) == [0, 0, 0], job.stderr()
    assert not list(job.output.glob("*/stalled-*"))


def test_lines_of_servers_do_not_count_as_progress(watched: Job) -> None:
    job = watched
    chatters = """
import time
while os.environ["TRAINING_ROLE"] == "PSERVER":
    print("still serving", flush=True)
    time.sleep(0.2)
time.sleep(3600)
"""
    flags = program(job, chatters)
    job.start(flags=flags, LAUNCHER_MODE="ps")
    assert job.codes(60) == [Exit.STALLED, 69, 69], job.stderr()
    assert "no trainer has printed a line since training began" in job.termination(0)
    assert "still serving" in found(job, 0)


def test_with_restarts_a_stalled_job_restarts_and_records_the_stall_in_its_history(watched: Job) -> None:
    job = watched
    flags = program(
        job,
        """
import os, time
if os.environ["LAUNCHER_GENERATION"] == "0" and os.environ["TRAINER_ID"] == "1":
    time.sleep(3600)
if os.environ["LAUNCHER_GENERATION"] == "0":
    import signal
    signal.pause()
""",
    )
    job.start(flags=flags, LAUNCHER_MAX_RESTARTS="3")
    assert job.codes(60) == [0, 0, 0], job.stderr()
    first, second = json.loads((job.output / "job.json").read_text())["generations"]
    assert (first["first_cause"]["kind"], first["first_cause"]["rank"]) == ("stalled", None)
    assert STALLED.search(first["first_cause"]["what"])
    assert second["first_cause"] is None
    assert [len(list(job.output.glob(f"node_*/stalled-{number}.txt"))) for number in (0, 1)] == [3, 0]


def test_a_job_that_stalls_twice_before_any_progress_is_given_up(watched: Job) -> None:
    job = watched.start(flags=program(watched, "import time; time.sleep(3600)"), LAUNCHER_MAX_RESTARTS="3")
    assert job.codes(60) == [71, 71, 71], job.stderr()
    assert "given up: the same failure came twice without progress" in job.termination(1)


def test_without_a_volume_the_evidence_is_on_standard_error(watched: Job) -> None:
    flags = program(watched, "def hangs():\n    import time; time.sleep(3600)\nhangs()")
    job = Job(watched.nodes, None, watched.folder)
    job.environment = watched.environment
    job.start(flags=flags)
    assert job.codes(60) == [Exit.STALLED, 69, 69], job.stderr()
    for rank in range(3):
        assert "in hangs" in job.stderr(rank)


def slow_to_read(job: Job, how: str) -> None:
    """Let the data provider of Paddle v0 take longer than the stall timeout before its first sample."""
    provider = job.output.parent / "quick_start" / "dataprovider_bow.py"
    text = provider.read_text().replace("    with open(file_name) as f:", f"{how}\n    with open(file_name) as f:")
    provider.write_text(text)


def test_a_trainer_of_v0_that_reads_its_data_without_a_line_is_not_stalled(watched: Job) -> None:
    """Paddle reads a whole shard before the first batch."""
    slow_to_read(
        watched,
        "    import time\n    end = time.time() + 9\n    while time.time() < end: sum(range(99_999)); time.sleep(0.01)",
    )
    job = watched.start()
    assert job.codes(90) == [0, 0, 0], job.stderr()
    assert not list(job.output.glob("*/stalled-*"))


def test_a_trainer_of_v0_that_waits_without_a_line_is_stalled(watched: Job) -> None:
    slow_to_read(watched, "    import time\n    time.sleep(3600)")
    job = watched.start()
    assert job.codes(60) == [Exit.STALLED, 69, 69], job.stderr()


@pytest.mark.parametrize("timeout", ["4.9", "-1", "soon"])
def test_a_time_too_short_for_a_healthy_job_is_refused(timeout: str) -> None:
    with pytest.raises(ConfigProblems) as caught:
        config.read({"LAUNCHER_STALL_TIMEOUT": timeout}, {}, check_here=False)
    (problem,) = caught.value.problems
    assert problem.startswith(f"LAUNCHER_STALL_TIMEOUT: {timeout!r}: expected auto, or seconds, 5 or more, ")


def test_children_get_one_more_folder_in_pythonpath_and_two_more_signal_handlers(job: Job) -> None:
    tells = """
import os, sys
caught = next(line for line in open("/proc/self/status") if line.startswith("SigCgt")).split()[1]
print("told", sorted(os.environ.get("PYTHONPATH", "").split(":")), hex(int(caught, 16) >> 33), sys.path[0], flush=True)
"""
    job.start(flags=program(job, tells), PYTHONPATH="/mine")
    assert job.codes() == [0, 0, 0], job.stderr()
    log = (job.output / "node_0" / "train.log").read_text()
    two = hex(0b11 << 49 >> 33)  # signals 50 and 51; bit 0 is signal 1
    assert f"told {sorted(['/mine', stacks._FOLDER])} {two} {job.folder}" in log


def test_the_users_pythonpath_and_sitecustomize_still_work(watched: Job) -> None:
    own = watched.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; sys.own = __file__")
    job = watched
    flags = program(
        job,
        """
import sys
print("own", sys.own)
import sitecustomize
print("ours", [path for path in sys.path if "stacks" in path])
print("it is", sitecustomize.__file__)
""",
    )
    job.start(flags=flags, PYTHONPATH=str(own))
    assert job.codes() == [0, 0, 0], job.stderr()
    log = (job.output / "node_0" / "train.log").read_text()
    assert f"own {own}/sitecustomize.py\nours []\nit is {own}/sitecustomize.py\n" in log


@needs_root
def test_a_volume_that_does_not_answer_does_not_delay_the_verdict(watched: Job) -> None:
    """Logs and evidence can no longer be written."""
    job = watched
    flags = program(job, "import time; print('begins', flush=True); time.sleep(3600)")
    job.start(flags=flags)
    for rank in range(3):
        until(lambda rank=rank: job.status(rank).get("phase") == "training", what=job.stderr())  # type: ignore[misc]
    away = job.output.parent / "away"
    with silent_volume(job.folder / "silent"):
        job.output.rename(away)
        job.output.symlink_to(job.folder / "silent")
        assert job.codes(60) == [Exit.STALLED, 69, 69], job.stderr()
    for rank in range(3):
        assert "stalled-0.txt: the volume has not answered for 3 s" in job.stderr(rank)
    assert "each member has 1 process and could not write the evidence to a file" in job.termination(0)


# ---- the gang --------------------------------------------------------------------------------------------------------


COLLECT = Collect(0, to_file=True)


async def trains(
    scene: Scene, size: int, judge: Callable[[Cause], tuple[Cause, Verdict]], **changes: Any
) -> list[Node]:
    nodes = await scene.gang(size, settings(size, reports_within=0.05, **{"stall": 0.1, **changes}), judge=judge)
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train(nodes[0].gang._settings.reported_stall))
    return nodes


async def collects(scene: Scene, size: int = 3, **changes: Any) -> list[Node]:
    """Return a gang whose members have received the collect message."""
    nodes = await trains(scene, size, lambda cause: (cause, Verdict.STOP), **changes)
    for node in nodes:
        await node.hears(COLLECT)
    return nodes


def collected(node: Node, processes: int = 2, written: bool = True, survey: int = 0) -> None:
    node.gang.report_collected(survey, MemberReport("training", processes, (), written))


@in_loop
async def test_the_verdict_waits_for_all_evidence_and_counts_the_processes_of_each_member() -> None:
    async with Scene() as scene:
        nodes = await collects(scene, evidence_within=60)
        collected(nodes[0], 1)
        collected(nodes[1], 3, written=False)
        await asyncio.sleep(0.1)
        assert not nodes[0].has(Stop)
        collected(nodes[2], 1)
        for node in nodes:
            cause = await node.told_to_stop()
            assert (cause.kind, cause.rank, cause.code) == ("stalled", None, Exit.STALLED)
            assert (
                "rank 0, 2 has 1 process, rank 1 has 3 processes and could not write the evidence to a file"
                in cause.what
            )
            await node.hears(Finish())


@in_loop
async def test_a_member_that_never_completes_its_evidence_delays_the_verdict_only_briefly() -> None:
    async with Scene() as scene:
        nodes = await collects(scene, evidence_within=0.2)
        collected(nodes[0])
        cause = await nodes[1].told_to_stop()
        assert "rank 0 has 2 processes, rank 1, 2 has not reported its processes" in cause.what


@in_loop
async def test_a_death_while_evidence_is_collected_is_the_cause() -> None:
    async with Scene() as scene:
        nodes = await collects(scene, evidence_within=60)
        collected(nodes[0])
        cause = died("trainer", 1, 137)
        nodes[1].failed(cause)
        collected(nodes[1])
        collected(nodes[2])
        for node in nodes:
            assert await node.told_to_stop() == cause
        assert nodes[0].judged == [cause]


@in_loop
async def test_a_member_that_reconnects_while_all_others_collect_evidence_collects_it_too() -> None:
    async with Scene() as scene:
        config = settings(2, stall=0.1, evidence_within=60, reconnect_within=30)
        hub, member = await scene.node(0, config), await scene.node(1, config)
        relay = await scene.relay(hub.place)
        await scene.joined([hub, member], hub=relay.place)
        for node in (hub, member):
            node.ready()
        await member.hears(Train(0.1))
        relay.refusing = True
        relay.cut()
        await hub.hears(COLLECT)
        assert not member.has(Collect)
        relay.refusing = False
        await member.hears(COLLECT)


@in_loop
async def test_after_a_restart_the_stall_clock_starts_again() -> None:
    async with Scene() as scene:
        nodes = await trains(scene, 2, lambda cause: (cause, Verdict.RESTART), evidence_within=60)
        for node in nodes:
            await node.hears(COLLECT)
            collected(node)
        for node in nodes:
            await soon(lambda node=node: node.has(Restart))  # type: ignore[misc]
            node.ended()
        for node in nodes:
            node.serving()
        for node in nodes:
            await soon(lambda node=node: Collect(1, to_file=True) in node.events)  # type: ignore[misc]


@in_loop
async def test_progress_of_another_attempt_is_ignored_and_not_malformed() -> None:
    async with Scene() as scene:
        nodes = await trains(scene, 2, lambda cause: (cause, Verdict.STOP), stall=3600)
        link = nodes[1].gang._link
        assert link
        link.send(messages.progress(7, 0, Progress("a line", 0.0, 0.0, NO_PASS)))
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)


@in_loop
async def test_no_clock_runs_between_two_attempts() -> None:
    async with Scene() as scene:
        cause = died("trainer", 1, 137)
        nodes = await trains(scene, 2, lambda cause: (cause, Verdict.RESTART), stall=0.3, evidence_within=0.05)
        nodes[1].failed(cause)
        for node in nodes:
            await node.hears(Restart(1, cause))
        await asyncio.sleep(1)
        assert nodes[0].judged == [cause]
        assert not nodes[0].has(Collect)


# ---- progress --------------------------------------------------------------------------------------------------------


class FakeGang:
    """A replacement for the gang, which records the reported progress."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, float, Progress]] = []

        self.collected: list[tuple[int, MemberReport]] = []

    def report_progress(self, attempt: int, printed_at: float, report: Progress) -> None:
        self.reported.append((attempt, printed_at, report))

    def report_collected(self, survey: int, report: MemberReport) -> None:
        self.collected.append((survey, report))


def watchdog_of(gang: FakeGang) -> Watchdog:
    return Watchdog(3, gang, lambda: "a line")  # type: ignore[arg-type]


@in_loop
async def test_progress_is_reported_at_once_and_then_at_most_four_times_per_timeout() -> None:
    gang = FakeGang()
    watchdog = watchdog_of(gang)
    watchdog.printed()
    watchdog.train(4 * 3600)
    for _ in range(1000):
        await asyncio.to_thread(watchdog.printed)
    assert [(attempt, report.line) for attempt, _, report in gang.reported] == [(3, "a line")]


BUSY, IDLE = "while True: pass", "import time; time.sleep(3600)"
READS = "import os, time\nzero = os.open('/dev/zero', 0)\nwhile True: os.read(zero, 1 << 20); time.sleep(0.05)"


@pytest.mark.parametrize(("does", "works"), [(BUSY, True), (READS, True), (IDLE, False)])
@in_loop
async def test_only_a_silent_trainer_that_computes_or_reads_is_reported(does: str, works: bool) -> None:
    gang = FakeGang()
    # as below Paddle's script
    with started("/bin/sh", "-c", f'echo begins; {sys.executable} -c "{does}"; true') as child:
        watchdog = Watchdog(3, gang, lambda: "a line", lambda: [child.pid])  # type: ignore[arg-type]
        watchdog.train(4 * 0.5)
        if works:
            await soon(lambda: len(gang.reported) >= 2)
        else:
            await soon(lambda: not busy_children(child.pid))  # Python has started
            gang.reported.clear()
            await asyncio.sleep(2)
            assert len(gang.reported) <= 1, "at most what it did at its start"
        watchdog.close()


def busy_children(pid: int) -> list[str]:
    return [state for each in children_of(pid) if (state := read_state(each)) != "S"]


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@in_loop
async def test_the_last_printed_line_is_reported_with_its_own_time() -> None:
    gang = FakeGang()
    watchdog = watchdog_of(gang)
    watchdog.train(4 * 0.05)
    for _ in range(5):
        watchdog.printed()
        await asyncio.sleep(0.02)
    last = watchdog._printed_at
    await soon(lambda: gang.reported and gang.reported[-1][1] == last)


@in_loop
async def test_passes_count_once_and_a_change_is_reported_although_nothing_is_printed_any_more() -> None:
    gang = FakeGang()
    watchdog = watchdog_of(gang)
    watchdog.train(4 * 0.05)
    watchdog.printed()
    for number, is_last, passes in [
        (0, False, NO_PASS),
        (0, False, NO_PASS),
        (1, False, SOME_PASSES),
        (2, True, ALL_PASSES),
    ]:
        watchdog.passed(number, is_last=is_last)
        await soon(lambda passes=passes: gang.reported and gang.reported[-1][2].passes == passes)  # type: ignore[misc]


@in_loop
async def test_a_line_before_the_training_is_no_late_first_line() -> None:
    """The leading trainer of a collective job starts before the others."""
    gang = FakeGang()
    watchdog = watchdog_of(gang)
    watchdog.printed()
    watchdog.train(4 * 0.05)
    watchdog.printed()
    await soon(lambda: gang.reported)
    assert gang.reported[-1][2].first_line_after == 0
    assert gang.reported[-1][2].longest_pause < 60


@in_loop
async def test_without_threads_silent_work_is_looked_at_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def no_thread(*_: object) -> asyncio.Future[object]:
        asked.append(1)
        raise Failure(Exit.IO_FAILED, "no thread is left")

    monkeypatch.setattr("launcher.run.stall.run_in_thread", no_thread)
    watchdog = Watchdog(3, FakeGang(), lambda: "a line", lambda: [1])  # type: ignore[arg-type]
    watchdog.train(4 * 0.01)
    await soon(lambda: len(asked) > 2)
    watchdog.close()


@in_loop
async def test_an_attempt_that_ends_answers_the_surveys_that_wait(tmp_path: Path) -> None:
    gang = FakeGang()
    watchdog = watchdog_of(gang)
    watchdog.answer(5, "training", [], {}, None)
    watchdog.close()
    assert gang.collected == [(5, MemberReport("ending", 0, ()))]


# ---- the evidence ----------------------------------------------------------------------------------------------------


ISOLATED = "import time; print('begins'); time.sleep(3600)"


@contextmanager
def started(*argv: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that can show its stacks, after it has printed a line."""
    child = subprocess.Popen(
        argv, env=stacks.environment(os.environ), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline()
        yield child
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()


def evidence_about(
    *subjects: evidence.Subject, within: float = 6.0, peers: dict[str, str] | None = None
) -> evidence.Evidence:
    return run(evidence.gather(subjects, peers or {}, within))


def test_a_python_that_hangs_in_c_code_with_the_gil_shows_its_stack() -> None:
    hangs = "import ctypes\ndef hangs_in_c(): ctypes.PyDLL(None).sleep(3600)\nprint('begins', flush=True); hangs_in_c()"
    with started(sys.executable, "-c", hangs) as child:
        eventually(lambda: "in hangs_in_c" in stacks.dump(child.pid))


def test_the_stacks_of_all_threads_are_shown_and_those_of_a_forked_process_too() -> None:
    forks = """
import os, threading, time
def waits(): time.sleep(3600)
def child_waits(): time.sleep(3600)
threading.Thread(target=waits).start()
if os.fork() == 0:
    child_waits()
print("begins", flush=True)
def parent_waits(): time.sleep(3600)
parent_waits()
"""
    with started(sys.executable, "-c", forks) as child:
        both = re.compile("in parent_waits.*Python stacks.*in child_waits", re.DOTALL)
        subject = evidence.Subject("trainer", "train.log", child.pid, ())
        eventually(lambda: both.search(evidence_about(subject).text))
        assert evidence_about(subject).processes == 2
        first, second = evidence_about(subject).text.split("-------- ")[1:]
        assert ("in waits" in first, "in child_waits" in first, "in parent_waits" in second) == (True, False, False)


@pytest.mark.parametrize(
    "argv",
    [("/bin/sh", "-c", "echo begins; sleep 3600"), (sys.executable, "-I", "-uc", ISOLATED)],
)
def test_a_process_that_has_not_registered_gets_no_signal(argv: tuple[str, ...]) -> None:
    with started(*argv) as child:
        assert "none: this process has not registered for stack dumps" in stacks.dump(child.pid)
        assert child.poll() is None
        assert (
            "none: this process has not registered"
            in evidence_about(evidence.Subject("trainer", "log", child.pid, ())).text
        )
        assert child.poll() is None


def test_a_program_that_has_reset_the_signal_gets_no_signal() -> None:
    gives_back = (
        "import signal, time; [signal.signal(each, signal.SIG_DFL) for each in (50, 51)]; "
        "print('begins', flush=True); time.sleep(3600)"
    )
    with started(sys.executable, "-c", gives_back) as child:
        for all_threads in (False, True):
            dump = stacks.dump(child.pid, all_threads=all_threads)
            assert "none: this process has not registered for stack dumps" in dump
        assert child.poll() is None


def test_a_process_that_blocks_signals_gets_no_signal() -> None:
    """A child of subprocess blocks all signals before it starts its program: the signal would kill that program."""
    blocks = (
        "import signal, time; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
        "print('begins', flush=True); time.sleep(3600)"
    )
    with started(sys.executable, "-c", blocks) as child:
        assert "none: this process blocks signals" in stacks.dump(child.pid)
        assert int(Path(f"/proc/{child.pid}/status").read_text().partition("SigPnd:")[2].split()[0], 16) == 0


def test_a_python_that_ends_is_not_killed_by_a_late_signal() -> None:
    ends = "import os, threading; print('begins', flush=True); threading.main_thread(); input()"
    command = [sys.executable, "-c", ends + "; os.kill(os.getpid(), 0)"]
    late = (
        "import atexit, faulthandler, os, signal, sys; print('begins', flush=True)\n"
        "class Last:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid()):\n"
        "        [kill(pid, number) for number in (50, 51)]\n"
        "sys.modules['last'] = Last()\n"
    )
    child = subprocess.run(
        [*command[:2], late], env=stacks.environment(os.environ), capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr


@needs_root
def test_a_process_that_is_blocked_in_the_kernel_is_reported_in_time(tmp_path: Path) -> None:
    with silent_volume(tmp_path / "silent") as volume:
        reads = f"print('begins', flush=True); open('{volume}/data')"
        with started(sys.executable, "-c", reads) as child:
            eventually(lambda: "fuse" in Path(f"/proc/{child.pid}/wchan").read_text() or read_state(child.pid) == "D")
            text = evidence_about(evidence.Subject("trainer", "train.log", child.pid, ("a line",))).text
            assert "Python stacks: none: this process is blocked in the kernel" in text
            assert "    a line" in text


def read_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_the_arguments_of_a_process_are_not_shown() -> None:
    secret = ("--password", "hunter2", "--token=hunter2")
    with started(sys.executable, "-u", "-c", "import time; print('begins'); time.sleep(3600)", *secret) as child:
        text = evidence_about(evidence.Subject("trainer", "train.log", child.pid, ())).text
        assert f"process {child.pid}: {sys.executable} -u -c\n" in text
        assert "hunter2" not in text


def test_only_the_last_50_lines_are_shown() -> None:
    with started("/bin/sh", "-c", "echo begins; sleep 3600") as child:
        subject = evidence.Subject("trainer", "train.log", child.pid, [f"line {number}" for number in range(60)])
        text = evidence_about(subject).text
        assert "its last lines (train.log):\n    line 10\n" in text


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("paddle", "train", "--config=a"), "paddle train"),
        (("python", "-m", "paddle.distributed.launch", "train.py"), "python -m paddle.distributed.launch"),
        (("python", "train.py", "secret"), "python train.py"),
        (("bash", "-ec", "PASSWORD=x python train.py"), "bash -ec"),
        (("env", "PASSWORD=x", "python"), "env"),
        (("prog", "--password", "x"), "prog"),
        ((), ""),
    ],
)
def test_a_program_is_named_without_arguments_that_may_be_secret(argv: tuple[str, ...], shown: str) -> None:
    assert program_of(argv) == shown
