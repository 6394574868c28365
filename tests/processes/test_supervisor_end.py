"""The supervisor ends all processes of a member, and leaves no process behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from launcher.base.spawn import spawn, wait_for_exit
from tests.support.supervised import Watched, pids, watch
from tests.support.supervising import alive, needs_root, program, shell, silent_volume, until

LONG = 60.0


def test_a_requested_end_causes_no_event(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"echo up; sleep {w.nap}"))
        await until(lambda: "up" in w.log())
        assert await w.supervisor.end(LONG) == []
        assert not pids("sleep", w.nap)

    assert watch(tmp_path, test).events == []


def test_a_requested_kill_causes_no_event(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell("echo up; exec sleep 1000"))
        await until(lambda: "up" in w.log())
        w.supervisor.start(shell(f"exec sleep {w.nap}"))
        w.supervisor.kill()
        w.supervisor.start(shell("exit 3"))
        await until(w.deaths)  # if the earlier one had been started, it would run by now
        assert not pids("sleep", w.nap)

    assert [death.code for death in watch(tmp_path, test).deaths()] == [3]


def test_only_the_given_role_is_ended(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"echo up; exec sleep {w.nap}", log="a.log"))
        w.supervisor.start(shell(f"echo up; exec sleep {w.nap}1", role="pserver", log="b.log"))
        await until(lambda: "up" in w.log("a.log") and "up" in w.log("b.log"))
        assert await w.supervisor.end(LONG, role="trainer") == []
        assert not pids("sleep", w.nap)
        assert pids("sleep", f"{w.nap}1")

    assert watch(tmp_path, test).events == []


def test_kill_ends_processes_that_ignore_sigterm_while_end_waits(tmp_path: Path) -> None:
    ignoring = "trap '' TERM; echo up; while :; do sleep 0.05; done"

    async def test(w: Watched) -> None:
        w.supervisor.start(shell(ignoring))
        await until(lambda: "up" in w.log())
        ending = asyncio.ensure_future(w.supervisor.end(LONG))
        await asyncio.sleep(0)
        w.supervisor.kill()
        assert await ending == []

    watch(tmp_path, test)


def test_an_end_right_after_the_start_leaves_no_process(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        for steps in reversed(range(4)):
            w.supervisor.start(shell(f"sleep {w.nap}", log=f"{steps}.log"))
            for _ in range(steps):
                await asyncio.sleep(0)
            assert await w.supervisor.end(LONG) == []
        w.supervisor.start(shell("exit 0"))
        await until(w.deaths)  # if one of the others had been started late, it would run by now
        assert not pids("sleep", w.nap)

    assert len(watch(tmp_path, test).events) == 1


@needs_root
def test_an_end_returns_in_time_while_the_program_is_loading(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        with silent_volume(tmp_path / "volume") as volume:
            w.supervisor.start(program(str(volume / "program")))
            await until(lambda: pids_forked_by_us())
            assert await w.supervisor.end(0.1) == []

    assert watch(tmp_path, test).events == []


def test_the_rest_of_a_group_ends_with_its_first_process(tmp_path: Path) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"trap '' TERM; sh -c 'while :; do sleep 0.05; done' {w.nap} & exit 0"))
        await until(w.deaths)
        assert w.deaths()[0].code == 0
        await until(lambda: not pids(w.nap))

    watch(tmp_path, test)


def test_children_of_a_wrapper_have_the_whole_grace_to_end(tmp_path: Path) -> None:
    saving = "trap 'echo signalled' TERM; echo up; while [ ! -e may-end ]; do sleep 0.05; done; echo saved"

    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f'sh -c "{saving}" & wait', cwd=str(tmp_path)))
        await until(lambda: "up" in w.log())
        ending = asyncio.ensure_future(w.supervisor.end(LONG))
        await until(lambda: "signalled" in w.log())
        await asyncio.sleep(1.5)  # longer than the grace after a first process that ended by itself
        (tmp_path / "may-end").touch()
        assert await ending == []
        await until(lambda: "saved" in w.log())
        assert w.log().count("signalled") == 1

    watch(tmp_path, test)


def test_processes_with_a_session_of_their_own_are_killed_at_the_close(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: Watched) -> None:
        w.supervisor.start(shell(f"setsid sleep {w.nap}2 & env -i setsid sleep {w.nap}3 & echo up; wait"))
        await until(lambda: "up" in w.log() and pids("sleep", f"{w.nap}2") and pids("sleep", f"{w.nap}3"))
        other = spawn(["/bin/sleep", "1004"], env={})
        await w.supervisor.end(LONG)
        assert pids("sleep", f"{w.nap}2")
        await w.supervisor.close(5)
        assert not pids("sleep", f"{w.nap}2")
        assert not pids("sleep", f"{w.nap}3"), "it has no tag, but it is an orphan"
        assert alive(other.pid), "other children of the launcher are not killed"
        os.killpg(other.pid, signal.SIGKILL)
        await wait_for_exit(other)

    watch(tmp_path, test)
    assert "killed 2 processes that the children had left behind" in caplog.messages


def pids_forked_by_us() -> list[int]:
    """Return the children of this process."""
    return [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[1] == str(os.getpid())
    ]
