"""On the hub of an elastic job: the members that have joined a running gang, and wait until it grows."""

from __future__ import annotations

from collections.abc import Callable, Collection

from launcher.gang import handshake, protocol
from launcher.gang.connection import Connection
from launcher.gang.handshake import Join
from launcher.gang.protocol import Message


class Newcomers:
    """Hold the connections of members that wait. A member that disconnects does not wait any more.

    size: the largest number of members that the gang may have
    came: called after each member that begins to wait
    """

    def __init__(self, size: int, came: Callable[[], None]) -> None:
        self._size = size
        self._came = came
        self._held: dict[int | str, Connection] = {}  # by the number or the address of the member

    def __len__(self) -> int:
        return len(self._held)

    @property
    def connections(self) -> Collection[Connection]:
        return self._held.values()

    def has_room(self, join: Join, members: int) -> bool:
        """Return whether a gang of so many members has a place for this member, too."""
        return _place(join) in self._held or members + len(self._held) < self._size

    def hold(self, connection: Connection, join: Join) -> None:
        place = _place(join)
        before = self._held.get(place)
        self._held[place] = connection
        connection.on_message = _ignore
        connection.on_ended = lambda ended: self._drop(place, ended)
        if before is not None:
            before.abort("replaced")
        self._came()

    def dismiss(self, reason: str) -> None:
        """Refuse all members that wait: they look for the hub again, and join the next gang."""
        for connection in list(self._held.values()):
            connection.send(protocol.encode(handshake.refusal(reason)))
            connection.close()
        self._held.clear()

    def _drop(self, place: int | str, connection: Connection) -> None:
        if self._held.get(place) is connection:
            del self._held[place]


def _place(join: Join) -> int | str:
    return join.member.address if join.member.rank is None else join.member.rank


def _ignore(connection: Connection, message: Message) -> None:
    """A member that waits has nothing to report to a gang that it does not belong to."""
