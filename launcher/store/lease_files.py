"""The lease of an output folder: only one gang at a time, of any job, trains into the folder.

    output/.launcher/.leases/<number>       a lease: the content is the holder, the file's time is the last renewal
    output/.launcher/.leases/<number>.over  the lease is released; the content is how many seconds after the release the
                                            gang's last process ends at the latest

On a full volume the second file cannot be written. Then the lease itself is overwritten: `released` is the same number.
The lease with the highest number counts. A gang takes the next number by link(2), so only one gang gets that number.
All times are times of the volume's clock, since the clocks of nodes differ.
"""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import asdict, dataclass
from functools import partial

from launcher.base import entries, file_errors
from launcher.base.entries import WrongKind
from launcher.base.files import Folder
from launcher.errors import Exit, Failure
from launcher.store import json_fields

_NO_TIMES = (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_REFUSALS = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT)  # the volume's server has answered
_ENDS_WITHIN = 300.0  # seconds, for a lease that cannot be used
_LONGEST = 1e10  # seconds
_SIZE_LIMIT = 64 * 1024
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_HIGHEST = 1_000_000_000


@dataclass(frozen=True)
class LeaseOwner:
    """The gang that owns a lease, and its hub's pod. The fields have the same names in the file.

    ends_within: the gang's last process ends at most this many seconds after the last renewal
    address: of the hub of an elastic job, so that new pods find it; else it is not in the file
    """

    gang: str
    job: str
    pod: str
    uid: str
    ends_within: float
    address: str = ""

    def fields(self) -> dict[str, object]:
        """Return the content of the file."""
        return {name: value for name, value in asdict(self).items() if name != "address" or value}


@dataclass(frozen=True)
class Lease:
    """The latest lease of a folder, as read from the volume.

    changed_at: when the lease was last renewed, or was released: nanoseconds by the volume's clock
    age: seconds since `changed_at`
    ends_within: the holder's last process ends at most this many seconds after `changed_at`
    fault: why the content cannot be used, with the file's path; empty if it can be used. The holder is then unknown.
    """

    number: int
    holder: LeaseOwner
    is_released: bool
    changed_at: int
    age: float
    ends_within: float
    fault: str = ""


class LeaseFiles:
    """The leases of one output folder. All methods block while the volume blocks: the event loop must not call them.

    The folder is opened anew for each call, and names are looked up one by one: a list of names that a network volume
    has cached may be a minute old.
    """

    def __init__(self, output: str) -> None:
        self._folder = Folder(output, ".launcher", ".leases")

    def latest(self) -> Lease | None:
        """Return the latest lease, or None if the folder has never had a lease."""
        return self._folder.read_by(self._latest)

    def take(self, number: int, me: LeaseOwner) -> bool:
        """Try to create the lease with this number. Return whether this gang got the lease: only one gang gets it."""
        mine = json.dumps(me.fields()).encode()
        return self._folder.create(str(number), mine, limit=_SIZE_LIMIT) == mine

    def renew(self, number: int, me: LeaseOwner) -> bool:
        """Renew a lease. Return False if this gang has lost it: the lease was released, or another gang has taken one.

        If a user has deleted all leases, create this one again: this gang still trains.
        """
        held = self._folder.read_by(partial(self._renew, number=number, me=me), str(number), file_errors.cannot_write)
        if held is not None:
            return held
        if not self.take(number, me):
            return False
        if self._folder.read_by(partial(_others, number=number)):  # another gang has begun at the same time
            self._folder.remove(str(number))
            return False
        return True

    def release(self, gang: str, within: float) -> None:
        """Release the lease if this gang holds it. `within`: the gang's last process ends within this many seconds.

        A member that has lost its hub assumes a longer time than the hub, which knows when all processes have ended.
        So a later release counts if it is shorter.
        """
        lease = self.latest()
        if lease is None or lease.fault or lease.holder.gang != gang:
            return
        over, data = f"{lease.number}.over", f"{within:.1f}\n".encode()
        if lease.is_released:
            if within < lease.ends_within - lease.age:
                self._folder.write(over, data)
            return
        try:
            self._folder.create(over, data, limit=_SIZE_LIMIT)
        except Failure as failure:
            if failure.code != Exit.CANNOT_WRITE:
                raise
            overwrite = partial(_overwrite, number=lease.number, holder=lease.holder, within=within)
            self._folder.read_by(overwrite, str(lease.number), file_errors.cannot_write)

    def _latest(self, folder: int) -> Lease | None:
        number = _latest_number(folder, self._folder)
        if number is None:
            return None
        holder, released, changed_at, fault = _read(folder, str(number), self._folder)
        over = f"{number}.over"
        if released is None and entries.is_there(folder, over):
            text, changed_at = _content(folder, over, self._folder)
            released = _seconds(text, holder.ends_within)
        ends_within = holder.ends_within if released is None else released
        age = (_now(folder) - changed_at) / 1e9
        return Lease(number, holder, released is not None, changed_at, age, ends_within, fault)

    def _renew(self, folder: int, number: int, me: LeaseOwner) -> bool | None:
        """See `renew`. Return None if there is no lease at all."""
        if not entries.is_there(folder, str(number)):
            return False if _others(folder, number) else None
        path = self._folder.path_of(str(number))
        fd = entries.open_file(folder, str(number), path)
        try:
            holder, released, _ = _parse(os.read(fd, _SIZE_LIMIT))
            if holder.gang != me.gang or released is not None:  # a user has deleted the folder, and another gang began
                return False
            _touch(folder, str(number), path, fd)
        finally:
            os.close(fd)
        latest = _latest_number(folder, self._folder) or 0
        is_taken = latest > number or entries.is_there(folder, str(number + 1))
        return not is_taken and not entries.is_there(folder, f"{number}.over")


def _latest_number(folder: int, leases: Folder) -> int | None:
    numbers = [name for name in os.listdir(folder) if _NUMBER.fullmatch(name)]
    number = max((int(name) for name in numbers if len(name) < 20), default=None)
    while number is not None and entries.is_there(folder, str(number + 1)):  # a network volume may list an old state
        number += 1
    if (number or 0) > _HIGHEST or any(len(name) >= 20 for name in numbers):
        highest = max(numbers, key=lambda name: (len(name), name))
        raise WrongKind(leases.path_of(highest), "is no lease of a launcher: its number is too high")
    return number


def _others(folder: int, number: int) -> list[str]:
    """Return the names of all other leases."""
    return [name for name in os.listdir(folder) if _NUMBER.fullmatch(name) and name != str(number)]


def _read(folder: int, name: str, leases: Folder) -> tuple[LeaseOwner, float | None, int, str]:
    """Return the holder, the limit if the lease is released, the time of the last change, and the fault."""
    data, changed_at = _content(folder, name, leases)
    holder, released, fault = _parse(data)
    return holder, released, changed_at, fault and f"{leases.path_of(name)} cannot be used: {fault}"


def _content(folder: int, name: str, leases: Folder) -> tuple[bytes, int]:
    """Return content and modification time in nanoseconds. The open makes a network volume ask its server."""
    fd = entries.open_file(folder, name, leases.path_of(name))
    try:
        return os.read(fd, _SIZE_LIMIT), os.fstat(fd).st_mtime_ns
    finally:
        os.close(fd)


def _now(folder: int) -> int:
    """Return the time of the volume's clock in nanoseconds, or 0 if the volume cannot set times itself."""
    try:
        os.utime(folder)
    except OSError:
        return 0
    return os.fstat(folder).st_mtime_ns


def _touch(folder: int, name: str, path: str, lease: int) -> None:
    """Set the time of a lease to the time of the volume's clock. `lease`: a descriptor for reading."""
    try:
        os.utime(lease)
    except OSError as error:
        if error.errno in _REFUSALS:
            return
        if error.errno not in _NO_TIMES:
            raise
        fd = entries.open_file(folder, name, path, os.O_RDWR)
        try:
            os.pwrite(fd, os.pread(fd, 1, 0), 0)  # only one byte: a member may release the lease at the same time
            os.fsync(fd)
        finally:
            os.close(fd)


def _overwrite(folder: int, number: int, holder: LeaseOwner, within: float) -> None:
    """Release a lease on a full volume: write into the block that the file has already."""
    fd = entries.open_file(folder, str(number), str(number), os.O_RDWR)
    try:
        if _parse(os.read(fd, _SIZE_LIMIT))[0] == holder:
            data = json.dumps({**holder.fields(), "released": within}).encode()
            os.pwrite(fd, data.ljust(os.fstat(fd).st_size), 0)
            os.fsync(fd)
    finally:
        os.close(fd)


def _parse(data: bytes) -> tuple[LeaseOwner, float | None, str]:
    """Return the holder, the limit if the lease is released, and why the lease cannot be used, or "".

    The holder is unknown if the lease is of another version, was damaged by a power loss, or was changed by a user.
    """
    try:
        told = json_fields.read_object(data)
        gang, job, pod, uid = (json_fields.text(told, name) for name in ("gang", "job", "pod", "uid"))
        address = json_fields.text(told, "address") if "address" in told else ""
        holder = LeaseOwner(gang, job, pod, uid, json_fields.number(told, "ends_within", _LONGEST), address)
        return holder, None if "released" not in told else json_fields.number(told, "released", _LONGEST), ""
    except ValueError as error:
        return LeaseOwner("", "unknown", "unknown", "", _ENDS_WITHIN), None, str(error)


def _seconds(data: bytes, otherwise: float) -> float:
    found = re.fullmatch(rb"([0-9]{1,7}(?:\.[0-9]+)?)\n", data)
    return float(found[1]) if found else otherwise
