"""The gang's protocol: JSON objects over TCP, a line a message, in UTF-8.

Every launcher listens on the gang port. The launcher of rank 0 is the hub; every other one keeps one connection to it.
Each message has a "word"; the others of its fields are given here in parentheses.

Both ways
    alive       at least every 5 s. Nothing heard for 120 s is the same as an end of the connection without a return.

Hub to member
    challenge   (version, nonce) the first line on every connection, from whoever listens.
    again       (reason, retry) no; look again. With `retry` true the same hub may soon say yes: it does not know yet
                who it is. The connection ends after it.
    waiting     (joined, size, ranks) the hello was good, the roster is not complete: who is missing, as far as it fits.
                Sent at once, then in the place of alive.
    welcome     (gang, turn, rank, proof, roster) the roster is complete; `rank` is the receiver's. The roster is
                text, so that everybody can take the same digest of it: JSON, a list in rank order of
                [pod, uid, address, training address or null where it is the same, role, trainers, controller].
    begin       (turn, generation, resume) what is to be started, and the last pass that need not be trained, or null.
    train       (turn, stall) everybody has said staged and serving. `stall` is for how many seconds no trainer may
                print anything; 0 means for ever, and that nobody asks for progress.
    collect     (turn) nobody has: everybody writes down what its children do, then says collected.
    restart     (turn, cause) the turn before this one has failed: everybody ends all children, then says ended.
    stop        (cause, again) the first cause of a failure or a stop. Said once, never changed. With `again` true
                whoever is not at fault ends all children, and joins anew.
    finish      the job is complete; after a stop: the culprit has gone, everybody may go; after one that is followed
                by another gang: in so many seconds nothing of this one runs any more.
    unheard     nothing was heard of this member for two beats, at each beat: it may hear the hub all the same.

Member to hub
    hello       (version, job, trainers, pservers, gang, incarnation, role, rank, pod, uid, address, training, runs,
                controller, nonce, answer)
                `rank` is null where members have no numbers; `gang` is null unless the member returns. `trainers` and
                `pservers` count members, the latter 0 where each does both; `runs` counts this member's trainers.
                `controller` is empty but where each role has its own, and no identity was told: then all members of a
                role must have the same, and those of the roster together are the job's identity.
    staged      configuration and shard are here.
    serving, trained    (turn)
    progress    (turn, age, line) a trainer has printed something, so many seconds ago, and last this line.
    collected   (turn, processes, written) how many processes the evidence is about, and whether it is written down.
    ended       (turn) after a restart: no child of an earlier turn is left.
    failed      (turn, cause, age) `age` is the time since the death in seconds, when this was sent. Also the last word
                of one that gives up before its welcome has come; its rank is then null.
    stopped     my children are ended, I am leaving.

Turns. A gang starts the job's processes in turns: 0, and one more after each restart. What is said of a turn that is
over, or has not come, is not heard. (How often the job was started by all gangs of it is its generation.)

Proofs. `answer` and `proof` are HMAC-SHA256 with the job's secret over a JSON list: a label, both nonces, and what is
claimed (all fields of the hello; gang, turn, rank and the digest of the roster). Both nonces are new for each
connection, so nothing can be replayed. A job without a secret uses an empty key: this keeps out mistakes, not malice.

A return. After the welcome, a member whose connection ends comes back within 1 s with a hello that names its gang and
the same incarnation. The hub says welcome, then where the gang is: restart, begin, train, collect, stop, finish. The
member says again all that it has said. Hearing a word twice is the same as hearing it once. A member that has heard
nothing for two beats, or is told that it is unheard, does the same on a second connection, while the first has not
ended: the welcome replaces it.

Limits. A line of an unknown peer has at most 64 KiB. `version` in challenge and hello is where it is for ever, so that
launchers of different versions can tell each other so.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from launcher.gang.events import Begin, Credentials, Missing, Restart, Stop, Train
from launcher.model import Cause, Member, Roster, Shape, Start

VERSION = 6
UNKNOWN_LIMIT = 64 * 1024
KNOWN_LIMIT = 16 * 1024 * 1024  # a welcome has about 100 bytes a member
_TEXT_LIMIT = 1024
_WHAT_LIMIT = 2048
_TAIL_LIMIT = 8 * 1024
_LINE_LIMIT = 200

Message = dict[str, Any]


class Malformed(Exception):
    """What came is not of this protocol."""


@dataclass(frozen=True)
class Hello:
    """A member introduces itself; `gang` is named by one that returns."""

    job: str
    shape: Shape
    gang: str | None
    incarnation: str
    member: Member
    nonce: str
    answer: str


@dataclass(frozen=True)
class Welcome:
    """The complete roster, and the receiver's place in it."""

    gang: str
    turn: int
    rank: int
    proof: str
    roster: Roster
    digest: str


def _canonical(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def encode(message: Message) -> bytes:
    """One line."""
    return _canonical(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message on a line, or Malformed."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed("not a line of JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("word"), str):
        raise Malformed("not a message")
    return message


ALIVE = encode({"word": "alive"})


def new_nonce() -> str:
    return os.urandom(16).hex()


def challenge(nonce: str) -> Message:
    return {"word": "challenge", "version": VERSION, "nonce": nonce}


def read_challenge(message: Message) -> str:
    """The hub's nonce."""
    _expect(message, "challenge")
    return _text(message, "nonce")


def hello(papers: Credentials, shape: Shape, gang: str | None, theirs: str, mine: str) -> Message:
    """`theirs` is the hub's nonce, `mine` the member's."""
    me = papers.me
    claims = {
        "version": VERSION,
        "job": papers.job,
        "trainers": shape.trainers,
        "pservers": shape.pservers,
        "gang": gang,
        "incarnation": papers.incarnation,
        "role": me.role,
        "rank": me.rank,
        "pod": me.pod,
        "uid": me.uid,
        "address": me.address,
        "training": me.training_address,
        "runs": me.trainers,
        "controller": me.controller,
    }
    return {"word": "hello", **claims, "nonce": mine, "answer": _proof(papers.secret, "hello", theirs, mine, claims)}


def version_of(message: Message) -> object:
    """Any version's hello has its version here."""
    _expect(message, "hello")
    return message.get("version")


def read_hello(message: Message) -> Hello:
    """A hello of this version."""
    _expect(message, "hello")
    member = Member(
        pod=_text(message, "pod"),
        uid=_text(message, "uid"),
        address=_text(message, "address"),
        training_address=_text(message, "training"),
        rank=None if message.get("rank") is None else _number(message, "rank"),
        role=_text(message, "role"),
        trainers=_number(message, "runs"),
        controller=_text(message, "controller"),
    )
    return Hello(
        job=_text(message, "job"),
        shape=Shape(_number(message, "trainers"), _number(message, "pservers")),
        gang=None if message.get("gang") is None else _text(message, "gang"),
        incarnation=_text(message, "incarnation"),
        member=member,
        nonce=_text(message, "nonce"),
        answer=_text(message, "answer"),
    )


def answered(said: Hello, secret: bytes | None, nonce: str) -> bool:
    """Whether this hello answers the hub's challenge `nonce` with the job's secret."""
    papers = Credentials(said.member, said.incarnation, said.job, secret)
    return _same(hello(papers, said.shape, said.gang, nonce, said.nonce)["answer"], said.answer)


def again(reason: str, retry: bool = False) -> Message:
    return {"word": "again", "reason": reason, "retry": retry}


def read_again(message: Message) -> tuple[str, bool]:
    """Reason, and whether to ask the same hub again."""
    return _text(message, "reason"), message.get("retry") is True


def waiting(missing: Missing) -> Message:
    return {"word": "waiting", "joined": missing.joined, "size": missing.size, "ranks": list(missing.ranks)}


def read_waiting(message: Message) -> Missing:
    ranks = _items(message, "ranks")
    if not all(type(rank) is int for rank in ranks):
        raise Malformed("ranks")
    return Missing(_number(message, "joined"), _number(message, "size"), tuple(ranks))


class Welcomes:
    """The welcomes of one gang: the roster, which is the long part of them, is encoded and digested once."""

    def __init__(self, gang: str, roster: Roster) -> None:
        self._gang = gang
        text = _canonical([_row(member) for member in roster.members])
        self._digest = hashlib.sha256(text).hexdigest()
        self._roster = _canonical(text.decode())

    def line(self, turn: int, rank: int, secret: bytes | None, mine: str, theirs: str) -> bytes:
        """For one member: `mine` is the hub's nonce, `theirs` the member's."""
        proof = _welcome_proof(secret, mine, theirs, self._gang, turn, rank, self._digest)
        head = {"word": "welcome", "gang": self._gang, "turn": turn, "rank": rank, "proof": proof}
        return _canonical(head)[:-1] + b',"roster":' + self._roster + b"}\n"


def read_welcome(message: Message) -> Welcome:
    """A welcome, whose proof is still to be judged by `proved`."""
    _expect(message, "welcome")
    text = message.get("roster")
    if not isinstance(text, str) or not text.isascii():
        raise Malformed("roster")
    roster = _read_roster(text)
    rank = _number(message, "rank")
    if rank >= len(roster.members):
        raise Malformed("rank")
    return Welcome(
        gang=_text(message, "gang"),
        turn=_number(message, "turn"),
        rank=rank,
        proof=_text(message, "proof"),
        roster=roster,
        digest=hashlib.sha256(text.encode()).hexdigest(),
    )


def proved(said: Welcome, secret: bytes | None, theirs: str, mine: str) -> bool:
    """Whether the hub of this welcome has the job's secret: `theirs` is its nonce, `mine` the member's."""
    right = _welcome_proof(secret, theirs, mine, said.gang, said.turn, said.rank, said.digest)
    return _same(right, said.proof)


def word(name: str) -> Message:
    """A message that is only its word."""
    return {"word": name}


def of_turn(name: str, turn: int) -> Message:
    """A word that holds for one turn."""
    return {"word": name, "turn": turn}


def read_turn(message: Message) -> int:
    return _number(message, "turn")


def begin(turn: int, start: Start) -> Message:
    return {**of_turn("begin", turn), "generation": start.generation, "resume": start.resume}


def read_begin(message: Message) -> Begin:
    resume = None if message.get("resume") is None else _number(message, "resume")
    return Begin(read_turn(message), Start(_number(message, "generation"), resume))


def train(turn: int, stall: float) -> Message:
    return {**of_turn("train", turn), "stall": stall}


def read_train(message: Message) -> Train:
    return Train(_seconds(message, "stall"))


def progress(turn: int, age: float, line: str) -> Message:
    return {**of_turn("progress", turn), "age": max(age, 0.0), "line": line[:_LINE_LIMIT]}


def read_progress(message: Message) -> tuple[float, str]:
    """How long ago a trainer printed something, and what it printed last."""
    line = message.get("line")
    if not isinstance(line, str):
        raise Malformed("line")
    return _seconds(message, "age"), line[:_LINE_LIMIT]


def collected(turn: int, processes: int, written: bool) -> Message:
    return {**of_turn("collected", turn), "processes": processes, "written": written}


def read_collected(message: Message) -> tuple[int, bool]:
    """Of how many processes, and whether that is written down."""
    return _number(message, "processes"), message.get("written") is True


def restart(turn: int, cause: Cause) -> Message:
    return {**of_turn("restart", turn), "cause": _cause_fields(cause)}


def read_restart(message: Message) -> Restart:
    return Restart(read_turn(message), _read_cause(message))


def failed(turn: int, cause: Cause, age: float) -> Message:
    return {**of_turn("failed", turn), "cause": _cause_fields(cause), "age": max(age, 0.0)}


def read_failed(message: Message) -> tuple[Cause, float]:
    """The cause, and the time since the death when this was sent."""
    return _read_cause(message), _seconds(message, "age")


def stop(cause: Cause, again: bool = False) -> Message:
    return {"word": "stop", "cause": _cause_fields(cause), "again": again}


def read_stop(message: Message) -> Stop:
    return Stop(_read_cause(message), message.get("again") is True)


def finish(after: float = 0.0) -> Message:
    return {"word": "finish", "after": after}


def read_finish(message: Message) -> float:
    """In how many seconds it comes."""
    return _seconds(message, "after")


def _proof(secret: bytes | None, *claims: object) -> str:
    return hmac.new(secret or b"", _canonical(claims), "sha256").hexdigest()


def _welcome_proof(secret: bytes | None, hub: str, member: str, *claims: object) -> str:
    return _proof(secret, "welcome", hub, member, *claims)


def _same(right: str, given: str) -> bool:
    return hmac.compare_digest(right.encode(), given.encode())


def _row(member: Member) -> list[object]:
    training = None if member.training_address == member.address else member.training_address
    return [member.pod, member.uid, member.address, training, member.role, member.trainers, member.controller]


@lru_cache(maxsize=1)
def _read_roster(text: str) -> Roster:
    """Kept, because each return brings the same roster again."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed("roster") from error
    if not isinstance(rows, list):
        raise Malformed("roster")
    return Roster(tuple(_member(row, rank) for rank, row in enumerate(rows)))


def _member(row: object, rank: int) -> Member:
    match row:
        case [str(pod), str(uid), str(address), None | str() as training, str(role), int(trainers), str(controller)]:
            return Member(pod, uid, address, training or address, rank, role, trainers, controller)
    raise Malformed("roster")


def _cause_fields(cause: Cause) -> Message:
    return {
        "kind": cause.kind,
        "rank": cause.rank,
        "pod": cause.pod,
        "what": cause.what[:_WHAT_LIMIT],
        "code": int(cause.code),
        "tail": _last(cause.tail),
        "final": cause.final,
        "silent": cause.silent,
    }


def _last(tail: tuple[str, ...]) -> list[str]:
    """The last lines that fit: the hub says them to everybody."""
    kept: list[str] = []
    room = _TAIL_LIMIT
    for line in reversed(tail):
        if room <= 0:
            break
        kept.append(line[:room])
        room -= len(line) + 1
    return kept[::-1]


def _read_cause(message: Message) -> Cause:
    match message.get("cause"):
        case {
            "kind": str(kind),
            "rank": None | int() as rank,
            "pod": str(pod),
            "what": str(what),
            "code": int(code),
            "tail": list(tail),
            "final": bool(final),
            "silent": bool(silent),
        } if all(isinstance(line, str) for line in tail):
            return Cause(kind, rank, pod, what, code, tuple(tail), final, silent)
    raise Malformed("cause")


def _expect(message: Message, name: str) -> None:
    if message["word"] != name:
        raise Malformed(f"not a {name}")


def _text(message: Message, name: str) -> str:
    """Printable, because it may end up in somebody's log."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > _TEXT_LIMIT or not value.isprintable():
        raise Malformed(name)
    return value


def _number(message: Message, name: str) -> int:
    value = message.get(name)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise Malformed(name)
    return value


def _seconds(message: Message, name: str) -> float:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Malformed(name)
    return float(value)


def _items(message: Message, name: str) -> list[Any]:
    value = message.get(name)
    if not isinstance(value, list):
        raise Malformed(name)
    return value
