"""Marks on the volume: a member of one role has failed for good, so the other role must not wait for this member.

The marks are in output/.launcher/failed/<identity of the role's pods>/, one file per member. A member that starts again
removes its own mark. All functions block while the volume blocks: the event loop must not call them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from dataclasses import dataclass

from launcher.base import shortage
from launcher.base.files import Folder
from launcher.config import RoleMember
from launcher.errors import Failure
from launcher.model import role_name
from launcher.store.json_fields import plain

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 5.0  # seconds: the volume must not block a member that ends before the launch
_TOGETHER = 600.0  # seconds between the starts of two roles: an image may have to be pulled
_AT_ONCE = 30.0  # seconds between the starts of the pods of one role
_COUNTED = "counted-"
_LONGEST = 64 * 1024  # bytes of a mark


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
        self._folder = Folder(output, ".launcher", "failed")
        self._own = self._folder.below(identity)
        self._me = me
        self._role = me.partition("-")[0]
        self._reported = ""

    def begin(self) -> None:
        """Record when the first pod of this role started. Remove marks that earlier starts of this role have left."""
        self._own.create(f"since-{self._role}", b"since then\n")
        for folder in self._of_all():
            folder.remove(self._me)
        for name in _names(self._own, f"{self._role}-"):
            if time.time() - _changed_at(self._own, name) > _AT_ONCE:
                self._own.remove(name)  # left by an earlier pod of this role, which may have had another name

    def mark(self, why: str) -> None:
        """Mark this member as failed for good: a new start would fail again."""
        self._own.mark(self._me, why.encode(errors="backslashreplace")[:_LONGEST])

    def count(self) -> int:
        """Record that this pod ended with an exit code that its Job counts as a failure.

        Return how many pods of this role have recorded that they failed in this way, including this pod.
        """
        self._own.mark(f"{_COUNTED}{self._me}-{os.urandom(4).hex()}", b"")
        return len(_names(self._own, f"{_COUNTED}{self._role}-"))

    def of(self, identity: str | None, role: str) -> FailureMark | None:
        """Return a mark which says that `role` has failed for good, or None if there is no such mark.

        identity: the identity of the other role's pods. If None, take that role's newest pods, and ignore marks that
            are much older than the pods of this member's own role.
        role: the other role, for which this member would wait
        """
        try:
            return self._find(identity, role)
        except Failure as failure:  # wait on without the marks, until the volume answers or the file is removed
            if failure.message != self._reported:
                log.info(f"cannot check whether the {role_name(role)}s have failed for good: {failure.message}")
            self._reported = failure.message
            return None

    def _find(self, identity: str | None, role: str) -> FailureMark | None:
        folder = self._folder.below(identity) if identity else self._newest(role)
        if folder is None:
            return None
        for name in _names(folder, f"{role}-"):
            age = self._since() - _changed_at(folder, name)
            if identity or age < _TOGETHER:
                why = folder.read(name, limit=_LONGEST)
                if why is not None:  # else the mark was removed meanwhile
                    text = plain(why.decode(errors="backslashreplace"))
                    return FailureMark(f"{text} (see {folder.path_of(name)})", is_old=age > 0)
        return None

    def _since(self) -> float:
        """Return when the first pod of this member's role started (time.time()), or 0 if that was not recorded."""
        return _changed_at(self._own, f"since-{self._role}")

    def _newest(self, role: str) -> Folder | None:
        """Return the folder of the newest pods of this role, or None if no pod of the role has started."""
        begun = {folder: _changed_at(folder, f"since-{role}") for folder in self._of_all()}
        return max((folder for folder in begun if begun[folder]), key=begun.__getitem__, default=None)

    def _of_all(self) -> list[Folder]:
        return [self._folder.below(identity) for identity in self._folder.folders()]


def _names(folder: Folder, prefix: str) -> list[str]:
    return sorted(name for name in folder.names() if name.startswith(prefix))


def _changed_at(folder: Folder, name: str) -> float:
    """Return when the file was last written (time.time()), or 0 if the file is missing."""
    found = folder.stat(name)
    return 0.0 if found is None else found.st_mtime


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
