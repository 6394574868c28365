"""One child: its exit code, and the end of its process group, even if the group ignores signals."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.model import Process
from launcher.processes import child as child_module
from launcher.processes.child import Child, StartFailed
from tests.support.supervising import (
    alive,
    freezing_volume,
    needs_root,
    program,
    python,
    run,
    shell,
    silent_volume,
    until,
)

LONG = 60.0


class Started:
    """A child that writes to a pipe."""

    def __init__(self, process: Process) -> None:
        self.child = Child(process, process.env, lambda _: None)
        self._pipe, self.output = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe, False)
        self._read = b""

    def has_printed(self, word: str) -> bool:
        try:
            self._read += os.read(self._pipe, 65536)
        except BlockingIOError:
            pass
        return word in self.text()

    def text(self) -> str:
        return self._read.decode()

    def close(self) -> None:
        os.close(self._pipe)


async def start(process: Process, word: str = "") -> Started:
    """Start a child and wait until it has printed `word`."""
    started = Started(process)
    await started.child.start(started.output, started.output)
    await until(lambda: started.has_printed(word))
    return started


@pytest.mark.parametrize("code", [0, 1, 3, 69, 127, 134, 143, 255])
def test_the_exit_code_is_the_childs(code: int) -> None:
    async def test() -> None:
        child = (await start(shell(f"exit {code}"))).child
        assert (await child.death()).code == code

    run(test())


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGSEGV, signal.SIGPIPE, signal.SIGKILL])
def test_a_signal_has_the_exit_code_of_a_shell(number: signal.Signals) -> None:
    async def test() -> None:
        before = time.monotonic()
        child = (await start(shell(f"kill -{number.value} $$"))).child
        death = await child.death()
        assert death.code == 128 + number
        assert before < death.at <= time.monotonic()

    run(test())


def test_arguments_are_passed_unchanged_and_standard_input_is_empty() -> None:
    async def test() -> None:
        hostile = "a b;\"'$(touch x) *"
        started = await start(python("import sys; print(sys.argv[1], sys.stdin.read() == '')", hostile), "True")
        assert started.text() == f"{hostile} True\n"
        await started.child.death()

    run(test())


def test_a_group_has_ended_only_when_the_child_of_a_wrapper_has_ended() -> None:
    wrapper = "(trap 'sleep 0.3; exit' TERM; echo child up; while :; do sleep 0.05; done) & wait"

    async def test() -> None:
        child = (await start(shell(wrapper), "up")).child
        assert child.pid is not None
        ending = asyncio.ensure_future(child.end(LONG))
        assert (await child.death()).code == 143
        assert not ending.done(), "the child of the wrapper still lives"
        assert await ending
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)

    run(test())


def test_a_group_that_ignores_sigterm_is_killed_at_the_end_of_the_grace() -> None:
    ignoring = "trap '' TERM; (echo up; while :; do sleep 0.05; done) & while :; do sleep 0.05; done"

    async def test() -> None:
        child = (await start(shell(ignoring), "up")).child
        before = time.monotonic()
        assert await child.end(0.3)
        assert time.monotonic() - before >= 0.3
        assert (await child.death()).code == 137

    run(test())


def test_kill_ends_a_child_that_ignores_sigterm_during_its_grace() -> None:
    async def test() -> None:
        child = (await start(shell("trap '' TERM; echo up; while :; do sleep 0.05; done"), "up")).child
        ending = asyncio.ensure_future(child.end(LONG))
        await asyncio.sleep(0)
        child.kill()
        assert await ending
        assert (await child.death()).code == 137

    run(test())


def test_a_child_stopped_by_sigstop_handles_sigterm() -> None:
    async def test() -> None:
        child = (
            await start(shell("trap 'exit 5' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done"), "up")
        ).child
        assert await child.end(LONG)
        assert (await child.death()).code == 5

    run(test())


def test_the_death_of_the_first_process_is_known_while_the_rest_of_its_group_lives() -> None:
    async def test() -> None:
        started = await start(shell("sleep 100 & echo rest $!; exit 3"), "rest")
        assert (await started.child.death()).code == 3
        rest = int(started.text().split()[-1])
        assert alive(rest)
        assert await started.child.end(LONG)
        assert not alive(rest)

    run(test())


def test_zombies_without_a_parent_that_reaps_do_not_delay_the_end() -> None:
    script = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)          # a zombie in the group of the first process
    os.setsid()              # its parent is in another group, and does not reap
    print("outsider", os.getpid(), flush=True)
    time.sleep(100)
time.sleep(100)
"""

    async def test() -> None:
        started = await start(python(script), "outsider")
        assert await started.child.end(LONG)
        os.kill(int(started.text().split()[-1]), signal.SIGKILL)

    run(test())


def test_a_group_gets_no_signal_after_its_end_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        child = (await start(shell("exit 0"))).child
        await child.death()
        assert await child.end(LONG)
        monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("another process may have this number"))
        child.kill()
        assert await child.end(0)

    run(test())


@pytest.mark.parametrize("how", [lambda child: child.kill(), lambda child: None], ids=["kill", "end of the grace"])
@needs_root
@pytest.mark.parametrize("stalled", ["program", "work directory"])
def test_a_child_that_cannot_start_because_of_a_stalled_volume_is_ended(
    tmp_path: Path, how: Callable[[Child], None], stalled: str
) -> None:
    async def test(volume: Path) -> None:
        held = str(volume / "held")
        started = Started(program(held) if stalled == "program" else shell("exit 0", cwd=held))
        starting = asyncio.ensure_future(started.child.start(started.output, started.output))
        await until(lambda: started.child.pid)
        ending = asyncio.ensure_future(started.child.end(0.2))
        how(started.child)
        assert await ending
        await starting
        assert (await started.child.death()).code == 137

    with silent_volume(tmp_path / "volume") as volume:
        run(test(volume))


def test_kill_before_the_fork_kills_the_child() -> None:
    async def test() -> None:
        started = Started(shell("sleep 100"))
        starting = asyncio.ensure_future(started.child.start(started.output, started.output))
        started.child.kill()
        await starting
        assert (await started.child.death()).code == 137

    run(test())


@needs_root
def test_a_child_that_is_blocked_in_the_kernel_is_left_behind(tmp_path: Path) -> None:
    async def test() -> None:
        with freezing_volume(tmp_path / "volume") as volume:
            volume.freeze()
            child = (await start(shell(f"trap '' TERM; echo up; echo x > {volume.folder}/file"), "up")).child
            await until(lambda: ") D " in Path(f"/proc/{child.pid}/stat").read_text())
            assert not await child.end(0.1)
            volume.thaw()
            assert (await child.death()).code == 137
            assert await child.end(0)

    run(test())


def test_programs_that_cannot_be_run_are_named_with_the_code_of_a_shell(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    data = tmp_path / "data"
    data.write_bytes(b"\0\0\0\0")
    data.chmod(0o755)

    async def failure(process: Process) -> tuple[int, str]:
        with pytest.raises(StartFailed) as caught:
            await start(process)
        return caught.value.code, caught.value.message

    async def test() -> None:
        code, message = await failure(program("nonesuch", env={"PATH": "/bin:/usr/bin"}))
        assert code == 127
        assert message == "the trainer cannot start: nonesuch was not found on the PATH /bin:/usr/bin"
        code, message = await failure(program(str(tmp_path / "nonesuch")))
        assert code == 127
        assert str(tmp_path / "nonesuch") in message
        assert await failure(program(str(plain))) == (126, f"the trainer cannot start: {plain}: Permission denied")
        assert await failure(program(str(data))) == (126, f"the trainer cannot start: {data}: Exec format error")
        gone = str(tmp_path / "gone")
        code, message = await failure(shell("exit 0", cwd=gone))
        assert code == 126
        assert message == f"the trainer cannot start: its work directory {gone}: No such file or directory"

    run(test())


def test_a_child_for_which_there_was_no_memory_has_nothing_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(child_module, "spawn", fail)

    async def driver() -> bool:
        started = Started(shell("true"))
        with pytest.raises(MemoryError):
            await started.child.start(started.output, started.output)
        ended = await started.child.end(0)
        started.close()
        return ended

    assert run(driver())
