"""What the fuzzer calls: each target gets any bytes, and raises if the launcher does not handle them as it promises.

A target reads what another party has written: another pod, another user of the volume, the author of a YAML file, a
training program. The launcher may refuse these bytes, by the exceptions that the target expects. Every other exception
would be a traceback in a pod.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass

import yaml

from launcher import config, paddle
from launcher.cli import run_arguments
from launcher.data.stage_record import _parse as parse_stage_record
from launcher.errors import Failure
from launcher.gang import GangSettings, handshake, messages, protocol
from launcher.gang.protocol import Malformed, Message
from launcher.job import yaml_io
from launcher.job.findings import Findings
from launcher.job.from_yaml import API, KIND, RenderOptions, to_job_spec
from launcher.job.image_commands import ImageCommands
from launcher.job.manifests import objects
from launcher.model import Cause, CauseKind, Numbers, Saves, Shape
from launcher.paddle import NumberFinder
from launcher.processes.output import PassFinder, Tail
from launcher.registry.errors import Unreadable
from launcher.registry.image import _Image
from launcher.registry.reference import parse as parse_reference
from launcher.registry.transport import Answer, Transport
from launcher.report import page, reader
from launcher.store import checkpoints, status
from launcher.store.failure_marks import FailureMarks, mark_name
from launcher.store.json_fields import as_bytes
from launcher.store.lease_files import LeaseFiles
from launcher.store.record import Record

SHAPE = Shape(2, 1)
MAX_NUMBER = 2**31 - 1  # of a generation, in the protocol
_CAUSE = Cause(CauseKind.TRAINER, 0, "pod-0", "trainer died", 1)


# ---- the gang: lines from any address of the network


def protocol_lines(data: bytes) -> None:
    """Read each line as every message that there is, whatever its word."""
    for line in data.split(b"\n"):
        with contextlib.suppress(Malformed):
            message = protocol.decode(line)
            assert _same(protocol.decode(protocol.encode(message)), message)
            for read in _READERS:
                _read_message(read, message)


def _read_message(read: Callable[..., object], message: Message) -> None:
    """Read a message. A cause that was read can be sent to all other members."""
    given = (message, b"secret", "nonce")[: len(inspect.signature(read).parameters)]
    with contextlib.suppress(Malformed):
        value = read(*given)
        repr(value)
        _check_finite(value)
        match value:
            case (Cause() as cause, float(age)):
                sent = protocol.decode(protocol.encode(messages.failed(0, cause, age)))
                assert messages.read_failed(sent)[0].kind == cause.kind


_READERS: tuple[Callable[..., object], ...] = tuple(
    getattr(module, name)
    for module in (handshake, messages)
    for name in sorted(vars(module))
    if name.startswith("read_")
)


# ---- the volume: files that another user may have written


def state_files(data: bytes) -> None:
    """Read one file of the volume. The first line selects an entry of `_FILES`, the rest is the content of the file."""
    name, _, content = data.partition(b"\n")
    path, read = _FILES.get(name) or list(_FILES.values())[sum(name) % len(_FILES)]
    with _folder() as job:
        file = os.path.join(job, "output", path)
        os.makedirs(os.path.dirname(file), exist_ok=True)
        with open(file, "wb") as opened:
            opened.write(content)
        with contextlib.suppress(Failure):
            read(job)


def _read_lease(job: str) -> None:
    lease = LeaseFiles(os.path.join(job, "output")).latest()
    assert lease is not None
    assert math.isfinite(lease.ends_within)
    assert lease.ends_within >= 0


def _read_released_lease(job: str) -> None:
    with open(os.path.join(job, "output", ".launcher", ".leases", "1"), "w") as file:
        json.dump({"gang": "g", "job": "j", "pod": "p", "uid": "u", "ends_within": 60.0}, file)
    _read_lease(job)


def _read_attempts(job: str) -> None:
    record = Record(os.path.join(job, "output"), "job")
    history = record.history(SHAPE)
    history.catch_up(record.attempts())
    latest = history.generation
    assert latest is None or 0 <= latest < MAX_NUMBER, "the protocol has no room for the next generation"
    history.begin(0 if latest is None else latest + 1, None, 3)
    history.explain(0, _CAUSE)
    history.end(_CAUSE)
    json.loads(as_bytes(history.content()))


def _read_secret(job: str) -> None:
    assert Record(os.path.join(job, "output"), "job").secret(), "an empty secret protects nobody"


def _read_ranks(job: str) -> None:
    assert all(type(rank) is int for rank in Record(os.path.join(job, "output"), "job").kept_ranks().values())


def _read_status(job: str) -> None:
    assert all(map(str.isprintable, status.describe(job, as_json=False).split("\n")))
    json.loads(status.describe(job, as_json=True))


def _read_mark(job: str) -> None:
    marks = FailureMarks(os.path.join(job, "output"), "trainers", mark_name("trainer", 0, "pod"))
    marks.begin()
    mark = marks.of("servers", "pserver")
    assert mark is None or isinstance(mark.text, str)


def _read_pass(job: str) -> None:
    assert checkpoints.newest(Saves(os.path.join(job, "output"))) in (None, 7)


def _read_stage_record(job: str) -> None:
    with open(os.path.join(job, "output", "stage"), "rb") as file:
        parse_stage_record(file.read())


def _read_report(job: str) -> None:
    content = page.render(reader.read(os.path.join(job, "output"), now=1_795_000_900.0))
    assert content.count(b"<script") == 0
    assert not re.search(rb'="[^"<>]*\b(?:nan|inf)%?"', content), "a drawing has a number that is none"


_FILES: Mapping[bytes, tuple[str, Callable[[str], None]]] = {
    b"lease": (".launcher/.leases/1", _read_lease),
    b"released": (".launcher/.leases/1.over", _read_released_lease),
    b"attempts": (".launcher/job/attempts.json", _read_attempts),
    b"ranks": (".launcher/job/roster.json", _read_ranks),
    b"secret": (".launcher/job/secret", _read_secret),
    b"mark": (".launcher/failed/servers/pserver-0", _read_mark),
    b"job": ("job.json", _read_status),
    b"member": ("node_0/status.json", _read_status),
    b"timeline": ("events.jsonl", _read_report),
    b"member-timeline": ("node_0/events.jsonl", _read_report),
    b"summary": ("job.json", _read_report),
    b"done": ("pass-00007/done", _read_pass),
    b"parameter": ("pass-00007/parameter", _read_pass),
    b"stage": ("stage", _read_stage_record),
}


@contextlib.contextmanager
def _folder() -> Iterator[str]:
    made = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        yield made
    finally:
        shutil.rmtree(made)


# ---- YAML files of users


def yaml_files(data: bytes) -> None:
    """Render a file. The output is YAML that means the same objects, also for a reader without the launcher's rules."""
    options = RenderOptions("an/inject:1", ImageCommands(("python3", "train.py")))
    with contextlib.suppress(Failure):
        documents = yaml_io.read(data, "input")
        values = [document.value for document in documents]
        for value in values:
            findings = Findings()
            if (value.get("apiVersion"), value.get("kind")) != (API, KIND):
                made = [value]
            elif job_spec := to_job_spec(value, values, options, findings):
                made = objects(job_spec)
            else:
                assert findings.problems
                continue
            repr(findings)
            for each in made:
                assert len(yaml_io.dump(each)) < 10 * len(data) + 1_000_000
                assert _same(yaml.safe_load(yaml_io.dump(each)), each)


def _same(one: object, other: object) -> bool:
    """Return whether two values are equal. NaN equals itself."""
    return repr(one) == repr(other)


# ---- the output of training programs


def log_output(data: bytes) -> None:
    """Read output in parts, whose size the first byte selects. The parts make no difference."""
    size = data[0] + 1 if data else 1
    for mark in (b"Pass=", b"pass-"):
        output = bytearray(data[1:].replace(mark, b"\n" + mark))
        whole = PassFinder(mark)
        whole.last_in(output, 0, len(output))
        parts, tail = PassFinder(mark), Tail()
        for begin in range(0, len(output), size):
            end = min(begin + size, len(output))
            parts.last_in(output, begin, end)
            tail.add(output, begin, end)
        assert parts._last == whole._last
        lines = tail.lines()
        assert len(lines) <= 20
        assert sum(len(line.encode()) for line in lines) <= 2048 + 3 * 20
        for mode, role, code in (("ps", "trainer", 139), ("ps", "pserver", 1), ("v0", "trainer", 134)):
            paddle.advice(mode, role, code, tail.recent_lines())
        assert isinstance(paddle.program_exit_code(1, tail.recent_lines()), int)
        paddle.hide_environment(lines)
        protocol.decode(protocol.encode(messages.failed(0, Cause(CauseKind.TRAINER, 0, "p", "w", 1, lines), 0.0)))


def log_numbers(data: bytes) -> None:
    """Find numbers in output that arrives in parts, whose size the first byte selects. The parts make no difference."""
    size = data[0] + 1 if data else 1
    output = bytearray(data[1:])
    whole, parts = (_numbers_in(output, step) for step in (len(output) + 1, size))
    if len(output) <= _ALL_READ and len(output.splitlines()) <= 16:
        assert _same(whole, parts)


def _numbers_in(output: bytearray, size: int) -> Numbers:
    finder, passes, newest = NumberFinder(itertools.count().__next__), PassFinder(b"Pass="), Numbers()
    for begin in range(0, len(output), size):
        end = min(begin + size, len(output))
        number = passes.last_in(output, begin, end)
        newest = finder.newest_in(output, begin, end, None if number is None else passes.at) or newest
    newest = finder.rest(is_end=True) or newest
    for name, value in vars(newest).items():
        if isinstance(value, int):
            assert 0 <= value < 10**18, name
        elif value is not None and name not in ("loss", "test_loss"):
            assert math.isfinite(value), name
    return newest


_ALL_READ = 4096  # bytes of output, in which the finder skips nothing


# ---- the environment and the command line of a pod


def configuration(data: bytes) -> None:
    """Read lines as variables `NAME=value`, from the first line that begins with `-` on as arguments.

    What is accepted can be sent to the other members.
    """
    lines = [line.decode("utf-8", "surrogateescape") for line in data.replace(b"\0", b"").split(b"\n")]
    first = next((place for place, line in enumerate(lines) if line.startswith("-")), len(lines))
    environment = dict(line.split("=", 1) for line in lines[:first] if "=" in line)
    arguments = lines[first:]
    with contextlib.suppress(Failure):
        request = run_arguments.parse(arguments)
        config.role_member(environment, request.own)
        settings = config.read(environment, request.own, check_here=False)
        _check_finite(settings)
        train = protocol.decode(
            protocol.encode(messages.train(0, GangSettings(1, 0, stall=settings.gang.stall_timeout).reported_stall))
        )
        messages.read_train(train)
        paddle.plan(settings, request.flags, request.command, None, None)
        paddle.saves(settings, request.flags, request.command)


def _check_finite(value: object) -> None:
    """Raise AssertionError for a number that is infinite or no number."""
    if isinstance(value, float):
        assert math.isfinite(value)
    elif is_dataclass(value):
        for field in fields(value):
            _check_finite(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            _check_finite(item)


# ---- registries: the image's name, and all answers


class _Answers(Transport):
    """Answers requests in turn with lines: the first with status 401, all others with 200."""

    def __init__(self, challenge: str, bodies: list[bytes]) -> None:
        super().__init__("registry.test", frozenset(), math.inf)
        self._challenge = challenge
        self._bodies = iter(bodies)
        self._asked = False

    def get(self, url: str, headers: Mapping[str, str], limit: int) -> Answer:
        if not self._asked:
            self._asked = True
            return Answer(401, {"www-authenticate": self._challenge}, b"")
        return Answer(200, {}, next(self._bodies, b""))

    def request(
        self, method: str, url: str, headers: Mapping[str, str], limit: int, body: bytes | None = None
    ) -> Answer:
        return self.get(url, headers, limit)


def registry_answers(data: bytes) -> None:
    """Read an image. The first line is its name, the second the login that is asked for; then all bodies follow."""
    name, challenge, *bodies = [*data.split(b"\n"), b"", b""]
    with contextlib.suppress(Unreadable):
        reference = parse_reference(name.decode(errors="replace"), "registry.test")
        config = _Image(reference, _Answers(challenge.decode("latin-1"), bodies), lambda image: ()).config()
        for word in (*config.entrypoint, *config.command):
            assert yaml.safe_load(yaml_io.dump({"args": [word]})) == {"args": [word]}


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "protocol": protocol_lines,
    "state": state_files,
    "yaml": yaml_files,
    "log": log_output,
    "numbers": log_numbers,
    "config": configuration,
    "registry": registry_answers,
}
