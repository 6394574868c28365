"""A state file that a user, a power loss or another version has spoiled is named, and no job starts wrongly.

Each reader of each file meets each way to spoil it. No reader blocks at a FIFO, which would let the test time out.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.base.files import LIMIT, Folder
from launcher.errors import Exit, Failure
from launcher.model import Cause, CauseKind, Shape
from launcher.store import status
from launcher.store.failure_marks import FailureMarks
from launcher.store.journal import LatestFile
from launcher.store.lease_files import LeaseFiles, LeaseOwner
from launcher.store.record import Record

ME = LeaseOwner("gang-1", "job-1", "pod-1", "uid-1", 155.0)


def as_content(data: bytes) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_bytes(data)

    return spoil


def as_link(path: Path) -> None:
    """A link to a file with the right content: the content must not count."""
    right = path.with_name("elsewhere")
    path.rename(right)
    path.symlink_to(right)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


CONTENTS = {
    "empty": b"",
    "zeros": bytes(100),
    "half": b'{"without_progress": 1, "generat',
    "not UTF-8": b'{"a": "\xff\xfe"}',
    "a list": b"[]",
    "a text": b'"x"',
    "deep": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "many digits": b'{"ends_within": ' + b"9" * 400 + b"}",
    "NaN": b'{"ends_within": NaN}',
    "Infinity": b'{"ends_within": Infinity}',
    "too large a number": b'{"ends_within": 1e999}',
    "newer": b'{"version": 2}',
    "huge": b"{" + b" " * LIMIT + b"}",
}
KINDS = {"a link": as_link, "a FIFO": as_fifo, "a folder": as_folder}
SPOILINGS: dict[str, Callable[[Path], None]] = {
    **{name: as_content(data) for name, data in CONTENTS.items()},
    **KINDS,
}


def refused(call: Callable[[], object], path: Path) -> Failure:
    """Return the failure of the call, which names the file and says what to do."""
    with pytest.raises(Failure) as raised:
        call()
    failure = raised.value
    assert str(path) in failure.message
    assert "remove " in failure.message or "use the same image" in failure.message
    assert failure.code in (Exit.IO_FAILED, Exit.CANNOT_WRITE)
    return failure


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a job in its second generation."""
    made = Record(str(tmp_path / "output"), "job-1")
    made.open()
    history = made.history(Shape(2))
    history.begin(0, None, 2)
    history.end(Cause(CauseKind.TRAINER, 1, "pod-1", "exited with code 1", 1))
    history.begin(1, 3, 2)
    made.folder.write("attempts.json", json.dumps(history.content()).encode())
    made.folder.write("roster.json", b'{"ranks": {"uid-0": 0, "uid-1": 1}}')
    made.secret()
    made.mark_begun()
    made.mark_complete()
    assert made.history(Shape(2)).generation == 1
    assert made.kept_ranks() == {"uid-0": 0, "uid-1": 1}
    return made


def path_in(record: Record, name: str) -> Path:
    return Path(record.folder.path_of(name))


@pytest.mark.parametrize("spoiling", SPOILINGS)
@pytest.mark.parametrize("name", ["attempts.json", "roster.json"])
def test_a_spoiled_history_or_roster_ends_the_start(record: Record, name: str, spoiling: str) -> None:
    path = path_in(record, name)
    SPOILINGS[spoiling](path)
    read = record.kept_ranks if name == "roster.json" else lambda: record.history(Shape(2))
    refused(read, path)


ATTEMPTS: dict[str, Any] = {
    "a count that is a text": {"without_progress": "4"},
    "a count that is null": {"without_progress": None},
    "a count below 0": {"without_progress": -1},
    "a count that is true": {"without_progress": True},
    "a fraction": {"without_progress": 1.5},
    "generations that are a number": {"generations": 5},
    "generations that are 0": {"generations": 0},
    "a generation that is a number": {"generations": [5]},
    "a generation without a number": {"generations": [{"began": "2026-01-01T00:00:00Z"}]},
    "a number that the gang protocol cannot send": {"generations": [{"number": 2147483647}]},
    "a time that is a number": {"generations": [{"number": 1, "began": 5}]},
    "a pass that is a text": {"generations": [{"number": 1, "after_pass": "3"}]},
    "a cause that is a text": {"generations": [{"number": 1, "first_cause": "x"}]},
    "a cause without words": {"generations": [{"number": 1, "first_cause": {"what": 5}}]},
}


@pytest.mark.parametrize("spoiled", ATTEMPTS)
def test_each_field_of_the_history_is_checked(record: Record, spoiled: str) -> None:
    path = path_in(record, "attempts.json")
    path.write_text(json.dumps(ATTEMPTS[spoiled]))
    refused(record.attempts, path)
    refused(lambda: record.explain(1, Cause(CauseKind.LOST, 0, "pod-0", "was lost", 76), Shape(2)), path)


@pytest.mark.parametrize(
    "ranks", ["x", [1], {"uid-0": "0"}, {"uid-0": -1}, {"uid-0": True}, {"uid-0": None}, {"uid-0": 1, "uid-1": 1}]
)
def test_each_field_of_the_roster_is_checked(record: Record, ranks: object) -> None:
    path = path_in(record, "roster.json")
    path.write_text(json.dumps({"ranks": ranks}))
    refused(record.kept_ranks, path)


@pytest.mark.parametrize(
    "content", [b"", b" \n", bytes(64), b"secret", b"0" * 63, b"0" * 65, b"\xff" * 64, b"0" * 10_000]
)
def test_a_secret_that_no_launcher_has_written_is_refused(record: Record, content: bytes) -> None:
    path = path_in(record, "secret")
    path.write_bytes(content)
    failure = refused(record.secret, path)
    assert content.strip() or "it is empty" in failure.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["secret", "complete", "begun", "generation-1"])
def test_a_mark_or_secret_is_a_file(record: Record, name: str, kind: str) -> None:
    path = path_in(record, name)
    if not path.exists():
        assert record.claim(1, "pod-0")
    KINDS[kind](path)
    reads = {"secret": record.secret, "complete": record.is_complete, "begun": record.has_begun}
    refused(reads.get(name, lambda: record.claim(1, "pod-1")), path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_of_another_job_that_is_no_folder_does_not_disturb(record: Record, kind: str) -> None:
    other = Record(str(Path(record.folder.path).parent.parent), "job-2")
    other.mark_complete()
    assert record.completed_before() == ["job-2"]
    folder = Path(other.folder.path)
    folder.rename(folder.with_name("moved"))
    (folder.parent / "moved" / "complete").unlink()
    folder.touch()
    KINDS[kind](folder)
    assert record.completed_before() == []


# ---- leases ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def leases(tmp_path: Path) -> LeaseFiles:
    made = LeaseFiles(str(tmp_path))
    assert made.take(0, ME)
    return made


LEASES: dict[str, dict[str, object]] = {
    "no gang": {"gang": None},
    "a gang that is a number": {"gang": 5},
    "a huge name": {"pod": "x" * 100_000},
    "a limit that is a text": {"ends_within": "5"},
    "a limit below 0": {"ends_within": -1},
    "an endless limit": {"ends_within": 1e300},
    "a limit that is true": {"ends_within": True},
    "a release without a limit": {"released": "now"},
}


@pytest.mark.parametrize("spoiled", [*CONTENTS, *LEASES])
def test_a_spoiled_lease_has_an_unknown_holder_and_expires(leases: LeaseFiles, tmp_path: Path, spoiled: str) -> None:
    """A power loss can do this, too, so it must heal by itself. The gang that has lost its lease ends."""
    path = tmp_path / ".launcher/.leases/0"
    content = json.dumps({**vars(ME), **LEASES.get(spoiled, {})}).encode()
    path.write_bytes(CONTENTS.get(spoiled, content))
    lease = leases.latest()
    assert lease is not None
    assert lease.fault.startswith(f"{path} cannot be used: ")
    assert not lease.is_released
    assert 0 < lease.ends_within < 1000
    assert not leases.renew(0, ME)
    leases.release(ME.gang, 0)
    leases.release("", 0)
    assert not list(tmp_path.rglob("*.over"))


@pytest.mark.parametrize("name", ["0", "0.over"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_lease_is_a_file(leases: LeaseFiles, tmp_path: Path, kind: str, name: str) -> None:
    leases.release(ME.gang, 0)
    path = tmp_path / ".launcher/.leases" / name
    KINDS[kind](path)
    refused(leases.latest, path)


@pytest.mark.parametrize("content", [b"", b"NaN\n", b"inf\n", b"-1.0\n", b"1e300\n", b"9" * 400, b"\xff\n", bytes(100)])
def test_a_release_without_a_usable_limit_ends_with_the_limit_of_the_lease(
    leases: LeaseFiles, tmp_path: Path, content: bytes
) -> None:
    leases.release(ME.gang, 0)
    (tmp_path / ".launcher/.leases/0.over").write_bytes(content)
    lease = leases.latest()
    assert lease is not None
    assert (lease.is_released, lease.ends_within) == (True, ME.ends_within)


@pytest.mark.parametrize("name", ["9" * 10, "9" * 19, "9" * 200])
def test_a_lease_with_an_absurd_number_is_refused(leases: LeaseFiles, tmp_path: Path, name: str) -> None:
    """A gang would take the next number, which another gang might not see."""
    path = tmp_path / ".launcher/.leases" / name
    path.touch()
    refused(leases.latest, path)
    refused(lambda: leases.renew(0, ME), path)


@pytest.mark.parametrize("name", ["٣", "01", "-1", "1.5", "1e3", "x", "0.over.tmp"])
def test_other_names_beside_the_leases_do_not_count(leases: LeaseFiles, tmp_path: Path, name: str) -> None:
    (tmp_path / ".launcher/.leases" / name).touch()
    lease = leases.latest()
    assert lease is not None
    assert (lease.number, lease.holder) == (0, ME)


def test_escape_sequences_in_a_lease_do_not_reach_the_terminal(leases: LeaseFiles, tmp_path: Path) -> None:
    content = {**vars(ME), "gang": "other", "pod": "x\x1b[2J\ud800", "job": "a\rb"}
    (tmp_path / ".launcher/.leases/0").write_text(json.dumps(content))
    lease = leases.latest()
    assert lease is not None
    assert (lease.holder.pod, lease.holder.job) == ("x\\x1b[2J\\ud800", "a\\rb")


# ---- the other role's marks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoiling", SPOILINGS)
def test_a_spoiled_mark_of_failure_never_blocks_the_join(tmp_path: Path, spoiling: str) -> None:
    server = FailureMarks(str(tmp_path), "s-uid", "pserver-1")
    trainer = FailureMarks(str(tmp_path), "t-uid", "trainer-0")
    server.begin()
    server.mark("exit code 66: no shard")
    trainer.begin()
    assert trainer.of("s-uid", "pserver")
    path = tmp_path / ".launcher/failed/s-uid/pserver-1"
    SPOILINGS[spoiling](path)
    mark = trainer.of("s-uid", "pserver")
    is_text = spoiling in CONTENTS and len(CONTENTS[spoiling]) <= 64 * 1024
    assert (mark is not None) == is_text
    assert mark is None or mark.text.endswith(f"(see {path})")


def test_a_mark_that_cannot_be_used_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = FailureMarks(str(tmp_path), "t-uid", "trainer-0")
    trainer.begin()
    path = tmp_path / ".launcher/failed/s-uid/pserver-1"
    path.parent.mkdir()
    os.mkfifo(path)
    for _ in range(3):
        assert trainer.of("s-uid", "pserver") is None
    assert len(caplog.messages) == 1
    assert f"{path} is a FIFO" in caplog.messages[0]


# ---- status.json and job.json ----------------------------------------------------------------------------------------

STATUS = {"role": "both", "rank": 0, "pod": "pod-0", "phase": "training", "since": "2026-01-01T00:00:00Z"}
WRONG_STATUS: dict[str, object] = {
    "rank": "0",
    "pod": 5,
    "phase": ["x"],
    "since": 1.5,
    "last_pass": "3",
    "exit_code": {},
    "first_cause": "x",
}
WRONG_JOB: dict[str, object] = {
    "members": "abc",
    "generations": 5,
    "started": 1,
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job with two members."""
    output = Folder(str(tmp_path / "output"))
    for rank in range(2):
        content = {**STATUS, "rank": rank, "pod": f"pod-{rank}"}
        output.below(f"node_{rank}").write("status.json", json.dumps(content).encode())
    members = [{"pod": f"pod-{rank}", "role": "both", "rank": rank} for rank in range(2)]
    output.write("job.json", json.dumps({"members": members}).encode())
    return tmp_path


def rows(text: str) -> list[list[str]]:
    return [line.split()[:3] for line in text.splitlines()[1:3]]


@pytest.mark.parametrize("spoiling", SPOILINGS)
@pytest.mark.parametrize("name", ["node_0/status.json", "job.json"])
def test_status_names_a_spoiled_file_and_shows_all_others(job: Path, name: str, spoiling: str) -> None:
    path = job / "output" / name
    SPOILINGS[spoiling](path)
    text = status.describe(str(job), as_json=False)
    first = ["0", "pod-0", "training" if name == "job.json" else "no"]
    assert rows(text) == [first, ["1", "pod-1", "training"]]
    assert str(path) in text.splitlines()[-1]
    assert json.loads(status.describe(str(job), as_json=True))["unusable"] == [text.splitlines()[-1]]


@pytest.mark.parametrize("field", WRONG_STATUS)
def test_each_field_of_a_status_is_checked(job: Path, field: str) -> None:
    path = job / "output" / "node_0" / "status.json"
    path.write_text(json.dumps({**STATUS, field: WRONG_STATUS[field]}))
    assert str(path) in status.describe(str(job), as_json=False).splitlines()[-1]


@pytest.mark.parametrize("field", WRONG_JOB)
def test_each_field_of_the_job_is_checked(job: Path, field: str) -> None:
    path = job / "output" / "job.json"
    path.write_text(json.dumps({field: WRONG_JOB[field]}))
    assert str(path) in status.describe(str(job), as_json=False).splitlines()[-1]


@pytest.mark.parametrize("spoiling", SPOILINGS)
def test_a_spoiled_status_is_replaced_or_named_but_never_followed(
    tmp_path: Path, spoiling: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = LatestFile(Folder(str(tmp_path), "node_0"), "status.json")
    path = tmp_path / "node_0" / "status.json"
    file.put({"version": 1})
    assert file.flush(10)
    SPOILINGS[spoiling](path)
    was = time.monotonic()
    file.put({"version": 2})
    assert file.flush(10)
    assert time.monotonic() - was < 5
    assert any(str(path) in message for message in caplog.messages)
