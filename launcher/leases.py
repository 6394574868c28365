"""Whose turn it is to train into an output folder: that of one gang at a time, whatever job it is of.

    output/.launcher/.leases/<number>       the lease: who holds it; its time is the holder's last word
    output/.launcher/.leases/<number>.over  nothing of that gang runs any more

The latest number counts, and is taken by link(2). All times are the volume's own, since the clocks of nodes differ.
Everything here blocks as long as the volume does: call it off the loop.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass

from launcher import volume

_ANSWERS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)  # of a volume that is there
_ENDS_WITHIN = 300.0  # where the lease cannot be read


@dataclass(frozen=True)
class Holder:
    """A gang, and the pod of its hub. `ends_within`: from its last word to the end of its last process."""

    gang: str
    job: str
    pod: str
    uid: str
    ends_within: float


@dataclass(frozen=True)
class Lease:
    """What is seen of the latest one. `age` is that of the last word."""

    number: int
    holder: Holder
    word: int
    age: float
    over: bool


class Leases:
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
            # Opened, since a network volume only then asks its server.
            with open(path, encoding="utf-8", errors="replace") as file:
                word = os.fstat(file.fileno()).st_mtime_ns
                holder = _read(file.read())
            os.utime(self._folder)
            age = (os.stat(self._folder).st_mtime_ns - word) / 1e9
        except OSError as error:
            raise volume.cannot_read(path, error) from None
        return Lease(number, holder, word, age, volume.is_there(f"{path}.over"))

    def take(self, number: int, me: Holder) -> bool:
        """Whether it is ours. Each number can be had once."""
        volume.make_folder(self._folder)
        mine = json.dumps(asdict(me)).encode()
        return volume.create_once(self._path(number), mine) == mine

    def speak(self, number: int, me: Holder) -> bool:
        """Say that the holder lives. False: somebody else has a later lease."""
        try:
            os.utime(self._path(number))
        except FileNotFoundError:  # somebody has cleaned up
            self.take(number, me)
        except OSError as error:
            if error.errno not in _ANSWERS:
                raise volume.cannot_write(self._path(number), error) from None
        return (self._last() or number) <= number

    def end(self, gang: str) -> None:
        """Nothing runs any more of this gang, if it is the latest."""
        lease = self.latest()
        if lease and lease.holder.gang == gang and not lease.over:
            volume.create_once(f"{self._path(lease.number)}.over", b"nothing of this gang runs any more\n")

    def _last(self) -> int | None:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise volume.cannot_read(self._folder, error) from None
        number = max((int(name) for name in names if name.isdecimal()), default=None)
        while number is not None and volume.is_there(self._path(number + 1)):  # a network volume may list what was
            number += 1
        return number

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, str(number))


def _read(text: str) -> Holder:
    """What another version has written, or a loss of power has spoiled, is somebody's all the same."""
    try:
        told = json.loads(text)
        gang, job, pod, uid = (str(told[name]) for name in ("gang", "job", "pod", "uid"))
        return Holder(gang, job, pod, uid, float(told["ends_within"]))
    except (ValueError, TypeError, KeyError):
        return Holder("", "unknown", "unknown", "", _ENDS_WITHIN)
