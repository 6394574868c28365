"""Why a file cannot be read or written, in words, with what to do."""

from __future__ import annotations

import errno
import os
import stat
import traceback

from launcher.base import shortage
from launcher.base.entries import TooLarge, WrongKind
from launcher.errors import Exit, Failure

_GROUPS = 8  # of this process, in a message
_NO_PERMISSION = "this process needs permission to write to this path (runAsUser, fsGroup)"
_STEP = 'docs/kubernetes.md, "Let the pods write to the volume", says how to grant it'
_ADVICE = {
    errno.ENOSPC: "free some space on the volume, or use a larger volume",
    errno.EDQUOT: "the quota is used up: free some space, or get a larger quota",
    errno.EEXIST: "a file with this name exists: remove or rename the file, or choose another path",
    errno.ENOTDIR: "a part of this path is a file: remove or rename the file, or choose another path",
    errno.EROFS: "the file system is mounted read-only: make the mount writable",
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
}


def printable(path: str | bytes) -> str:
    """Return the path as text for messages, with unprintable characters escaped."""
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:  # a text from a file, which is no path
        data = str(path).encode("utf-8", "backslashreplace")
    text = data.decode("utf-8", "backslashreplace")
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def cannot_write(path: str | bytes, error: OSError) -> Failure:
    """Return the failure for a failed write: CANNOT_WRITE if writing is refused or no space is left, else IO_FAILED."""
    if why := shortage.explain(error):
        return Failure(Exit.IO_FAILED, f"cannot write {printable(path)}: {why}")
    if isinstance(error, WrongKind):
        return _wrong_kind(Exit.CANNOT_WRITE, error)
    if isinstance(error, FileNotFoundError):
        return _disappeared(path, "written")
    if isinstance(error, TooLarge):
        return unusable(path, str(error.strerror), "remove this file")
    words = os.strerror(error.errno) if error.errno else str(error)
    advice = _ADVICE.get(error.errno or 0)
    if advice:
        who = f"{_who_may(path, os.W_OK)}. {_STEP}" if isinstance(error, PermissionError) else ""
        return Failure(Exit.CANNOT_WRITE, f"cannot write {printable(path)}: {words}: {advice}{who}")
    return Failure(Exit.IO_FAILED, f"writing {printable(path)} failed: {words}: check the volume of this path")


def describe_error(path: str, error: Exception) -> str:
    """Return why a thread could not write a file. The thread continues after any error. Call it in the handler."""
    if isinstance(error, Failure):
        return error.message
    why = shortage.explain(error) or f"a fault of the launcher itself, please report it:\n{traceback.format_exc()}"
    return f"cannot write {path}: {why}"


def cannot_read(path: str | bytes, error: OSError) -> Failure:
    """Return the failure for a failed read."""
    if isinstance(error, WrongKind):
        return _wrong_kind(Exit.IO_FAILED, error)
    if isinstance(error, TooLarge):
        return unusable(path, str(error.strerror), "remove this file")
    if isinstance(error, FileNotFoundError):
        return _disappeared(path, "read")
    if why := shortage.explain(error):
        return Failure(Exit.IO_FAILED, f"cannot read {printable(path)}: {why}")
    advice = "check the volume of this path"
    if isinstance(error, PermissionError):
        advice = f"this process needs permission to read this path (runAsUser, fsGroup){_who_may(path, os.R_OK)}"
    words = os.strerror(error.errno) if error.errno else str(error)
    return Failure(Exit.IO_FAILED, f"cannot read {printable(path)}: {words}: {advice}")


def _who_may(path: str | bytes, access: int) -> str:
    """Return the owner of the entry that refuses this access, and the user of this process, for a message; or "".

    Look at the deepest entry that exists, and at its folder: the entry may have to be replaced.
    """
    try:
        return _refusing(path, access)
    except OSError:
        return ""  # the entry has changed meanwhile


def _refusing(path: str | bytes, access: int) -> str:
    place = os.path.abspath(path)
    while not os.path.exists(place):  # it is missing, or its folder refuses access
        place = os.path.dirname(place)
    for refusing in (place, os.path.dirname(place)):
        found = os.stat(refusing)
        wanted = access | os.X_OK if stat.S_ISDIR(found.st_mode) else access
        if not os.access(refusing, wanted, effective_ids=True):
            break
    else:
        return ""
    groups = ", ".join(map(str, sorted({os.getegid(), *os.getgroups()})[:_GROUPS]))
    return (
        f": {printable(refusing)} belongs to user {found.st_uid} and group {found.st_gid}, with mode "
        f"{stat.S_IMODE(found.st_mode):04o}, and this process is user {os.geteuid()} of group {groups}"
    )


def unusable(path: str | bytes, why: str, advice: str) -> Failure:
    """Return the failure for a file with content that no launcher of this version writes."""
    return Failure(Exit.IO_FAILED, f"{printable(path)} cannot be used: {why}: {advice}")


def _disappeared(path: str | bytes, done: str) -> Failure:
    text = f"{printable(path)} disappeared while it was {done}: does another process remove files there?"
    return Failure(Exit.IO_FAILED, text)


def _wrong_kind(code: Exit, error: WrongKind) -> Failure:
    advice = "the launcher follows no link here, since another user may have made it: remove it"
    return Failure(code, f"{printable(error.path)} {error.what}: {advice}")
