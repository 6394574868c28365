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
from launcher.errors import ConfigProblems, Exit
from launcher.gang import CollectEvidence, Finish, GangSettings, Restart, Stop, Train, Verdict, messages
from launcher.gang import stall as clock
from launcher.gang.protocol import Message
from launcher.model import Cause
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
    assert re.search(r"the last line was of rank \d: 'this is \d'", job.termination(0))
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
    slow_to_read(watched, "    import time\n    end = time.time() + 9\n    while time.time() < end: pass")
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
    assert problem.startswith(f"LAUNCHER_STALL_TIMEOUT: {timeout!r}: expected seconds, 5 or more, ")


@pytest.mark.parametrize("timeout", ["", "0"])
def test_by_default_the_environment_and_signal_handlers_of_children_are_not_changed(job: Job, timeout: str) -> None:
    tells = """
import os, sys
caught = next(line for line in open("/proc/self/status") if line.startswith("SigCgt")).split()[1]
print("told", sorted(os.environ.get("PYTHONPATH", "").split(":")), hex(int(caught, 16) >> 33), sys.path[0], flush=True)
"""
    job.start(flags=program(job, tells), LAUNCHER_STALL_TIMEOUT=timeout, PYTHONPATH="/mine")
    assert job.codes() == [0, 0, 0], job.stderr()
    log = (job.output / "node_0" / "train.log").read_text()
    assert f"told ['/mine'] 0x0 {job.folder}" in log


def test_with_stall_detection_the_users_pythonpath_and_sitecustomize_still_work(watched: Job) -> None:
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


async def trains(
    scene: Scene, size: int, judge: Callable[[Cause], tuple[Cause, Verdict]], **changes: Any
) -> list[Node]:
    nodes = await scene.gang(size, settings(size, reports_within=0.05, **{"stall": 0.1, **changes}), judge=judge)
    for node in nodes:
        node.ready()
    for node in nodes:
        await node.hears(Train(nodes[0].gang._settings.stall))
    return nodes


async def collects(scene: Scene, size: int = 3, **changes: Any) -> list[Node]:
    """Return a gang whose members have received the collect message."""
    nodes = await trains(scene, size, lambda cause: (cause, Verdict.STOP), **changes)
    for node in nodes:
        await node.hears(CollectEvidence())
    return nodes


def collected(node: Node, processes: int = 2, written: bool = True) -> None:
    node.gang.report_collected(node.rank and 0, processes, written)


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
        await hub.hears(CollectEvidence())
        assert not member.has(CollectEvidence)
        relay.refusing = False
        await member.hears(CollectEvidence())


@in_loop
async def test_after_a_restart_the_stall_clock_starts_again() -> None:
    async with Scene() as scene:
        nodes = await trains(scene, 2, lambda cause: (cause, Verdict.RESTART), evidence_within=60)
        for node in nodes:
            await node.hears(CollectEvidence())
            collected(node)
        for node in nodes:
            await soon(lambda node=node: node.has(Restart))  # type: ignore[misc]
            node.ended()
        for node in nodes:
            node.serving()
        for node in nodes:
            await soon(lambda node=node: node.events.count(CollectEvidence()) == 2)  # type: ignore[misc]


@in_loop
async def test_progress_of_another_attempt_is_ignored_and_not_malformed() -> None:
    async with Scene() as scene:
        nodes = await trains(scene, 2, lambda cause: (cause, Verdict.STOP), stall=3600)
        link = nodes[1].gang._link
        assert link
        link.send(messages.progress(7, 0, "a line"))
        for node in nodes:
            node.trained()
        for node in nodes:
            await node.hears(Finish())
            assert not node.has(Stop)


def test_a_trainer_of_an_earlier_attempt_does_not_reset_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(1)
    hub.passes(74)
    hub.hears(0, attempt=0)
    hub.passes(2)
    assert hub.said


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
        assert not nodes[0].has(CollectEvidence)


# ---- the clock -------------------------------------------------------------------------------------------------------


class Clock:
    """The hub's clock of progress in simulated time: 60 s without a line are a stall."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stall: float = 60.0) -> None:
        self.now = 1000.0
        self.said: list[Message] = []
        self.causes: list[Cause] = []
        self._due: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(clock, "time", self)
        monkeypatch.setattr(
            clock.StallDetector, "_later", lambda _, seconds, call: self._due.append((self.now + seconds, call))
        )
        self.stall = clock.StallDetector(GangSettings(2, 0, stall=stall), self.said.append, self.causes.append)

    def monotonic(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Advance the time, and call all timers in time."""
        end = self.now + seconds
        while due := sorted([each for each in self._due if each[0] <= end], key=lambda each: each[0]):
            self._due.remove(due[0])
            self.now = max(self.now, due[0][0])
            due[0][1]()
        self.now = max(self.now, end)

    def hears(self, rank: int, age: float = 0.0, attempt: int = 0) -> None:
        self.stall.on_progress(rank, messages.progress(attempt, age, "a line"))


def test_a_line_of_any_trainer_resets_the_clock_and_no_line_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    for _ in range(20):
        hub.passes(59)
        hub.hears(1)
    hub.passes(74)
    assert not hub.said
    hub.passes(2)
    assert hub.said == [messages.of_attempt("collect", 0)]
    hub.passes(12)
    assert [cause.kind for cause in hub.causes] == ["stalled"]
    assert "for 75 s" in hub.causes[0].what
    assert "the last line was of rank 1: 'a line'" in hub.causes[0].what


def test_a_line_in_time_that_is_reported_late_is_no_stall_and_counts_from_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.passes(74)
    hub.hears(0, age=15)
    hub.passes(59)
    assert not hub.said
    hub.passes(2)
    assert hub.said


def test_a_hub_that_was_stopped_first_reads_the_messages_that_arrived_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(0)
    hub.now += 3600
    hub.passes(0)
    hub.hears(1, age=5)
    hub.passes(16)
    assert not hub.said


def test_evidence_of_an_earlier_attempt_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Clock(monkeypatch)
    hub.stall.watch(1)
    hub.passes(76)
    for attempt in (0, 1):
        assert not hub.causes
        for rank in range(2):
            hub.stall.on_collected(rank, messages.collected(attempt, 1, True))
    assert hub.causes


@pytest.mark.parametrize("on", [True, False])
def test_no_clock_runs_if_it_is_off_or_all_members_have_trained(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    hub = Clock(monkeypatch, stall=60.0 if on else 0.0)
    hub.stall.watch(0)
    if on:
        hub.stall.stop()
        hub._due.clear()  # cancelled
    hub.passes(10_000)
    assert not hub.said
    assert not hub._due


class FakeGang:
    """A replacement for the gang, which records the reported progress."""

    def __init__(self) -> None:
        self.reported: list[tuple[int, float, str]] = []

    def report_progress(self, attempt: int, printed_at: float, line: str) -> None:
        self.reported.append((attempt, printed_at, line))


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
    assert [(attempt, line) for attempt, _, line in gang.reported] == [(3, "a line")]


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
    gives_back = "import faulthandler, time; faulthandler.unregister(50); print('begins', flush=True); time.sleep(3600)"
    with started(sys.executable, "-c", gives_back) as child:
        assert "none: this process has not registered for stack dumps" in stacks.dump(child.pid)
        assert child.poll() is None


@needs_root
def test_a_process_that_is_blocked_in_the_kernel_is_reported_in_time(tmp_path: Path) -> None:
    with silent_volume(tmp_path / "silent") as volume:
        reads = f"print('begins', flush=True); open('{volume}/data')"
        with started(sys.executable, "-c", reads) as child:
            eventually(lambda: "fuse" in Path(f"/proc/{child.pid}/wchan").read_text() or read_state(child.pid) == "D")
            text = evidence_about(evidence.Subject("trainer", "train.log", child.pid, ("a line",))).text
            assert "Python stacks: none: no answer within 1 s: this process may be blocked in the kernel" in text
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
