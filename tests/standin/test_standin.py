"""The stand-in behaves as Paddle v0: each test checks one observed fact."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.nodes import Nodes, listening
from tests.support.paths import MAKE_DATA, STANDIN
from tests.support.supervising import needs_root

PADDLE, TRAINER, PSERVER = STANDIN / "paddle", STANDIN / "paddle_trainer", STANDIN / "paddle_pserver_main"
PORT = 7164
CRASHES = {134, 139}


def eventually(condition: Callable[[], object], seconds: float = 15) -> bool:
    """Return whether the condition becomes true before the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def code(process: subprocess.Popen[Any]) -> int:
    """Wait until the process has ended, and return its exit code as a shell shows it."""
    status = process.wait(timeout=15)
    return status if status >= 0 else 128 - status


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def make_dataset(out: Path, lines: int) -> Path:
    subprocess.run([sys.executable, MAKE_DATA, str(out), f"--examples={lines}", "--seed=1"], check=True)
    return out


def accuracy(folder: Path, dataset: Path) -> float:
    given = (folder, dataset / "quick_start/dict.txt", dataset / "data/test.txt")
    command = [sys.executable, str(STANDIN / "evaluate.py"), *map(str, given)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def weights(folder: Path) -> Any:
    return memoryview((folder / "___fc_layer_0__.w0").read_bytes()[16:]).cast("f")


class Job:
    """N nodes with their shards. The tests start pservers and trainers on them."""

    def __init__(self, nodes: Nodes, folder: Path, dataset: Path, count: int) -> None:
        self.nodes, self.folder, self.dataset, self.count = nodes, folder, dataset, count
        self.output = folder / "output"
        self.gates = folder / "gates"
        self.environment = {
            **os.environ,
            "STANDIN_GATES": str(self.gates),
            "STANDIN_PSERVER_START_SECONDS": "0.02",
            "STANDIN_TRAINER_START_SECONDS": "0",
            "STANDIN_ON_PEER_DEATH": "hang",
        }
        lines = (dataset / "data/train.txt").read_text().splitlines(keepends=True)
        for node in range(count):
            self.place(node, lines[node * len(lines) // count : (node + 1) * len(lines) // count])

    def place(self, node: int, lines: list[str]) -> None:
        """Write the configuration and these lines of data to a node's folder."""
        data = self.work(node) / "data"
        data.mkdir(parents=True, exist_ok=True)
        for file in [*(self.dataset / "data").iterdir(), *(self.dataset / "quick_start").iterdir()]:
            target = data if file.parent.name == "data" else self.work(node)
            (target / file.name).write_bytes(file.read_bytes())
        (data / "train.txt").write_text("".join(lines))

    def work(self, node: int) -> Path:
        return self.folder / f"node_{node}"

    def hold(self, gate: str) -> None:
        self.gates.mkdir(exist_ok=True)
        (self.gates / gate).touch()

    def release(self, gate: str) -> None:
        (self.gates / gate).unlink()

    def log(self, process: subprocess.Popen[Any]) -> str:
        return self._log_file(process).read_text()

    def pserver(self, node: int, *flags: str, program: Path = PADDLE, **options: Any) -> subprocess.Popen[Any]:
        ports = [f"--port={PORT}", "--ports_num=2", "--ports_num_for_sparse=2"]
        common = [f"--nics={self.nodes.devices[node]}", f"--num_gradient_servers={self.count}", "--small_messages=1"]
        return self._start(node, program, "pserver", [*common, *ports, *flags], **options)

    def pservers(self, **options: Any) -> list[subprocess.Popen[Any]]:
        """Start a pserver on each node, and wait until all of them listen."""
        started = [self.pserver(node, **options) for node in range(self.count)]
        every = {(address, PORT + port) for address in self.nodes.addresses[: self.count] for port in range(4)}
        assert eventually(lambda: listening(started[0]) >= every)
        return started

    def trainer(self, node: int, *flags: str, program: Path = PADDLE, **options: Any) -> subprocess.Popen[Any]:
        common = [
            "--local=0",
            f"--port={PORT}",
            "--ports_num=2",
            "--ports_num_for_sparse=2",
            "--pservers=" + ",".join(self.nodes.addresses[: self.count]),
            f"--trainer_id={node}",
            f"--num_gradient_servers={self.count}",
            "--small_messages=1",
        ]
        return self.alone(node, *common, *flags, program=program, **options)

    def alone(self, node: int, *flags: str, program: Path = PADDLE, **options: Any) -> subprocess.Popen[Any]:
        """Start a trainer without pservers, unless the flags name some."""
        common = ["--config=trainer_config.lr.py", "--num_passes=1", f"--save_dir={self.output}", "--log_period=2"]
        return self._start(node, program, "train", [*common, *flags], **options)

    def _start(self, node: int, program: Path, command: str, flags: list[str], **options: Any) -> subprocess.Popen[Any]:
        environment = {**self.environment, **options.pop("env", {})}
        name = self.folder / f"log.{len(list(self.folder.glob('log.*')))}"
        with open(name, "wb") as log:
            argv = [str(program), *([command] if program == PADDLE else []), *flags]
            process = self.nodes.popen(argv, cwd=self.work(node), env=environment, stderr=log, stdout=log, **options)
        process.args = name  # so that the log is found again
        return process

    def _log_file(self, process: subprocess.Popen[Any]) -> Path:
        assert isinstance(process.args, Path)
        return process.args


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("dataset"), 900)


@pytest.fixture
def job(tmp_path: Path, dataset: Path) -> Iterator[Job]:
    with Nodes(2) as nodes:
        yield Job(nodes, tmp_path, dataset, 2)


@pytest.fixture
def job3(tmp_path: Path, dataset: Path) -> Iterator[Job]:
    with Nodes(3) as nodes:
        yield Job(nodes, tmp_path, dataset, 3)


GATE = "pass-0-batch-2"


def held_trainers(job: Job) -> list[subprocess.Popen[Any]]:
    """Start trainers that wait after the second batch of a pass until GATE is released."""
    job.hold(GATE)
    started = [job.trainer(node) for node in range(job.count)]
    assert eventually(lambda: all("Batch=2 " in job.log(trainer) for trainer in started))
    return started


# Processes and flags


def test_sigterm_to_the_wrapper_leaves_the_binary_running(job: Job) -> None:
    wrapper = job.pservers()[0]
    (binary,) = children(wrapper.pid)
    wrapper.terminate()
    assert code(wrapper) == 143
    assert binary in job.nodes.inside()
    assert Path(f"/proc/{binary}/comm").read_text() == "paddle_pserver_\n"


def test_the_wrapper_returns_exit_codes_and_splits_values_at_spaces(job: Job) -> None:
    split = job.nodes.run([PADDLE, "train", "--comment=one --bogus=1"])
    assert split.returncode == 1
    assert "unknown command line flag 'bogus'" in split.stderr
    assert job.nodes.run([PADDLE, "version"]).stdout.startswith("PaddlePaddle 0.9.0")


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--no_such_flag=1"], "unknown command line flag 'no_such_flag'"),
        (["--port=seven"], "illegal value 'seven' specified for int32 flag 'port'"),
        (["--port"], "flag 'port' is missing its argument"),
        (["--small_messages=maybe"], "illegal value 'maybe' specified for bool flag 'small_messages'"),
    ],
)
@pytest.mark.parametrize("command", ["train", "pserver"])
def test_a_wrong_flag_ends_with_1(command: str, flags: list[str], error: str) -> None:
    result = subprocess.run([PADDLE, command, *flags], capture_output=True, text=True, timeout=15)
    assert result.returncode == 1
    assert error in result.stderr


def test_flags_are_read_in_all_spellings(job: Job) -> None:
    trainer = job.alone(
        0, "--start_pass", "0", "--nolocal", "--local", "-save_only_one", "--nouse_gpu", "--num_passes", "2"
    )
    assert code(trainer) == 0
    assert [folder.name for folder in job.output.iterdir()] == ["pass-00001"]


def test_glog_lines_go_to_a_file_if_a_flag_says_so(job: Job, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    trainer = job.alone(0, env={"GLOG_logtostderr": "0", "GLOG_log_dir": str(tmp_path / "logs")})
    assert code(trainer) == 0
    assert "Pass=0" not in job.log(trainer)
    (log,) = (tmp_path / "logs").iterdir()
    assert " Pass=0 " in log.read_text()


# Start


@pytest.mark.parametrize("flags", [[], ["--nics=nosuch0"], ["--nics=lo:1,nosuch0"]])
def test_a_pserver_without_its_device_aborts(job: Job, flags: list[str]) -> None:
    result = job.nodes.run([PADDLE, "pserver", *flags])
    assert result.returncode == 134
    assert "SIOCGIFADDR" in result.stderr


def test_a_pserver_listens_on_all_its_ports_at_the_address_of_its_device(job: Job) -> None:
    server = job.pserver(1)
    assert eventually(lambda: len(listening(server)) == 4)
    assert listening(server) == {("127.0.1.2", PORT + number) for number in range(4)}
    anywhere = job.pserver(0, "--nics=", f"--port={PORT + 10}")
    assert eventually(lambda: ("0.0.0.0", PORT + 13) in listening(anywhere))


def test_a_pserver_says_started_before_it_listens(job: Job) -> None:
    server = job.pserver(0, env={"STANDIN_PSERVER_START_SECONDS": "1000"})
    assert eventually(lambda: f"pserver started : lo:1:{PORT + 3}" in job.log(server))
    assert listening(server) == set()


def test_a_pserver_says_started_even_when_it_cannot_bind(job: Job) -> None:
    first = job.pserver(0)
    assert eventually(lambda: len(listening(first)) == 4)
    second = job.pserver(0)
    assert code(second) == 134
    assert f"pserver started : lo:1:{PORT}" in job.log(second)
    assert "Address already in use [98]" in job.log(second)


@pytest.mark.parametrize("content", [b"", b"GET / HTTP/1.0\r\n\r\n"])
def test_a_probe_kills_a_pserver(job: Job, content: bytes) -> None:
    server = job.pserver(0)
    assert eventually(lambda: len(listening(server)) == 4)
    probe = f"import socket; socket.create_connection(('127.0.1.1', {PORT + 3})).sendall({content!r})"
    job.nodes.run([sys.executable, "-c", probe])
    assert code(server) == 139
    assert "*** SIGSEGV" in job.log(server)


def test_a_pserver_can_die_at_its_start(job: Job, tmp_path: Path) -> None:
    left = tmp_path / "crashes_left"
    left.write_text("1")
    unlucky = job.pserver(0, env={"STANDIN_CRASHES_LEFT": str(left)})
    assert code(unlucky) == 139
    lucky = job.pserver(0, env={"STANDIN_CRASHES_LEFT": str(left)})
    assert eventually(lambda: len(listening(lucky)) == 4)
    assert code(job.pserver(0, env={"STANDIN_CRASH_ODDS": "1"})) == 139


def test_a_trainer_does_not_wait_for_its_pservers(job: Job) -> None:
    refused = job.trainer(0)
    assert code(refused) == 134
    assert "Connection refused [111]" in job.log(refused)
    server = job.pserver(0)
    assert eventually(lambda: len(listening(server)) == 4)
    assert code(job.trainer(0)) == 134  # the other one is still missing


@pytest.mark.parametrize(
    "names", ["127.0.1.1, 127.0.1.2", "127.0.1.1,,127.0.1.2", "127.0.1.1,no.such.host.invalid", "::1"]
)
def test_a_bad_list_of_pservers_aborts_the_trainer(job: Job, names: str) -> None:
    job.pservers()
    trainer = job.trainer(0, f"--pservers={names}", program=TRAINER)
    assert code(trainer) == 134
    assert "no such host" in job.log(trainer)


# A whole job


def test_three_nodes_learn_what_one_node_learns_from_all_the_data(job3: Job, dataset: Path) -> None:
    servers = job3.pservers()
    trainers = [job3.trainer(node, "--num_passes=2") for node in range(3)]
    assert [code(trainer) for trainer in trainers] == [0, 0, 0]

    lines = [(job3.work(node) / "data/train.txt").read_text().splitlines(keepends=True) for node in range(3)]
    mixed = [line for start in range(0, 300, 50) for shard in lines for line in shard[start : start + 50]]
    job3.place(0, mixed)
    single = job3.folder / "single"
    flags = [f"--save_dir={single}", "--config_args=batch_size=150", "--num_passes=2"]
    assert code(job3.alone(0, *flags)) == 0
    together, apart = weights(single / "pass-00001"), weights(job3.output / "pass-00001")
    assert len(together) == 2 * len((dataset / "quick_start/dict.txt").read_text().split())
    assert list(apart) == pytest.approx(list(together), abs=1e-4)
    assert max(abs(weight) for weight in apart) > 0.1
    assert accuracy(job3.output / "pass-00001", dataset) > 0.85

    first = job3.log(trainers[0])
    assert f"commandline:  {STANDIN}/paddle_trainer --config=trainer_config.lr.py" in first
    assert [f"pserver {number} 127.0.1.{1 + number // 2}:{PORT + number % 2}\n" in first for number in range(6)] == [
        True
    ] * 6
    assert "TrainerInternal.cpp:165]  Batch=4 samples=200 AvgCost=" in first
    assert "TrainerInternal.cpp:182]  Pass=0 Batch=6 samples=300 AvgCost=" in first
    assert f"Saving parameters to {job3.output}/pass-00001" in first
    assert "Saving parameters" not in job3.log(trainers[1]) + job3.log(trainers[2])
    assert all("======== Batch=5 pass END=======" in job3.log(server) for server in servers)
    assert [server.poll() for server in servers] == [None] * 3


def test_a_second_job_on_the_same_pservers_crashes_every_process(job: Job) -> None:
    servers = job.pservers()
    assert [code(trainer) for trainer in [job.trainer(0), job.trainer(1)]] == [0, 0]
    again = [job.trainer(0), job.trainer(1)]
    assert {code(process) for process in again} <= CRASHES
    assert [code(server) for server in servers] == [134, 134]
    assert "Duplicated parameter name" in job.log(servers[0])


def test_a_model_without_one_of_the_shards_is_clearly_worse(job3: Job, dataset: Path) -> None:
    lines = (dataset / "data/train.txt").read_text().splitlines(keepends=True)
    job3.place(0, lines)
    job3.place(1, lines[:600])
    assert code(job3.alone(0, "--num_passes=3", "--save_dir=./all")) == 0
    assert code(job3.alone(1, "--num_passes=3", "--save_dir=./some")) == 0
    whole = accuracy(job3.work(0) / "all/pass-00002", dataset)
    partial = accuracy(job3.work(1) / "some/pass-00002", dataset)
    assert whole > partial + 0.08


def test_uneven_data_is_accepted_and_no_trainer_ends_early(job: Job) -> None:
    job.place(1, (job.work(1) / "data/train.txt").read_text().splitlines(keepends=True)[:60])
    servers = job.pservers()
    trainers = [job.trainer(node, "--num_passes=2") for node in range(2)]
    assert [code(trainer) for trainer in trainers] == [0, 0]
    assert "Batch=9 samples=450" in job.log(trainers[0])
    assert "Batch=2 samples=60" in job.log(trainers[1])
    assert "======== Batch=8 pass END=======" in job.log(servers[1])


def test_batches_are_slow_unless_servers_and_trainers_have_small_messages(job: Job) -> None:
    for node in range(2):
        job.place(node, (job.work(node) / "data/train.txt").read_text().splitlines(keepends=True)[:250])
    assert _seconds_of_a_job(job, "--small_messages=0") > 5 * 0.09
    _seconds_of_a_job(job, "--small_messages=1", STANDIN_WITHOUT_SMALL_MESSAGES_SECONDS="1000")


def _seconds_of_a_job(job: Job, flag: str, **env: str) -> float:
    servers = job.pservers()
    begin = time.monotonic()
    assert [code(trainer) for trainer in [job.trainer(0, flag, env=env), job.trainer(1, flag, env=env)]] == [0, 0]
    for server in servers:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    return time.monotonic() - begin


def test_trainers_wait_for_a_stopped_pserver(job: Job) -> None:
    servers = job.pservers()
    trainers = held_trainers(job)
    os.killpg(servers[1].pid, signal.SIGSTOP)
    job.release(GATE)
    assert silent(job, trainers, 0.4)
    os.killpg(servers[1].pid, signal.SIGCONT)
    assert [code(trainer) for trainer in trainers] == [0, 0]


# Waiting without output, crashing together


def silent(job: Job, processes: list[subprocess.Popen[Any]], seconds: float = 0.3) -> bool:
    """Return whether for a while none of these processes ends or logs a line."""
    logs = [job.log(process) for process in processes]
    return not eventually(
        lambda: (
            any(process.poll() is not None for process in processes)
            or logs != [job.log(process) for process in processes]
        ),
        seconds,
    )


def test_all_trainers_wait_for_a_missing_trainer(job3: Job) -> None:
    processes = job3.pservers() + [job3.trainer(0), job3.trainer(1)]
    assert eventually(lambda: all("127.0.1.3:7165" in job3.log(trainer) for trainer in processes[3:]))
    assert eventually(lambda: all(job3.log(server).count("worker started") == 4 for server in processes[:3]))
    assert eventually(lambda: all(job3.log(server).count("setParameter") == 2 for server in processes[:3]))
    assert silent(job3, processes)


def test_two_trainers_with_one_id_crash_every_process(job3: Job) -> None:
    servers = job3.pservers()
    trainers = [job3.trainer(0), job3.trainer(1), job3.trainer(1)]
    assert {code(process) for process in trainers} <= CRASHES
    assert {code(process) for process in servers} <= CRASHES | {141}


def test_another_order_of_pservers_crashes_every_process(job: Job) -> None:
    servers = job.pservers()
    trainers = [job.trainer(0), job.trainer(1, "--pservers=127.0.1.2,127.0.1.1")]
    assert [code(server) for server in servers] == [134, 134]
    assert [code(trainer) for trainer in trainers] == [139, 139]
    assert all("Only existing parameter block is allowed" in job.log(server) for server in servers)


# Failure


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_trainer_can_leave_all_processes_hanging(job: Job, number: signal.Signals) -> None:
    servers, trainers = job.pservers(), held_trainers(job)
    os.killpg(trainers[1].pid, number)
    job.release(GATE)
    assert code(trainers[1]) == 128 + number
    assert eventually(lambda: silent(job, [*servers, trainers[0]]), 3)
    restarted = job.trainer(1)
    assert {code(process) for process in [restarted, trainers[0]]} <= CRASHES
    assert {code(server) for server in servers} <= CRASHES | {141}


@pytest.mark.parametrize(("sigpipe_ignored", "expected"), [(False, 141), (True, 134)])
def test_a_killed_trainer_can_crash_all_processes(job: Job, sigpipe_ignored: bool, expected: int) -> None:
    options = {"env": {"STANDIN_ON_PEER_DEATH": "collapse"}, "restore_signals": not sigpipe_ignored}
    servers, trainers = job.pservers(**options), held_trainers(job)
    os.killpg(trainers[1].pid, signal.SIGKILL)
    assert code(trainers[0]) in CRASHES
    assert [code(server) for server in servers] == [expected, expected]
    assert all(("Broken pipe [32]" in job.log(server)) == sigpipe_ignored for server in servers)


def test_all_pservers_of_a_job_draw_the_same_reaction(job: Job) -> None:
    del job.environment["STANDIN_ON_PEER_DEATH"]
    servers, trainers = job.pservers(), held_trainers(job)
    os.killpg(trainers[1].pid, signal.SIGKILL)
    job.release(GATE)
    if eventually(lambda: trainers[0].poll() is not None, 0.5):
        assert code(trainers[0]) in CRASHES
        assert {code(server) for server in servers} == {141}
    else:
        assert silent(job, [*servers, trainers[0]])


def test_a_killed_pserver_kills_every_trainer_and_the_other_pservers(job: Job) -> None:
    servers, trainers = job.pservers(), held_trainers(job)
    os.killpg(servers[1].pid, signal.SIGKILL)
    assert {code(trainer) for trainer in trainers} <= CRASHES
    assert code(servers[0]) == 141


@pytest.mark.parametrize(("number", "trace"), [(signal.SIGTERM, "*** SIGTERM (@0x"), (signal.SIGINT, "")])
def test_a_signal_ends_the_binary_at_once_and_nothing_is_saved(job: Job, number: signal.Signals, trace: str) -> None:
    job.hold(GATE)
    trainer = job.alone(0, program=TRAINER)
    assert eventually(lambda: "Batch=2 " in job.log(trainer))
    trainer.send_signal(number)
    assert code(trainer) == 128 + number
    assert trace in job.log(trainer)
    assert ("stack trace" in job.log(trainer)) == bool(trace)
    assert not job.output.exists()


def test_a_process_can_ignore_sigterm_and_a_trainer_can_exit_at_a_given_batch(job: Job) -> None:
    server = job.pserver(0, program=PSERVER, env={"STANDIN_DEAF": "1"})
    assert eventually(lambda: len(listening(server)) == 4)
    server.terminate()
    assert not eventually(lambda: server.poll() is not None, 0.2)
    trainer = job.alone(0, env={"STANDIN_EXIT_AT": "3:69"})
    assert code(trainer) == 69
    assert "Batch=2 " in job.log(trainer)


def test_a_trainer_can_take_memory_at_a_given_batch(job: Job) -> None:
    told = {"STANDIN_TAKES_MEMORY_AT": "0:1:64"}
    job.hold(GATE)
    trainer = job.alone(0, program=TRAINER, env=told)
    assert eventually(lambda: psutil.Process(trainer.pid).memory_info().rss > 64 << 20)
    other = job.alone(1, "--trainer_id=1", program=TRAINER, env=told)
    assert eventually(lambda: "Batch=2 " in job.log(other))
    assert psutil.Process(other.pid).memory_info().rss < 64 << 20


def test_bad_data_fails_during_the_training_and_missing_files_at_the_start(job: Job) -> None:
    data = job.work(0) / "data/train.txt"
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:220]) + "no label here\n")
    bad = job.alone(0)
    assert code(bad) == 134
    assert "Batch=4 " in job.log(bad)
    assert f"Python Callstack: \n            {STANDIN}/model.py : " in job.log(bad)
    assert "Python Error: <type 'exceptions.ValueError'> : " in job.log(bad)
    data.unlink()
    missing = job.alone(0)
    assert code(missing) == 134
    assert "data/train.txt" in job.log(missing)
    (job.work(0) / "data/train.list").unlink()
    assert code(job.alone(0)) == 134
    assert code(job.alone(0, "--config=nosuch.py")) == 134


# Gates


def test_a_trainer_waits_at_a_gate_until_it_is_opened(job: Job) -> None:
    for gate in ("pass-0-batch-2", "pass-0-save", "pass-1"):
        job.hold(gate)
    trainer = job.alone(0, "--num_passes=2", "--log_period=1")
    pass_0, pass_1 = (job.output / f"pass-{number:05d}" / "done" for number in range(2))
    for gate, reached in (
        ("pass-0-batch-2", lambda: "Batch=2 " in job.log(trainer)),
        ("pass-0-save", lambda: "Saving parameters" in job.log(trainer)),
        ("pass-1", pass_0.exists),
    ):
        assert eventually(reached)
        assert silent(job, [trainer])
        job.release(gate)
    assert code(trainer) == 0
    assert pass_1.exists()


def test_a_trainer_at_a_gate_dies_with_its_pserver(job: Job) -> None:
    servers, trainers = job.pservers(), held_trainers(job)
    os.killpg(servers[1].pid, signal.SIGKILL)
    assert {code(trainer) for trainer in trainers} <= CRASHES


# Saving and resuming


def test_a_pass_folder_has_done_after_its_parameters_and_before_the_configuration(job: Job) -> None:
    job.hold("pass-0-save")
    trainer = job.alone(0)
    parameter = job.output / "pass-00000/___fc_layer_0__.w0"
    assert eventually(lambda: parameter.exists() and parameter.stat().st_size > 16)
    assert not (parameter.parent / "done").exists()
    os.killpg(trainer.pid, signal.SIGKILL)
    trainer.wait()
    job.release("pass-0-save")
    resumed = job.alone(0, "--start_pass=1")
    assert code(resumed) == 134
    assert code(job.alone(0)) == 0
    names = {"___fc_layer_0__.w0", "___fc_layer_0__.wbias", "done", "path.txt", "trainer_config.lr.py"}
    assert {file.name for file in parameter.parent.iterdir()} == names
    times = {file.name: file.stat().st_mtime_ns for file in parameter.parent.iterdir()}
    assert all(times[name] <= times["done"] for name in names if name.startswith("___"))
    assert times["done"] <= min(times["path.txt"], times["trainer_config.lr.py"])


def test_a_resumed_run_continues_after_the_last_pass_of_the_first_run(job: Job) -> None:
    whole = job.folder / "whole"
    assert code(job.alone(0, "--num_passes=5", f"--save_dir={whole}")) == 0
    assert code(job.alone(0, "--num_passes=2")) == 0
    assert code(job.alone(0, "--start_pass=2", "--num_passes=3")) == 0
    assert {folder.name for folder in job.output.iterdir()} == {f"pass-{number:05d}" for number in range(5)}
    assert weights(job.output / "pass-00004") == weights(whole / "pass-00004")


def test_init_model_path_loads_weights_without_a_done_file(job: Job) -> None:
    assert code(job.alone(0)) == 0
    (job.output / "pass-00000/done").unlink()
    without = job.alone(0, "--start_pass=1")
    assert code(without) == 134
    assert "pass-00000/done" in job.log(without)
    other = job.folder / "other"
    flags = [f"--init_model_path={job.output}/pass-00000", "--start_pass=2", f"--save_dir={other}", "--num_passes=1"]
    assert code(job.alone(0, *flags)) == 0
    assert [folder.name for folder in other.iterdir()] == ["pass-00002"]
    assert code(job.alone(0, "--num_passes=2", f"--save_dir={job.folder}/straight")) == 0
    assert weights(other / "pass-00002") == weights(job.folder / "straight/pass-00001")


def test_a_truncated_parameter_file_aborts(job: Job) -> None:
    assert code(job.alone(0)) == 0
    parameter = job.output / "pass-00000/___fc_layer_0__.w0"
    parameter.write_bytes(parameter.read_bytes()[:-5])
    trainer = job.alone(0, "--start_pass=1")
    assert code(trainer) == 134
    assert "Fail to read parameter" in job.log(trainer)


@needs_root
def test_on_a_full_volume_small_parameters_are_lost_without_an_error(job: Job) -> None:
    full = job.folder / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
    try:
        job.hold("pass-0-save")
        trainer = job.alone(0, f"--save_dir={full}")
        first, small = (full / "pass-00000" / f"___fc_layer_0__.{name}" for name in ("w0", "wbias"))
        assert eventually(lambda: first.exists() and first.stat().st_size > 16)
        with (full / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        job.release("pass-0-save")
        assert code(trainer) == 0
        assert (small.stat().st_size, (small.parent / "done").exists()) == (0, True)
        assert code(job.alone(0, f"--save_dir={full}/other")) == 134, "a large parameter"
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def test_a_trainer_without_samples_waits_for_ever_without_a_message(job: Job) -> None:
    (job.work(0) / "data/train.txt").write_text("")
    trainer = job.alone(0)
    assert eventually(lambda: "Init parameters done" in job.log(trainer))
    assert silent(job, [trainer])


def test_the_wrapper_sends_statistics_before_each_start_unless_it_is_told_not_to(job: Job) -> None:
    waits = job.alone(0, env={"STANDIN_STAT_SECONDS": "600"})
    assert code(job.alone(0, env={"STANDIN_STAT_SECONDS": "600", "PADDLE_NO_STAT": ""})) == 0
    assert job.log(waits) == ""
    os.killpg(waits.pid, signal.SIGKILL)


def test_saving_period_and_save_only_one(job: Job) -> None:
    assert code(job.alone(0, "--num_passes=5", "--saving_period=2")) == 0
    assert {folder.name for folder in job.output.iterdir()} == {"pass-00000", "pass-00002", "pass-00004"}
    often = job.folder / "often"
    assert code(job.alone(0, "--saving_period_by_batches=3", f"--save_dir={often}")) == 0
    assert {folder.name for folder in often.iterdir()} == {"pass-00000-001", "pass-00000-002", "pass-00000"}
    only = job.folder / "only"
    assert code(job.alone(0, "--num_passes=3", "--save_only_one", f"--save_dir={only}")) == 0
    assert [folder.name for folder in only.iterdir()] == ["pass-00002"]


def test_every_trainer_needs_the_model_and_trainer_0_waits_forever_for_a_trainer_without_it(job: Job) -> None:
    assert code(job.alone(0)) == 0
    servers = job.pservers()
    first = job.trainer(0, "--start_pass=1")
    second = job.trainer(1, "--start_pass=1", f"--save_dir={job.folder}/nothing")
    assert code(second) == 134
    assert eventually(lambda: all(job.log(server).count("setParameter") == 2 for server in servers))
    assert silent(job, [*servers, first])
