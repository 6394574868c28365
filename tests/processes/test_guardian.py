"""A launcher's children do not outlive it, even in other sessions. Its guardian disturbs no other process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.supervising import alive, eventually, needs_root

_DRIVER = """
import asyncio, os, secrets, signal, sys
from launcher.model import Process
from launcher.base.spawn import become_subreaper, reap_orphans
from launcher.processes.guardian import Guardian
from launcher.processes.supervisor import Supervisor

FAMILY = '''
import os, sys, time
def born(name, extra=""):
    with open(f"{sys.argv[1]}/{name}.new", "w") as file:
        file.write(f"{os.getpid()}")
    os.rename(f"{sys.argv[1]}/{name}.new", f"{sys.argv[1]}/{name}")
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            born("great-grandchild-of-another-session")
        else:
            os._exit(0)
    else:
        born("grandchild")
else:
    born("child")
time.sleep(1000)
'''

async def main(folder):
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap_orphans)
    supervisor = Supervisor(print, TAG, guardian)
    supervisor.set_log_folder(folder, "mark")
    supervisor.start(Process("trainer", (sys.executable, "-c", FAMILY, folder), dict(os.environ), "/", "train.log"))
    input_closed = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, input_closed.set)
    await input_closed.wait()
    await supervisor.end(5)
    await supervisor.close(5)

TAG = secrets.token_hex(8)
guardian = None if os.getpid() == 1 else Guardian(TAG)
if guardian:
    print(guardian.pid, flush=True)
become_subreaper()
asyncio.run(main(sys.argv[1]))
if guardian:
    guardian.dismiss()
"""
_FAMILY = ("child", "grandchild", "great-grandchild-of-another-session")


class Launcher:
    """A process that supervises a family of three processes. Each writes its process id to a file."""

    def __init__(self, folder: Path, wrapper: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self.process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", _DRIVER, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def guardian(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def family(self) -> list[int]:
        """Wait until all have started. Return their process ids."""
        eventually(lambda: all((self._folder / name).exists() for name in _FAMILY))
        return [int((self._folder / name).read_text()) for name in _FAMILY]

    def end_normally(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=20)

    def end(self) -> None:
        self.process.kill()
        self.process.stdin = None
        self.process.communicate(timeout=20)


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process with the tag of another launcher."""
    process = subprocess.Popen(["sleep", "1000"], env={"LAUNCHER_TAG": "another", "PATH": os.defpath})
    yield process
    process.kill()
    process.wait()


def test_the_family_of_a_killed_launcher_ends_and_the_guardian_too(
    tmp_path: Path, other_process: subprocess.Popen[bytes]
) -> None:
    launcher = Launcher(tmp_path)
    guardian, family = launcher.guardian(), launcher.family()
    assert all(map(alive, [guardian, *family]))
    launcher.end()
    eventually(lambda: not any(map(alive, [guardian, *family])))
    assert other_process.poll() is None


@needs_root
def test_the_same_holds_for_process_1(tmp_path: Path) -> None:
    namespace = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    launcher = Launcher(tmp_path, wrapper=namespace)
    launcher.family()

    def processes() -> list[int]:
        numbers = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(tmp_path).encode() in (folder / "cmdline").read_bytes():
                    numbers.append(int(folder.name))
            except OSError:
                continue
        return [pid for pid in numbers if alive(pid) and pid != launcher.process.pid]

    pids = processes()
    assert len(pids) == 1 + len(_FAMILY)
    os.kill(min(pids), signal.SIGKILL)  # process 1 of the namespace, which is older than its family
    eventually(lambda: not processes())
    launcher.end()


def test_the_guardian_ends_without_effect_when_the_launcher_ends_normally(
    tmp_path: Path, other_process: subprocess.Popen[bytes]
) -> None:
    launcher = Launcher(tmp_path)
    guardian, family = launcher.guardian(), launcher.family()
    assert launcher.end_normally() == 0
    assert not any(map(alive, family))
    eventually(lambda: not alive(guardian))
    assert other_process.poll() is None
    launcher.end()


def test_a_dismissed_guardian_kills_no_process() -> None:
    script = """
import os, subprocess, sys, time
from launcher.processes.guardian import Guardian
guardian = Guardian("no-child-has-this-tag")
child = subprocess.Popen(["/bin/sleep", "1000"], env={}, start_new_session=True, stdout=subprocess.DEVNULL)
guardian.watch(child.pid)
guardian.dismiss()
print(guardian.pid, child.pid, flush=True)
os.waitpid(guardian.pid, 0)
"""
    output = subprocess.run([sys.executable, "-c", script], check=True, stdout=subprocess.PIPE, timeout=20).stdout
    guardian, child = map(int, output.split())
    assert not alive(guardian)
    assert alive(child)
    os.kill(child, signal.SIGKILL)


def test_the_guardian_keeps_no_file_of_the_launcher_open_and_ignores_sigterm(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    guardian = launcher.guardian()
    eventually(lambda: Path(f"/proc/{guardian}/comm").read_text() == "pl-guardian\n")
    held = {int(entry.name): os.readlink(entry) for entry in Path(f"/proc/{guardian}/fd").iterdir()}
    assert {fd: name for fd, name in held.items() if fd < 3} == dict.fromkeys(range(3), "/dev/null")
    assert list(held)[3:] == [3]
    assert held[3].startswith("pipe:")
    assert os.getsid(guardian) == guardian
    assert os.readlink(f"/proc/{guardian}/cwd") == "/"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(guardian, number)
    family = launcher.family()
    launcher.end()
    eventually(lambda: not any(map(alive, [guardian, *family])))


def test_the_death_of_a_launcher_is_noticed_even_if_another_process_keeps_its_pipe_open(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    guardian, family = launcher.guardian(), launcher.family()
    pipe = os.readlink(f"/proc/{guardian}/fd/3")
    ends = [entry for entry in Path(f"/proc/{launcher.process.pid}/fd").iterdir() if os.readlink(entry) == pipe]
    kept = os.open(ends[0], os.O_WRONLY)
    try:
        launcher.end()
        eventually(lambda: not any(map(alive, [guardian, *family])))
    finally:
        os.close(kept)


def test_a_killed_guardian_does_not_disturb_the_launcher(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    guardian = launcher.guardian()
    os.kill(guardian, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{guardian}").exists())  # the launcher has reaped it
    assert launcher.end_normally() == 0
    launcher.end()


def test_the_guardian_shares_most_of_its_memory_with_the_launcher(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path)
    guardian = launcher.guardian()
    launcher.family()
    rollup = Path(f"/proc/{guardian}/smaps_rollup").read_text()
    private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(("Private_Dirty", "Swap:")))
    launcher.end()
    assert private < 8 * 1024  # KiB, including what the launcher has changed since the fork


def test_sigterm_in_the_launchers_process_group_spares_the_guardian(tmp_path: Path) -> None:
    launcher = Launcher(tmp_path, wrapper=("setsid",))
    guardian, family = launcher.guardian(), launcher.family()
    os.killpg(launcher.process.pid, signal.SIGTERM)
    eventually(lambda: not any(map(alive, [guardian, *family])))
    launcher.end()
