"""One side of a connection of the gang, which a test speaks by hand: also what no launcher would send."""

from __future__ import annotations

import asyncio
from typing import Any

from launcher.gang import handshake, protocol
from launcher.gang.events import Credentials
from launcher.gang.handshake import Nonces
from launcher.gang.protocol import Message
from launcher.gang.seal import Seal, digest
from launcher.model import Shape
from tests.support.members import SECRET, Node, settings

Place = tuple[str, int]
SEAL = 32  # characters


def opened(line: bytes) -> bytes:
    """Return a line without its seal, if it has one."""
    return line if line.startswith(b"{") else line[SEAL:]


def join(rank: int, size: int, *, job: str = "job", gang: str | None = None, **changes: Any) -> Message:
    """Return the join of a launcher that no test has started."""
    credentials = Credentials(Node(rank, settings(size)).me, "by hand", job, None)
    return {**handshake.join(credentials, Shape(size), gang), **changes}


class Wire:
    """A connection whose lines are sealed once the proofs are exchanged."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.received = b""
        self._reader = reader
        self._incoming: Seal | None = None
        self._outgoing: Seal | None = None

    @classmethod
    async def connect(cls, place: Place) -> Wire:
        return cls(*await asyncio.open_connection(*place, limit=1 << 24))

    async def receive(self) -> Message:
        line = await asyncio.wait_for(self._reader.readline(), 5)
        self.received += line
        assert line.endswith(b"\n"), f"the connection has ended: {line!r}"
        if self._incoming is None:
            return protocol.decode(line[:-1])
        unsealed = self._incoming.open(line[:-1])
        assert unsealed is not None, f"a wrong seal: {line!r}"
        return protocol.decode(unsealed)

    def send(self, *messages: Message) -> None:
        for message in messages:
            self.send_line(protocol.encode(message))

    def send_line(self, line: bytes) -> None:
        self.writer.write(self.sealed(line))

    def sealed(self, line: bytes) -> bytes:
        """Return the line as the next line of this side."""
        return (self._outgoing.next(digest(line)) if self._outgoing else b"") + line

    async def prove(self, secret: bytes | None = SECRET) -> None:
        """Exchange the proofs as a member, even if the proof of the hub is wrong."""
        nonce = handshake.new_nonce()
        self.send(handshake.hello(nonce))
        answer = await self.receive()
        assert answer["word"] == "proof"
        proof = handshake.prove(secret, Nonces(answer["nonce"], nonce))
        self._incoming, self._outgoing = Seal(proof.to_member), Seal(proof.to_hub)

    async def join(self, rank: int, size: int, *, secret: bytes | None = SECRET, **changes: Any) -> None:
        await self.prove(secret)
        self.send(join(rank, size, **changes))

    async def accept(self, secret: bytes | None = SECRET) -> None:
        """Exchange the proofs as a hub."""
        nonces = Nonces("the hub's nonce", (await self.receive())["nonce"])
        proof = handshake.prove(secret, nonces)
        self.send(handshake.proof(nonces.hub, proof))
        self._incoming, self._outgoing = Seal(proof.to_hub), Seal(proof.to_member)

    async def refusal(self) -> str:
        """Return the reason of the refusal."""
        reason, retry = handshake.read_refusal(await self.receive())
        assert not retry
        return reason

    async def until_dropped(self) -> None:
        try:
            while data := await asyncio.wait_for(self._reader.read(65536), 8):
                self.received += data
        except OSError:
            pass
        self.writer.close()

    def close(self) -> None:
        self.writer.close()
