"""Marks on the volume: a member of one role has failed for good, so the other role must not wait for this member.

The marks are in output/.launcher/failed/<identity of the role's pods>/, one file per member. A member that starts again
removes its own mark. All functions block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.base import files, shortage
from launcher.config import RoleMember
from launcher.errors import Failure

_ANSWER_WITHIN = 5.0  # seconds: the volume must not block a member that ends before the launch
_TOGETHER = 600.0  # seconds between the starts of the two roles: an image may have to be pulled
_AT_ONCE = 30.0  # seconds between the starts of the pods of one role
_COUNTED = "counted-"


@dataclass(frozen=True)
class FailureMark:
    """A mark of a role that has failed for good. `text`: why, and the path of the mark."""

    text: str
    is_old: bool  # the mark is older than the first pod of this member's role


class FailureMarks:
    """The marks of one job.

    identity: the identity of the pods of this member's role
    me: the name of this member's mark, from `mark_name`
    """

    def __init__(self, output: str, identity: str, me: str) -> None:
        self._folder = os.path.join(output, ".launcher", "failed")
        self._identity = identity
        self._me = me
        self._role = me.partition("-")[0]

    def begin(self) -> None:
        """Record when the first pod of this role started. Remove marks that earlier starts of this role have left."""
        files.make_folder(os.path.join(self._folder, self._identity))
        files.create_once(self._beginning(self._identity, self._role), b"since then\n")
        for path in list(self._marks(None, self._me)):
            if os.path.basename(path) == self._me:
                _remove(path)
        for path in list(self._marks(self._identity, f"{self._role}-")):
            if _age(path) > _AT_ONCE:  # left by an earlier pod of this role, which may have had another name
                _remove(path)

    def mark(self, why: str) -> None:
        """Mark this member as failed for good: a new start would fail again."""
        path = os.path.join(self._folder, self._identity, self._me)
        files.write_atomically(path, why.encode(errors="backslashreplace"))

    def count(self) -> int:
        """Record that this pod ended with an exit code that its Job counts as a failure.

        Return how many pods of this role have recorded that they failed in this way, including this pod.
        """
        place = os.path.join(self._folder, self._identity)
        files.write_atomically(os.path.join(place, f"{_COUNTED}{self._me}-{os.urandom(4).hex()}"), b"")
        return sum(name.startswith(f"{_COUNTED}{self._role}-") for name in os.listdir(place))

    def of(self, identity: str | None, role: str) -> FailureMark | None:
        """Return a mark which says that `role` has failed for good, or None if there is no such mark.

        identity: the identity of the other role's pods. If None, take that role's newest pods, and ignore marks that
            are much older than the pods of this member's own role.
        role: the other role, for which this member would wait
        """
        try:
            for path in self._marks(identity or self._newest(role), f"{role}-"):
                age = self._since() - os.path.getmtime(path)
                if identity or age < _TOGETHER:
                    with open(path, encoding="utf-8", errors="backslashreplace") as file:
                        return FailureMark(f"{file.read()} (see {path})", is_old=age > 0)
        except OSError:
            pass  # the mark was removed meanwhile
        return None

    def _since(self) -> float:
        """Return when the first pod of this member's role started (time.time()), or 0 if that was not recorded."""
        try:
            return os.path.getmtime(self._beginning(self._identity, self._role))
        except FileNotFoundError:
            return 0.0

    def _newest(self, role: str) -> str | None:
        """Return the identity of the newest pods of this role, or None if no pod of the role has started."""
        found = [name for name in os.listdir(self._folder) if os.path.exists(self._beginning(name, role))]
        return max(found, key=lambda name: os.path.getmtime(self._beginning(name, role)), default=None)

    def _beginning(self, identity: str, role: str) -> str:
        return os.path.join(self._folder, identity, f"since-{role}")

    def _marks(self, identity: str | None, prefix: str) -> Iterator[str]:
        for folder in [identity] if identity else sorted(os.listdir(self._folder)):
            place = os.path.join(self._folder, folder)
            names = sorted(os.listdir(place)) if os.path.isdir(place) else []
            yield from (os.path.join(place, name) for name in names if name.startswith(prefix))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise files.cannot_write(path, error) from None


def _age(path: str) -> float:
    try:
        return time.time() - os.path.getmtime(path)
    except FileNotFoundError:
        return 0.0


def mark_name(role: str, number: int | None, pod: str) -> str:
    """Return the name of a member's mark. A member with a number keeps this name when it starts again."""
    return f"{role}-{pod if number is None else number}"


def mark_before_launch(member: RoleMember, why: str) -> None:
    """Mark a member that ends before the launch as failed for good. Return if the volume does not answer within 5 s."""
    marks = FailureMarks(member.output, member.job_id, mark_name(member.role, member.number, member.pod))

    def mark() -> None:
        try:
            if os.path.isdir(member.job_path):  # without a volume, the folder would be made in the container
                marks.begin()
                marks.mark(why)
        except (Failure, OSError) as error:
            sys.stderr.write(f"paddle-launcher: cannot tell the other role about this failure: {error}\n")

    marking = threading.Thread(target=mark, daemon=True, name="mark")
    try:
        marking.start()
    except RuntimeError:
        sys.stderr.write(
            f"paddle-launcher: cannot tell the other role about this failure: {shortage.no_thread().message}\n"
        )
        return
    marking.join(_ANSWER_WITHIN)
