"""Signs on the volume that a member of one role has failed for good, so that the other role does not wait for it.

They live in output/.launcher/failed/<identity of the role's pods>/, a file a member, and go when that member starts
again. Everything here blocks as long as the volume does: call it off the loop.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from launcher.base import files
from launcher.config import RoleMember
from launcher.errors import Failure

_ANSWER_WITHIN = 5.0  # seconds: whoever ends before the launch never hangs on the volume
_TOGETHER = 600.0  # seconds: the Jobs of both roles are created together, but an image may have to be pulled
_AT_ONCE = 30.0  # between the starts of the pods of one role
_COUNTED = "counted-"


@dataclass(frozen=True)
class FailureMark:
    """Why a role has failed for good, and where that stands. `before`: it is older than the own role's first pod."""

    text: str
    before: bool


class FailureMarks:
    """What members of one job tell each other by these signs. `me` is `name_of` this one.

    `identity` is that of the own role's pods.
    """

    def __init__(self, output: str, identity: str, me: str) -> None:
        self._folder = os.path.join(output, ".launcher", "failed")
        self._identity = identity
        self._me = me
        self._role = me.partition("-")[0]

    def begin(self) -> None:
        """This member has started, perhaps again: what is left from before does not hold."""
        files.make_folder(os.path.join(self._folder, self._identity))
        files.create_once(self._beginning(self._identity, self._role), b"since then\n")
        for path in list(self._signs(None, self._me)):
            if os.path.basename(path) == self._me:
                self._forget(path)
        for path in list(self._signs(self._identity, f"{self._role}-")):
            if _age(path) > _AT_ONCE:  # of a pod that may have had another name
                self._forget(path)

    def tell(self, why: str) -> None:
        """No new attempt of this member would mend what it ended by."""
        path = os.path.join(self._folder, self._identity, self._me)
        files.write_atomically(path, why.encode(errors="backslashreplace"))

    def counted(self) -> int:
        """This pod has ended so that its Job counts it. How many of this role's have so far."""
        place = os.path.join(self._folder, self._identity)
        files.write_atomically(os.path.join(place, f"{_COUNTED}{self._me}-{os.urandom(4).hex()}"), b"")
        return sum(name.startswith(f"{_COUNTED}{self._role}-") for name in os.listdir(place))

    def of(self, identity: str | None, role: str) -> FailureMark | None:
        """The sign of the role whose pods have this identity, if it has failed for good.

        Where the identity is not known, that of the newest pods of that role counts, unless they are much older.
        """
        try:
            for path in self._signs(identity or self._newest(role), f"{role}-"):
                age = self._since() - os.path.getmtime(path)
                if identity or age < _TOGETHER:
                    with open(path, encoding="utf-8", errors="backslashreplace") as file:
                        return FailureMark(f"{file.read()} (it stands in {path})", before=age > 0)
        except OSError:
            pass  # it was taken back meanwhile
        return None

    def _since(self) -> float:
        """When the first of the own role's pods started."""
        try:
            return os.path.getmtime(self._beginning(self._identity, self._role))
        except FileNotFoundError:
            return 0.0

    def _newest(self, role: str) -> str | None:
        """The identity of the pods of this role that started last."""
        found = [name for name in os.listdir(self._folder) if os.path.exists(self._beginning(name, role))]
        return max(found, key=lambda name: os.path.getmtime(self._beginning(name, role)), default=None)

    def _beginning(self, identity: str, role: str) -> str:
        return os.path.join(self._folder, identity, f"since-{role}")

    def _signs(self, identity: str | None, prefix: str) -> Iterator[str]:
        for folder in [identity] if identity else sorted(os.listdir(self._folder)):
            place = os.path.join(self._folder, folder)
            names = sorted(os.listdir(place)) if os.path.isdir(place) else []
            yield from (os.path.join(place, name) for name in names if name.startswith(prefix))

    def _forget(self, path: str) -> None:
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


def name_of(role: str, number: int | None, pod: str) -> str:
    """What a member's signs are called: the same when it starts again."""
    return f"{role}-{pod if number is None else number}"


def tell_before_launch(member: RoleMember, why: str) -> None:
    """Leave the sign of a member that ends before there is anything to launch, if the volume answers in time."""
    failures = FailureMarks(member.output, member.job_id, name_of(member.role, member.number, member.pod))

    def tell() -> None:
        try:
            if os.path.isdir(member.job_path):  # else it would be made in the container
                failures.begin()
                failures.tell(why)
        except (Failure, OSError) as error:
            sys.stderr.write(f"paddle-launcher: the other role is not told: {error}\n")

    telling = threading.Thread(target=tell, daemon=True, name="tell")
    telling.start()
    telling.join(_ANSWER_WITHIN)
