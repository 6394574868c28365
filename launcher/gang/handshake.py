"""The messages and proofs of the handshake, as `protocol.py` explains them. Each `read_` function raises Malformed."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from launcher.base.bounds import is_number
from launcher.gang.events import Credentials, MissingMembers
from launcher.gang.protocol import (
    JOIN_LIMIT,
    VERSION,
    Malformed,
    Message,
    Unsendable,
    canonical,
    checked,
    expect,
    number,
    optional_number,
    optional_text,
    text,
)
from launcher.gang.seal import LENGTH as SEAL_LENGTH
from launcher.model import Member, Roster, Shape

MISSING_SHOWN = 20  # how many missing ranks a member is told
WAITING_AFTER = 0.5  # seconds in which a gang may become complete, before members learn that they wait


@dataclass(frozen=True)
class Nonces:
    """The random texts of both sides of a connection."""

    hub: str
    member: str


class Proof(NamedTuple):
    """What only launchers with the secret can know of a connection: the hub's proof, and the keys of the seals."""

    text: str
    to_hub: bytes
    to_member: bytes


@dataclass(frozen=True)
class Join:
    """What a member says about itself and its job. `gang`: the gang to which the member returns, or None."""

    job: str
    shape: Shape
    gang: str | None
    incarnation: str
    member: Member


@dataclass(frozen=True)
class Welcome:
    """The complete roster, and the rank of the receiver."""

    gang: str
    attempt: int
    rank: int
    roster: Roster


def new_nonce() -> str:
    return os.urandom(16).hex()


# ---- proofs ----------------------------------------------------------------------------------------------------------


def prove(secret: bytes | None, nonces: Nonces) -> Proof:
    """Return the proof and the keys of a connection with these nonces."""
    derived = hmac.digest(secret or b"", canonical([VERSION, nonces.hub, nonces.member]), "sha384")
    return Proof(derived[:16].hex(), derived[16:32], derived[32:])


def hello(nonce: str) -> Message:
    return {"word": "hello", "version": VERSION, "nonce": nonce}


def hello_version(message: Message) -> object:
    """Return the protocol version of a hello. The hello may be of another version of the protocol."""
    expect(message, "hello")
    return message.get("version")


def read_hello(message: Message) -> str:
    """Return the member's nonce."""
    expect(message, "hello")
    return text(message, "nonce")


def challenge() -> Message:
    return {"word": "challenge", "version": VERSION, "nonce": ""}


def proof(nonce: str, proof: Proof) -> Message:
    return {"word": "proof", "nonce": nonce, "proof": proof.text}


def read_proof(message: Message, secret: bytes | None, member_nonce: str) -> Proof | None:
    """Return the proof with the keys, or None if the message does not prove that the hub has the secret."""
    expect(message, "proof")
    proof = prove(secret, Nonces(text(message, "nonce"), member_nonce))
    return proof if hmac.compare_digest(text(message, "proof").encode(), proof.text.encode()) else None


def refusal(reason: str, retry: bool = False) -> Message:
    return {"word": "again", "reason": reason, "retry": retry}


def read_refusal(message: Message) -> tuple[str, bool]:
    """Return the reason, and whether to ask the same hub again."""
    return text(message, "reason"), message.get("retry") is True


# ---- joining ---------------------------------------------------------------------------------------------------------


def join(credentials: Credentials, shape: Shape, gang: str | None) -> Message:
    me = credentials.me
    message = {
        "word": "join",
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
    if (size := len(canonical(checked(message, read_join))) + SEAL_LENGTH) > JOIN_LIMIT:
        raise Unsendable(f"cannot send join: it has {size} bytes, at most {JOIN_LIMIT}: are its names too long?")
    return message


def read_join(message: Message) -> Join:
    expect(message, "join")
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
    return Join(
        job=text(message, "job"),
        shape=Shape(number(message, "trainers"), number(message, "pservers")),
        gang=optional_text(message, "gang"),
        incarnation=text(message, "incarnation"),
        member=member,
    )


def waiting(missing: MissingMembers) -> Message:
    return {
        "word": "waiting",
        "joined": missing.joined,
        "size": missing.size,
        "ranks": list(missing.ranks),
        "runs": missing.runs,
    }


def read_waiting(message: Message) -> MissingMembers:
    ranks = message.get("ranks")
    if not isinstance(ranks, list) or len(ranks) > MISSING_SHOWN or not all(map(is_number, ranks)):
        raise Malformed("ranks")
    runs = message.get("runs") is True
    return MissingMembers(number(message, "joined"), number(message, "size"), tuple(ranks), runs)


class Welcomes:
    """Encode the welcomes of one gang. The roster is long, so it is encoded and hashed only once."""

    def __init__(self, gang: str, roster: Roster) -> None:
        self._gang = gang
        rows = canonical([_row(member) for member in roster.members])
        self._head = b'{"word":"welcome","roster":' + canonical(rows.decode())
        self._hashed = hashlib.sha256(self._head)

    def encode(self, attempt: int, rank: int) -> tuple[tuple[bytes, bytes], bytes]:
        """Return the welcome of one member as the two parts of a line, and the digest of this line for its seal."""
        rest = b"," + canonical({"gang": self._gang, "turn": attempt, "rank": rank})[1:] + b"\n"
        hashed = self._hashed.copy()
        hashed.update(rest)
        return (self._head, rest), hashed.digest()


def read_welcome(message: Message) -> Welcome:
    expect(message, "welcome")
    rows = message.get("roster")
    if not isinstance(rows, str) or not rows.isascii():
        raise Malformed("roster")
    roster = _read_roster(rows)
    rank = number(message, "rank")
    if rank >= len(roster.members):
        raise Malformed("rank")
    return Welcome(text(message, "gang"), number(message, "turn"), rank, roster)


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
