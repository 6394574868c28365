"""Whose turn it is to train into an output folder: that of one gang at a time, whatever job it is of.

    output/.launcher/.leases/<number>       the lease: who holds it; its time is the holder's last word
    output/.launcher/.leases/<number>.over  in how many seconds nothing of that gang runs any more

The latest number counts, and is taken by link(2). All times are the volume's own, since the clocks of nodes differ.
Everything here blocks as long as the volume does: call it off the loop.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass

from launcher.base import files

_NO_TIMES = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_ANSWERS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)  # of a volume that is there
_ENDS_WITHIN = 300.0  # where the lease cannot be read


@dataclass(frozen=True)
class LeaseOwner:
    """A gang, and the pod of its hub. `ends_within`: from its last word to the end of its last process."""

    gang: str
    job: str
    pod: str
    uid: str
    ends_within: float


@dataclass(frozen=True)
class Lease:
    """What is seen of the latest one: its last word, or that it is over, and for how long it holds after that."""

    number: int
    holder: LeaseOwner
    over: bool
    word: int
    age: float
    ends_within: float


class LeaseFiles:
    """Those of one output folder."""

    def __init__(self, output: str) -> None:
        self._folder = os.path.join(output, ".launcher", ".leases")

    def latest(self) -> Lease | None:
        """None: nobody has ever had one."""
        number = self._last()
        if number is None:
            return None
        path = self._path(number)
        try:
            text, word = _open(path)
            holder = _holder(text)
            ends_within = holder.ends_within
            if over := files.exists(f"{path}.over"):
                text, word = _open(f"{path}.over")
                ends_within = _seconds(text, ends_within)
            return Lease(number, holder, over, word, (self._now() - word) / 1e9, ends_within)
        except OSError as error:
            raise files.cannot_read(path, error) from None

    def take(self, number: int, me: LeaseOwner) -> bool:
        """Whether it is ours. Each number can be had once."""
        files.make_folder(self._folder)
        mine = json.dumps(asdict(me)).encode()
        return files.create_once(self._path(number), mine) == mine

    def speak(self, number: int, me: LeaseOwner) -> bool:
        """Say that the holder lives. False: somebody else has a later lease, or has ended this one."""
        path = self._path(number)
        try:
            _touch(path)
        except FileNotFoundError:  # somebody has cleaned up
            self.take(number, me)
        except OSError as error:
            if error.errno not in _ANSWERS:
                raise files.cannot_write(path, error) from None
        return (self._last() or number) <= number and not files.exists(f"{path}.over")

    def end(self, gang: str, within: float) -> None:
        """Nothing runs any more of this gang so many seconds from now on, if it is the latest."""
        lease = self.latest()
        if lease and lease.holder.gang == gang and not lease.over:
            files.create_once(f"{self._path(lease.number)}.over", f"{within:.1f}\n".encode())

    def _now(self) -> int:
        """By the volume's clock; the beginning of time, where it does not tell that."""
        try:
            os.utime(self._folder)
        except OSError:
            return 0
        return os.stat(self._folder).st_mtime_ns

    def _last(self) -> int | None:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.cannot_read(self._folder, error) from None
        number = max((int(name) for name in names if name.isdecimal()), default=None)
        while number is not None and files.exists(self._path(number + 1)):  # a network volume may list what was
            number += 1
        return number

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, str(number))


def _open(path: str) -> tuple[str, int]:
    """Its content and its time. Opened, since a network volume only then asks its server."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime_ns


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError as error:
        if error.errno not in _NO_TIMES:
            raise
        with open(path, "r+b") as file:
            content = file.read()
            file.seek(0)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


def _holder(text: str) -> LeaseOwner:
    """What another version has written, or a loss of power has spoiled, is somebody's all the same."""
    try:
        told = json.loads(text)
        gang, job, pod, uid = (str(told[name]) for name in ("gang", "job", "pod", "uid"))
        return LeaseOwner(gang, job, pod, uid, float(told["ends_within"]))
    except (ValueError, TypeError, KeyError):
        return LeaseOwner("", "unknown", "unknown", "", _ENDS_WITHIN)


def _seconds(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise
