"""Run code as another user of a volume, and show who may do what with the files there."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from launcher.errors import Exit, Failure

T = TypeVar("T")

TEAM = 54500  # a group that ONE and TWO have in common, as by fsGroup


@dataclass(frozen=True)
class User:
    """A user of the volume. No user has a name on this machine."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o022


ONE = User(54001, 54001, (TEAM,))
TWO = User(54002, 54002, (TEAM,))
STRANGER = User(54003, 54003)
NOBODY = User(65534, 65534)  # the user that root is on a server which does not trust root
ROOT = User(0, 0)


def run_as(user: User, work: Callable[[], T]) -> T:
    """Return the result of the work, which is done by a child process of this user. Raises its Failure or OSError."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        answer: tuple[str, object] = ("broken", "no answer")
        try:
            become(user)
            answer = ("result", work())
        except Failure as failure:
            answer = ("failure", (int(failure.code), failure.message))
        except OSError as error:
            answer = ("error", (error.errno, error.strerror, error.filename))
        except BaseException as error:
            answer = ("broken", repr(error))
        finally:
            with open(writing, "wb") as file:
                pickle.dump(answer, file)
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as file:
        kind, value = pickle.load(file)
    os.waitpid(child, 0)
    if kind == "failure":
        raise Failure(Exit(value[0]), value[1])
    if kind == "error":
        raise OSError(*value)
    assert kind == "result", value
    return value  # type: ignore[no-any-return]


def become(user: User) -> None:
    os.setgroups(user.groups)
    os.setgid(user.gid)
    os.setuid(user.uid)
    os.umask(user.umask)


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder that all users can reach. Other users cannot enter the temporary folders of pytest."""
    made = Path(tempfile.mkdtemp(prefix="volume-", dir="/tmp"))
    made.chmod(0o711)
    try:
        yield made
    finally:
        shutil.rmtree(made)


def below(folder: Path) -> list[Path]:
    """Return all files and folders below a folder."""
    return sorted(folder.rglob("*"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)
