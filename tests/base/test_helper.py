"""Heavy work in a child: its messages arrive, its exit code is known, and it never outlives its parent."""

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
def helper(tmp_path: Path) -> Callable[[str], Helper]:
    """Make a helper that runs this code, which can use `asked` and `answers`."""

    def make(code: str) -> Helper:
        head = "import os, sys, time\nfrom launcher.base.helper_child import Answers, read_request\n"
        (tmp_path / "errand.py").write_text(f"{head}asked, answers = read_request(), Answers()\n{code}\n")
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{REPOSITORY}:{tmp_path}"}
        return Helper("errand", {"number": 7}, env)

    return make


def messages_of(helper: Helper) -> list[dict[str, Any]]:
    async def hear() -> list[dict[str, Any]]:
        try:
            return [message async for message in helper.messages()]
        finally:
            await helper.close()

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
    helper = Helper("json.tool", {}, {"PYTHONHOME": "/nowhere"})
    try:
        print([message async for message in helper.messages()], helper.last_error_line())
    finally:
        await helper.close()

asyncio.run(hear())
"""


def test_children_of_an_isolated_launcher_ignore_pythons_variables_too() -> None:
    asking = [sys.executable, "-I", "-c", _ISOLATED, str(REPOSITORY)]
    assert subprocess.run(asking, capture_output=True, text=True, timeout=60).stdout == "[{}] \n"


def test_a_request_is_answered_by_messages_and_the_exit_code_is_known(helper: Make) -> None:
    asking = helper("print('noise')\nanswers.send({'twice': asked['number'] * 2})\nanswers.send({})\nsys.exit(3)")
    assert messages_of(asking) == [{"twice": 14}, {}]
    assert asking.exit_code == 3


def test_a_users_module_in_the_current_directory_does_not_replace_a_standard_one(
    helper: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    (users / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(users)
    assert messages_of(helper("answers.send({'fine': True})")) == [{"fine": True}]


def test_a_crash_leaves_its_last_error_line(helper: Make) -> None:
    asking = helper("print('x' * 100_000, file=sys.stderr)\nraise ValueError('the reason')")
    assert messages_of(asking) == []
    assert (asking.exit_code, asking.last_error_line()) == (1, "ValueError: the reason")


def test_a_message_that_a_kill_truncates_is_dropped(helper: Make) -> None:
    asking = helper("answers.send({'a': 1})\nos.write(answers._out, b'{\"b\"')\nos.kill(os.getpid(), 9)")
    assert messages_of(asking) == [{"a": 1}]
    assert asking.exit_code == 137


def test_a_large_message_arrives_completely(helper: Make) -> None:
    assert messages_of(helper("answers.send({'text': 'x' * 1_000_000})")) == [{"text": "x" * 1_000_000}]


def test_close_ends_the_child_and_its_processes(helper: Make) -> None:
    start = "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
    asking = helper(start + "answers.send({'pids': [os.getpid(), child.pid]})\nchild.wait()")

    async def test() -> list[int]:
        async for message in asking.messages():
            await asking.close()
            return list(message["pids"])
        return []

    pids = asyncio.run(test())
    assert len(pids) == 2
    until(lambda: not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids))


def test_a_helper_whose_start_is_cancelled_can_still_be_closed(helper: Make) -> None:
    asking = helper("time.sleep(600)")

    async def test() -> None:
        starting = asyncio.create_task(asking.start())
        await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        await asking.close()

    asyncio.run(test())
    assert asking.exit_code == 137


def test_the_child_does_not_outlive_a_killed_launcher(helper: Make, tmp_path: Path) -> None:
    helper("answers.send({'pid': os.getpid()})\ntime.sleep(600)")
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
