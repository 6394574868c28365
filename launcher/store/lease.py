"""Whose turn it is to train into an output folder: that of one gang at a time, whatever job it is of.

    output/.launcher/.leases/<number>       the lease: who holds it; its time is the holder's last word
    output/.launcher/.leases/<number>.over  in how many seconds nothing of that gang runs any more

The latest number counts, and is taken by link(2). All times are the volume's own, since the clocks of nodes differ.
Everything here blocks as long as the volume does: call it off the loop.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from launcher.base import files
from launcher.base.aio import run_in_thread, wait_within
from launcher.base.files import FromVolume
from launcher.errors import Exit, Failure
from launcher.model import Cause, CauseKind

log = logging.getLogger(__name__)

_NO_TIMES = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_ANSWERS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)  # of a volume that is there
_ENDS_WITHIN = 300.0  # where the lease cannot be read

_SAY_EVERY = 30.0
_LOOK_EVERY = 1.0
_MOST_EVERY = 5.0
_WORDS_MISSED = 2  # at least, before somebody who says nothing counts as gone, whatever the volume's clock says


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


class LeaseHolder:
    """`me` is the gang, another one each time its hub has gathered again. `lost` is told why, once for each `begin`."""

    def __init__(
        self,
        leases: LeaseFiles,
        *,
        silence: float,
        patience: float,
        from_volume: FromVolume,
        lost: Callable[[Cause], None],
    ) -> None:
        self._leases = leases
        self.me = LeaseOwner("", "", "", "", 0.0)
        self._silence = silence
        self._every = min(_MOST_EVERY, silence / 8)
        self._patience = patience
        self._from_volume = from_volume
        self._lost = lost
        self._number = 0
        self._taking: asyncio.Future[bool] | None = None
        self._speaking: asyncio.Task[None] | None = None

    async def begin(self) -> bool:
        """Once no other gang trains here; whether that is only now. Failure, when that takes too long."""
        if self._speaking is not None and not self._speaking.done():
            return False
        seen, seen_at, said_at = None, 0.0, -_SAY_EVERY
        until = time.monotonic() + self._patience
        while True:
            asked_at = time.monotonic()
            lease = await self._from_volume(self._leases.latest)
            if lease is None or (lease.number, lease.word) != seen:
                seen, seen_at = lease and (lease.number, lease.word), asked_at
            if lease is None or self._is_over(lease, asked_at - seen_at):
                number = 0 if lease is None else lease.number + 1
                take = self._from_volume(partial(self._leases.take, number, self.me))
                self._taking = asyncio.ensure_future(take)
                if await asyncio.shield(self._taking):  # it is ours also where nobody waits for that any more
                    self._number = number
                    self._speaking = asyncio.create_task(self._speak(asked_at))
                    return True
            elif asked_at >= until:
                raise Failure(Exit.TIMED_OUT, f"waited {self._patience:g} s (LAUNCHER_PEER_TIMEOUT) {self._for(lease)}")
            elif asked_at - said_at >= _SAY_EVERY:
                log.info(f"waiting {self._for(lease)}")
                said_at = asked_at
            await asyncio.sleep(min(_LOOK_EVERY, self._every))

    async def leave(self) -> None:
        """Say nothing more: unless the lease is ended, whoever comes waits until all must have ended."""
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None
        if self._taking is not None:
            await asyncio.wait([self._taking])

    def _is_over(self, lease: Lease, watched: float) -> bool:
        """As was said; or this very gang has it, or a container of this pod had; or it is silent."""
        same_pod = not lease.over and self.me.uid != "" and lease.holder.uid == self.me.uid
        if lease.holder.gang == self.me.gang or same_pod:
            return True
        if not lease.over and watched < _WORDS_MISSED * self._every:
            return False
        return max(lease.age, watched) >= lease.ends_within

    async def _speak(self, heard_at: float) -> None:
        """As long as this gang lives. `heard_at`: when what the volume has answered last was asked."""
        while True:
            await asyncio.sleep(self._every)
            asked_at = time.monotonic()
            left = max(heard_at + self._silence - asked_at, self._every)  # who was stopped himself asks at least once
            why = ""
            try:
                if not await wait_within(run_in_thread(self._leases.speak, self._number, self.me), left):
                    self._lost(self._cause(CauseKind.TAKEN_OVER, await self._who_has_it()))
                    return
                heard_at = asked_at
            except asyncio.TimeoutError:
                pass
            except Exception as error:  # whatever it is, nobody has heard the word
                why = f": {error}"
            if time.monotonic() - heard_at >= self._silence:
                what = (
                    f"the volume has not answered for {self._silence:g} s (LAUNCHER_SILENCE){why}; another gang may "
                    "begin without this one's word, so this one ends: is the volume's server up?"
                )
                self._lost(self._cause(CauseKind.VOLUME, what))
                return

    async def _who_has_it(self) -> str:
        try:
            lease = await self._from_volume(self._leases.latest)
        except Failure:
            lease = None
        if lease is None or lease.holder.gang == self.me.gang:
            return "a member has lost this hub and said that its gang is over: it ends, since another one may begin"
        holder = lease.holder
        return f"the gang of pod {holder.pod}, job {holder.job}, trains now, since this one was silent: this one ends"

    def _cause(self, kind: CauseKind, what: str) -> Cause:
        return Cause(kind, 0, self.me.pod, what, Exit.IO_FAILED)

    def _for(self, lease: Lease) -> str:
        """What is waited for, and what to do about it."""
        holder = lease.holder
        if lease.over:
            return (
                f"up to {lease.ends_within:g} s for the last processes of the gang of pod {holder.pod}, which is over"
            )
        if holder.job == self.me.job:
            advice = "Was this job submitted twice, or is that pod beyond a cut of the network?"
        else:
            advice = "If that is another job of this JOB_NAME, delete it, or give this one a name of its own."
        return (
            f"for the end of another gang that trains into this folder: its hub is pod {holder.pod} of job "
            f"{holder.job}, heard of {max(lease.age, 0):.0f} s ago. {advice} It counts as gone once nothing was heard "
            f"of it for {lease.ends_within:g} s"
        )
