"""Heavy work in a child: what it says is heard, how it ends is known, and it never outlives who asked."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.base.helper import Helper
from tests.support.paths import REPOSITORY


@pytest.fixture
def worker(tmp_path: Path) -> Callable[[str], Helper]:
    """A worker that runs this code, with `asked` and `answers` at hand."""

    def make(code: str) -> Helper:
        head = "import os, sys, time\nfrom launcher.base.helper_child import Answers, request\n"
        (tmp_path / "errand.py").write_text(f"{head}asked, answers = request(), Answers()\n{code}\n")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
        return Helper("errand", {"number": 7}, env)

    return make


def heard(worker: Helper) -> list[dict[str, Any]]:
    async def hear() -> list[dict[str, Any]]:
        try:
            return [message async for message in worker.messages()]
        finally:
            await worker.close()

    return asyncio.run(asyncio.wait_for(hear(), 60))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


Make = Callable[[str], Helper]


_ISOLATED = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from launcher.base.helper import Helper

async def hear():
    worker = Helper("json.tool", {}, {"PYTHONHOME": "/nowhere"})
    try:
        print([message async for message in worker.messages()], worker.last_words())
    finally:
        await worker.close()

asyncio.run(hear())
"""


def test_a_launcher_that_heeds_no_variables_of_pythons_has_children_that_heed_none() -> None:
    asking = [sys.executable, "-I", "-c", _ISOLATED, str(REPOSITORY)]
    assert subprocess.run(asking, capture_output=True, text=True, timeout=60).stdout == "[{}] \n"


def test_a_question_is_answered_in_messages_and_the_exit_code_is_known(worker: Make) -> None:
    asking = worker("print('noise')\nanswers.tell({'twice': asked['number'] * 2})\nanswers.tell({})\nsys.exit(3)")
    assert heard(asking) == [{"twice": 14}, {}]
    assert asking.code == 3


def test_a_module_of_the_users_in_the_current_directory_is_not_taken_for_a_standard_one(
    worker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    (users / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(users)
    assert heard(worker("answers.tell({'fine': True})")) == [{"fine": True}]


def test_a_crash_leaves_its_last_words(worker: Make) -> None:
    asking = worker("print('x' * 100_000, file=sys.stderr)\nraise ValueError('the reason')")
    assert heard(asking) == []
    assert (asking.code, asking.last_words()) == (1, "ValueError: the reason")


def test_a_message_that_a_kill_cut_short_is_dropped(worker: Make) -> None:
    asking = worker("answers.tell({'a': 1})\nos.write(answers._out, b'{\"b\"')\nos.kill(os.getpid(), 9)")
    assert heard(asking) == [{"a": 1}]
    assert asking.code == 137


def test_a_big_message_arrives_whole(worker: Make) -> None:
    assert heard(worker("answers.tell({'text': 'x' * 1_000_000})")) == [{"text": "x" * 1_000_000}]


def test_close_ends_the_child_and_what_it_started(worker: Make) -> None:
    start = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
    asking = worker(start + "answers.tell({'pids': [os.getpid(), child.pid]})\nchild.wait()")

    async def test() -> list[int]:
        async for message in asking.messages():
            await asking.close()
            return list(message["pids"])
        return []

    pids = asyncio.run(test())
    assert len(pids) == 2
    until(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids))


def test_whoever_is_cancelled_during_the_start_can_still_close(worker: Make) -> None:
    asking = worker("time.sleep(600)")

    async def test() -> None:
        starting = asyncio.create_task(asking.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await asking.close()

    asyncio.run(test())
    assert asking.code == 137


def test_the_child_does_not_outlive_a_killed_launcher(worker: Make, tmp_path: Path) -> None:
    worker("answers.tell({'pid': os.getpid()})\ntime.sleep(600)")
    launcher = """
import asyncio, os
from launcher.base.helper import Helper
async def ask():
    async for message in Helper("errand", {}, dict(os.environ)).messages():
        print(message["pid"], flush=True)
asyncio.run(ask())
"""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
    process = subprocess.Popen([sys.executable, "-c", launcher], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert psutil.pid_exists(pid)
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not psutil.pid_exists(pid))
