"""Processes start in a clean state, and no exit code is lost, even if orphans end at the same time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.base import spawn as spawn_module
from launcher.base.aio import run_in_thread
from launcher.base.spawn import is_own_child, reap_orphans, spawn, wait_for_exit
from tests.support import floor
from tests.support.supervising import alive, needs_root, run, silent_volume, until

_STRESS = """
import asyncio, json, os, signal, sys
from launcher.base import spawn as spawn_module
from launcher.base.aio import run_in_thread
from launcher.base.spawn import become_subreaper, reap_orphans, spawn, wait_for_exit

SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGPIPE]

async def one(number):
    orphans = "(sh -c 'exit 9' &) ; (sh -c 'sleep 0.01; exit 8' &) ; "
    if number % 10:
        script, expected = f"{orphans} exit {number % 256}", number % 256
    else:
        end = SIGNALS[number // 10 % len(SIGNALS)]
        script, expected = f"{orphans} kill -{end.value} $$", 128 + end.value
    child = await run_in_thread(lambda: spawn(["/bin/sh", "-c", script], env={"PATH": os.defpath}))
    code = await wait_for_exit(child)
    return None if code == expected else (number, code)

async def many(first):
    return [await one(number) for number in range(first, 264, 8)]

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_orphans)
    wrong = [w for found in await asyncio.gather(*map(many, range(8))) for w in found if w]
    while True:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            break  # all orphans were reaped
        await asyncio.sleep(0.01)
    print(json.dumps(wrong))

become_subreaper()
asyncio.run(main())
"""


def _drive(script: str, *arguments: str, **options: object) -> str:
    driver = [sys.executable, "-c", script, *arguments]
    return subprocess.run(driver, check=True, text=True, stdout=subprocess.PIPE, timeout=30, **options).stdout  # type: ignore[call-overload, no-any-return]


def test_no_exit_code_is_lost_while_hundreds_of_orphans_are_reaped() -> None:
    assert json.loads(_drive(_STRESS)) == []


def test_a_dead_child_without_a_waiter_does_not_block_the_reaper_and_its_code_is_kept() -> None:
    async def test() -> None:
        child = spawn(["/bin/sh", "-c", "exit 3"], env={})
        orphan_maker = spawn(["/bin/sh", "-c", "sleep 0.1 & echo $!"], env={"PATH": os.defpath}, stdout=subprocess.PIPE)
        assert orphan_maker.stdout is not None
        with orphan_maker.stdout:
            orphan = int(orphan_maker.stdout.readline())
        assert await wait_for_exit(orphan_maker) == 0
        await until(lambda: not Path(f"/proc/{orphan}").exists())
        assert not is_own_child(child.pid)
        assert await wait_for_exit(child) == 3

    run(test())


def test_a_child_during_its_fork_is_never_treated_as_an_orphan() -> None:
    async def test() -> None:
        async def reap_without_rest() -> None:
            while True:
                reap_orphans()
                await asyncio.sleep(0)

        reaping = asyncio.ensure_future(reap_without_rest())
        children = [await run_in_thread(lambda: spawn(["/bin/false"], env={})) for _ in range(100)]
        assert {await wait_for_exit(child) for child in children} == {1}
        reaping.cancel()

    run(test())


def test_a_death_during_the_fork_of_another_child_is_seen() -> None:
    async def test() -> None:
        child = spawn(["/bin/sleep", "1000"], env={})
        waiting = asyncio.ensure_future(wait_for_exit(child))
        await asyncio.sleep(0)
        spawn_module._forking.add(-1)
        try:
            os.kill(child.pid, signal.SIGKILL)
            assert await asyncio.wait_for(waiting, 8) == 137
        finally:
            spawn_module._forking.discard(-1)

    run(test())


def test_several_waiters_get_the_same_exit_code() -> None:
    async def test() -> None:
        child = spawn(["/bin/sh", "-c", "sleep 0.1; exit 3"], env={"PATH": os.defpath})
        cancelled = asyncio.ensure_future(wait_for_exit(child))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await asyncio.gather(*(wait_for_exit(child) for _ in range(3))) == [3, 3, 3]
        assert await wait_for_exit(child) == 3

    run(test())


_SANDBOX = """
import asyncio, os, signal, sys
from launcher.base.spawn import handle_ignored_signals, spawn, wait_for_exit

for call in (lambda: os.pidfd_open(os.getpid()), lambda: os.eventfd(0)):
    try:
        call()
    except OSError:
        continue
    sys.exit("the system call is allowed")

async def main():
    handle_ignored_signals()
    children = [spawn(["/bin/sh", "-c", f"sleep 0.{number}; exit {number}"], env=os.environ) for number in range(9)]
    print(await asyncio.gather(*map(wait_for_exit, children)), len(os.listdir("/proc/self/fd")) < 12)

asyncio.run(main())
"""


@pytest.mark.skipif(not floor.supports("deny"), reason="the numbers of the system calls are not known here")
@pytest.mark.parametrize("is_blocked", [False, True])
def test_exit_codes_arrive_where_pidfds_are_denied_even_if_the_parent_blocked_sigchld(is_blocked: bool) -> None:
    def block() -> None:
        if is_blocked:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])

    driver = [sys.executable, *floor.command("deny=pidfd_open,eventfd2"), "-c", _SANDBOX]
    done = subprocess.run(driver, capture_output=True, text=True, timeout=30, preexec_fn=block)
    assert (done.stdout, done.stderr) == (f"{list(range(9))} True\n", "")


def test_children_have_all_signals_unblocked_and_at_their_defaults() -> None:
    script = """
import os, signal, subprocess
from launcher.base.spawn import handle_ignored_signals, spawn
handle_ignored_signals()
spawn(["/bin/grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], env={}).wait()
"""

    def hostile() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR2])

    masks = dict(line.split(":\t") for line in _drive(script, preexec_fn=hostile).splitlines())
    of_the_c_library = 1 << 31 | 1 << 32  # signals 32 and 33: posix_spawn, and so `make`, leaves them ignored
    assert {name: int(mask, 16) & ~of_the_c_library for name, mask in masks.items()} == {"SigBlk": 0, "SigIgn": 0}


def test_children_inherit_no_descriptors() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    try:
        child = spawn(["/bin/ls", "/proc/self/fd"], env={}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        listed, _ = child.communicate(timeout=10)
    finally:
        os.close(reading)
        os.close(writing)
    assert listed.split() == [b"0", b"1", b"2", b"3"]  # the last is the folder that ls reads


_STALLED_START = """
import asyncio, os, signal, sys
from launcher.base import spawn as spawn_module
from launcher.base.aio import run_in_thread
from launcher.base.spawn import reap_orphans, spawn, wait_for_exit

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_orphans)
    forked = asyncio.get_running_loop().create_future()
    tell = lambda pid: forked.get_loop().call_soon_threadsafe(forked.set_result, pid)
    starting = run_in_thread(lambda: spawn([sys.argv[1] + "/program"], env={}, forked=tell))
    pid = await forked
    other = await run_in_thread(lambda: spawn(["/bin/true"], env={}))
    code = await wait_for_exit(other)  # the reaper is at work though the first still starts
    print(starting.done(), code, flush=True)
    os.kill(pid, signal.SIGKILL)
    await starting

asyncio.run(main())
"""


@needs_root
def test_a_program_on_a_stalled_volume_blocks_neither_the_loop_nor_other_starts(tmp_path: Path) -> None:
    with silent_volume(tmp_path / "volume") as volume:
        assert _drive(_STALLED_START, str(volume)) == "False 0\n"


def test_a_failed_start_leaves_no_process_and_no_descriptor() -> None:
    async def test() -> None:
        pids: list[int] = []
        with pytest.raises(FileNotFoundError, match="/no/such/program"):
            await run_in_thread(lambda: spawn(["/no/such/program"], env={}, forked=pids.append))
        assert not alive(pids[0])
        assert not is_own_child(pids[0])

    run(test())
