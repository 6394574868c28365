"""The child writes the page, can be killed, and stays within its bounds whatever another user has written."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.base.helper import Helper
from launcher.report import child
from tests.support.report_jobs import BEGIN, MadeJob, stamp

MEBIBYTE = 1024 * 1024


async def ask(request: dict[str, Any]) -> tuple[list[dict[str, Any]], int | None]:
    """Return the answers of the child, and its exit code."""
    helper = Helper("launcher.report.child", request, dict(os.environ))
    try:
        return [message async for message in helper.messages()], helper.exit_code
    finally:
        await helper.close()


def write(folder: Path, name: str, *events: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("a") as file:
        for number, event in enumerate(events):
            file.write(json.dumps({"v": 1, "at": stamp(BEGIN + number / 100), **event}) + "\n")


def test_the_child_writes_the_page(tmp_path: Path) -> None:
    MadeJob().write(tmp_path)
    answers, code = asyncio.run(ask({"output": str(tmp_path / "output")}))
    path = tmp_path / "output" / "report.html"
    assert answers == [{"written": str(path), "bytes": path.stat().st_size}]
    assert code == 0
    assert b"The job is complete" in path.read_bytes()


def test_a_missing_folder_is_a_failure_with_a_message(tmp_path: Path) -> None:
    ((answer,), _) = asyncio.run(ask({"output": str(tmp_path / "none")}))
    assert answer["failure"][0] == 66
    assert "no such folder" in answer["failure"][1]


def test_a_link_in_place_of_the_page_is_replaced_and_not_followed(tmp_path: Path) -> None:
    MadeJob(generations=1).write(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / "output" / "report.html").symlink_to(victim)
    child.write(str(tmp_path / "output"))
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "output" / "report.html").is_symlink()


def test_links_and_pipes_in_place_of_files_do_not_stop_it(tmp_path: Path) -> None:
    output = MadeJob(generations=1).write(tmp_path) / "output"
    (output / "node_0" / "events.jsonl").unlink()
    os.mkfifo(output / "node_0" / "events.jsonl")
    (output / "node_1" / "events.jsonl").unlink()
    (output / "node_1" / "events.jsonl").symlink_to("/etc/passwd")
    (output / "node_7").symlink_to("/etc")
    (output / "job.json").mkdir()
    path, _ = child.write(str(output))
    content = Path(path).read_text()
    assert "a FIFO" in content
    assert "root:" not in content


def test_killing_the_child_leaves_the_old_page(tmp_path: Path) -> None:
    MadeJob(ranks=40, generations=20).write(tmp_path)
    page = tmp_path / "output" / "report.html"
    page.write_text("old")
    command = [sys.executable, "-m", "launcher.report.child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        running.stdin.write(json.dumps({"output": str(tmp_path / "output")}).encode() + b"\n")
        running.stdin.flush()
        time.sleep(0.3)
        running.send_signal(signal.SIGKILL)
        running.wait()
    assert page.read_bytes() == b"old" or b"</html>" in page.read_bytes()


_LONG = "x" * 100_000


@pytest.mark.parametrize(
    "event",
    [
        {"event": "warning", "text": _LONG},
        {"event": "process_ended", "process": "trainer", "exit_code": 1, "generation": 0, "tail": [_LONG] * 2},
        {"event": "phase", "phase": _LONG, "generation": 1},
        {"event": "joined", "pod": _LONG, "uid": _LONG, "role": _LONG},
        {"event": "ended", "exit_code": 1, "first_cause": {"kind": _LONG, "what": _LONG, "tail": [_LONG]}},
    ],
    ids=lambda event: str(event["event"]),
)
def test_long_texts_do_not_make_a_long_page(tmp_path: Path, event: dict[str, Any]) -> None:
    output = MadeJob(generations=1).write(tmp_path) / "output"
    for number in range(60):
        write(output / "node_1", "events.jsonl", event | {"uid": f"{number}"})
    _, size = child.write(str(output))
    assert size < 2 * MEBIBYTE


def test_many_events_of_each_kind_do_not_make_a_long_page(tmp_path: Path) -> None:
    output = MadeJob(generations=1).write(tmp_path) / "output"
    peer = {"rank": 1, "role": "both", "pod": "p"}
    kinds: list[dict[str, Any]] = [
        {"event": "phase", "phase": "training"},
        {"event": "phase", "phase": "restarting"},
        {"event": "staging_begun"},
        {"event": "pass"},
        {"event": "numbers", "loss": 1.5},
        {"event": "process_ended", "process": "trainer", "exit_code": 9},
        {"event": "stop_requested"},
    ]
    many = [kind | {"generation": number, "pass": number} for number in range(3000) for kind in kinds]
    write(output / "node_1", "events.jsonl", *many)
    lost = [{"event": name, "peer": peer, "why": "w" * 400} for name in ("peer_lost", "peer_returned")] * 2000
    began = [
        {"event": "generation_begun", "generation": {"number": number, "began": stamp(BEGIN + number)}}
        for number in range(20_000)
    ]
    write(output, "events.jsonl", *lost, *began)
    _, size = child.write(str(output))
    assert size < 2 * MEBIBYTE


def test_many_members_do_not_make_a_long_page(tmp_path: Path) -> None:
    for number in range(4000):
        write(tmp_path / "output" / f"node_{number}", "events.jsonl", {"event": "phase", "phase": f"training{number}"})
    _, size = child.write(str(tmp_path / "output"))
    assert size < 2 * MEBIBYTE


def test_times_far_apart_and_broken_lines_are_drawn(tmp_path: Path) -> None:
    output = MadeJob(generations=1).write(tmp_path) / "output"
    with (output / "node_0" / "events.jsonl").open("ab") as file:
        file.write(b'{"v":1,"at":"0001-01-01T00:00:00.000Z","event":"phase","phase":"training"}\n')
        file.write(b'{"v":1,"at":"9999-12-31T23:59:59.999Z","event":"phase","phase":"training"}\n')
        file.write(b'{"v":1,"at":"2026-11-18T11:06:40.000Z","event":"numbers","loss":1e308}\n{"v":1,\xff\n[]\n')
    content = Path(child.write(str(output))[0]).read_text()
    assert "</html>" in content


def test_memory_is_bounded(tmp_path: Path) -> None:
    MadeJob(ranks=3, generations=20).write(tmp_path)
    program = (
        "import sys; from launcher.report import child; child.limit(30 << 20)\n"
        "try: child.write(sys.argv[1], 30 << 20)\n"
        "except Exception as failure: print(failure.message)\n"
        "held = []\n"
        "try:\n  while True: held.append(bytes(1 << 20))\n"
        "except MemoryError: print('bounded after', len(held) < 40)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "output")], check=True, capture_output=True, text=True
    )
    assert "bounded after True" in done.stdout
