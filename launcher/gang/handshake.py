"""The messages and proofs of the handshake, as `protocol.py` explains them. Each `read_` function raises Malformed."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from functools import lru_cache

from launcher.gang.events import Credentials, MissingMembers
from launcher.gang.protocol import (
    VERSION,
    Malformed,
    Message,
    canonical,
    expect,
    number,
    optional_number,
    optional_text,
    text,
)
from launcher.model import Member, Roster, Shape


@dataclass(frozen=True)
class Hello:
    """The first message of a member. `gang`: the gang to which the member returns, or None."""

    job: str
    shape: Shape
    gang: str | None
    incarnation: str
    member: Member
    nonce: str
    answer: str


@dataclass(frozen=True)
class Welcome:
    """The complete roster, and the rank of the receiver."""

    gang: str
    attempt: int
    rank: int
    proof: str
    roster: Roster
    digest: str


def new_nonce() -> str:
    return os.urandom(16).hex()


def challenge(nonce: str) -> Message:
    return {"word": "challenge", "version": VERSION, "nonce": nonce}


def read_challenge(message: Message) -> str:
    """Return the hub's nonce."""
    expect(message, "challenge")
    return text(message, "nonce")


def hello(credentials: Credentials, shape: Shape, gang: str | None, hub_nonce: str, member_nonce: str) -> Message:
    me = credentials.me
    claims = {
        "version": VERSION,
        "job": credentials.job,
        "trainers": shape.trainers,
        "pservers": shape.pservers,
        "gang": gang,
        "incarnation": credentials.incarnation,
        "role": me.role,
        "rank": me.rank,
        "pod": me.pod,
        "uid": me.uid,
        "address": me.address,
        "training": me.training_address,
        "runs": me.trainers,
        "controller": me.controller,
    }
    answer = _proof(credentials.secret, "hello", hub_nonce, member_nonce, claims)
    return {"word": "hello", **claims, "nonce": member_nonce, "answer": answer}


def hello_version(message: Message) -> object:
    """Return the protocol version of a hello. The hello may be of another version of the protocol."""
    expect(message, "hello")
    return message.get("version")


def read_hello(message: Message) -> Hello:
    """Read a hello of this version of the protocol, without verifying its answer."""
    expect(message, "hello")
    member = Member(
        pod=text(message, "pod"),
        uid=text(message, "uid"),
        address=text(message, "address"),
        training_address=text(message, "training"),
        rank=optional_number(message, "rank"),
        role=text(message, "role"),
        trainers=number(message, "runs"),
        controller=text(message, "controller"),
    )
    return Hello(
        job=text(message, "job"),
        shape=Shape(number(message, "trainers"), number(message, "pservers")),
        gang=optional_text(message, "gang"),
        incarnation=text(message, "incarnation"),
        member=member,
        nonce=text(message, "nonce"),
        answer=text(message, "answer"),
    )


def verify_hello(received: Hello, secret: bytes | None, hub_nonce: str) -> bool:
    """Return whether the answer proves that the member has the secret."""
    credentials = Credentials(received.member, received.incarnation, received.job, secret)
    expected = hello(credentials, received.shape, received.gang, hub_nonce, received.nonce)
    return _equal(expected["answer"], received.answer)


def refusal(reason: str, retry: bool = False) -> Message:
    return {"word": "again", "reason": reason, "retry": retry}


def read_refusal(message: Message) -> tuple[str, bool]:
    """Return the reason, and whether to ask the same hub again."""
    return text(message, "reason"), message.get("retry") is True


def waiting(missing: MissingMembers) -> Message:
    return {"word": "waiting", "joined": missing.joined, "size": missing.size, "ranks": list(missing.ranks)}


def read_waiting(message: Message) -> MissingMembers:
    ranks = message.get("ranks")
    if not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks):
        raise Malformed("ranks")
    return MissingMembers(number(message, "joined"), number(message, "size"), tuple(ranks))


class Welcomes:
    """Encode the welcomes of one gang. The roster is long, so it is encoded and hashed only once."""

    def __init__(self, gang: str, roster: Roster) -> None:
        self._gang = gang
        rows = canonical([_row(member) for member in roster.members])
        self._digest = hashlib.sha256(rows).hexdigest()
        self._roster = canonical(rows.decode())

    def encode(self, attempt: int, rank: int, secret: bytes | None, hub_nonce: str, member_nonce: str) -> bytes:
        """Return the welcome of one member as a line."""
        proof = _proof(secret, "welcome", hub_nonce, member_nonce, self._gang, attempt, rank, self._digest)
        head = {"word": "welcome", "gang": self._gang, "turn": attempt, "rank": rank, "proof": proof}
        return canonical(head)[:-1] + b',"roster":' + self._roster + b"}\n"


def read_welcome(message: Message) -> Welcome:
    """Read a welcome, without verifying its proof."""
    expect(message, "welcome")
    rows = message.get("roster")
    if not isinstance(rows, str) or not rows.isascii():
        raise Malformed("roster")
    roster = _read_roster(rows)
    rank = number(message, "rank")
    if rank >= len(roster.members):
        raise Malformed("rank")
    return Welcome(
        gang=text(message, "gang"),
        attempt=number(message, "turn"),
        rank=rank,
        proof=text(message, "proof"),
        roster=roster,
        digest=hashlib.sha256(rows.encode()).hexdigest(),
    )


def verify_welcome(received: Welcome, secret: bytes | None, hub_nonce: str, member_nonce: str) -> bool:
    """Return whether the proof shows that the hub has the secret."""
    claims = (received.gang, received.attempt, received.rank, received.digest)
    return _equal(_proof(secret, "welcome", hub_nonce, member_nonce, *claims), received.proof)


def _proof(secret: bytes | None, label: str, hub_nonce: str, member_nonce: str, *claims: object) -> str:
    return hmac.new(secret or b"", canonical([label, hub_nonce, member_nonce, *claims]), "sha256").hexdigest()


def _equal(expected: str, given: str) -> bool:
    return hmac.compare_digest(expected.encode(), given.encode())


def _row(member: Member) -> list[object]:
    training = None if member.training_address == member.address else member.training_address
    return [member.pod, member.uid, member.address, training, member.role, member.trainers, member.controller]


@lru_cache(maxsize=1)
def _read_roster(rows: str) -> Roster:
    """Read a roster. The result is cached, since every reconnect receives the same roster again."""
    try:
        members = json.loads(rows)
    except (ValueError, RecursionError) as error:
        raise Malformed("roster") from error
    if not isinstance(members, list):
        raise Malformed("roster")
    return Roster(tuple(_member(row, rank) for rank, row in enumerate(members)))


def _member(row: object, rank: int) -> Member:
    match row:
        case [str(pod), str(uid), str(address), None | str() as training, str(role), int(trainers), str(controller)]:
            return Member(pod, uid, address, training or address, rank, role, trainers, controller)
    raise Malformed("roster")
