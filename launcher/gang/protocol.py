"""The gang's protocol, version 6, and its line format.

This page is the specification. `handshake.py` and `messages.py` build and read the single messages.

Roles
    Every launcher listens on the gang port. The launcher of rank 0 is the hub. Every other launcher, here called a
    member, keeps one TCP connection to the hub. The hub decides; members report, and do not talk to each other.

Lines
    A message is one line: a JSON object in UTF-8, ended by a line feed. Its "word" is the name of the message, and the
    other fields depend on it. Fields that are not listed here are ignored. A line that is not such an object, an
    unknown word, or a field of a wrong type ends the connection, and the sender counts as lost.
    Types, unless stated otherwise: numbers are integers from 0 to 2^31 - 1. Times are in seconds, integer or not, below
    10^9. Texts are printable and have at most 1024 characters.
    A line has at most 64 KiB before the hub has accepted the hello, and at most 16 MiB afterwards.

A whole run
    member                               hub
       | ------- TCP connection -------> |
       | <-------------------- challenge |    handshake
       | hello ------------------------> |
       | <-------------- waiting, 0 to n |    until all members have joined
       | <---------------------- welcome |
       | <------------------------ begin |    attempt 0
       | staged, serving --------------> |
       | <------------------------ train |    all members have said staged and serving
       | progress, trained ------------> |
       | <----------------------- finish |    all members have said trained

    A failure in an attempt leads to a restart, or to a stop:
       | failed -----------------------> |            | failed -----------------------> |
       | <---------------------- restart |            | <------------------------- stop |
       | ended ------------------------> |            | stopped ----------------------> |
       | <------------------------ begin |            | <----------------------- finish |

Handshake
    challenge   hub     version, nonce. The first line on every connection, sent by the side that was connected to.
    hello       member  version, job, trainers, pservers, gang, incarnation, role, rank, pod, uid, address, training,
                        runs, controller, nonce, answer. See "Hello".
    again       hub     reason, retry. The hello is refused, and the connection ends. With `retry` true the member asks
                        the same hub again, since this launcher does not know yet whether it is the hub. Otherwise it
                        looks for its peers again.
    waiting     hub     joined, size, ranks. The hello is accepted, and the roster is not complete: so many members of
                        `size` have joined, and `ranks` are the first 20 missing ones. `ranks` is empty if members have
                        no numbers. Sent at once, then at every heartbeat in place of alive.
    welcome     hub     gang, turn, rank, proof, roster. All members have joined. `gang` is the identity of this gang,
                        new and random. `rank` is the rank of the receiver. `roster` is a text of any length, so that
                        all take the same digest of it: JSON in ASCII, a list in rank order of [pod, uid, address,
                        training address or null if it is the same, role, number of trainers, controller].
    A launcher that is not the hub answers a hello with again. A connection without a hello within 5 s is ended.

Hello
    version               6. `version` has this place in hello and challenge in every version of the protocol.
    job                   the identity of the job
    trainers, pservers    how many members of each role the job has; `pservers` is 0 if each member does both
    gang                  null, or the gang to which the member returns
    incarnation           a random text that is new with every start of a launcher
    role                  "both", "trainer" or "pserver"
    rank                  the number of this member, or null if members have no numbers
    pod, uid              the name and the uid of the pod
    address, training     its address for the gang, and the one for Paddle
    runs                  how many trainers this member runs
    controller            what controls the pod. It is empty unless each role has its own controller and no identity was
                          configured. Then all members of a role must have the same one, and the controllers of the
                          roster together are the identity of the job.
    nonce, answer         the nonce of the member, and its proof

Proofs
    `answer` and `proof` are HMAC-SHA256 in lower-case hexadecimal digits. The key is the secret of the job. The data is
    a JSON list without spaces, in ASCII:
    answer      ["hello", nonce of the hub, nonce of the member, {the fields version to controller, in this order}]
    proof       ["welcome", nonce of the hub, nonce of the member, gang, turn, rank, SHA-256 of the roster text in hex]
    Both nonces are new for each connection, so nothing can be replayed. A job without a secret uses an empty key, which
    prevents mistakes but no attack.

At work, from the hub
    begin       turn, generation, resume. Start the servers that do not run yet. `generation` counts the attempts of all
                gangs of the job. `resume` is the last pass that need not be trained again, or null.
    train       turn, stall. Start the trainers. If no trainer of the job prints anything for `stall` seconds, the job
                is stalled. 0 means that there is no limit, and that no progress is to be reported.
    collect     turn. No trainer has printed anything for `stall` seconds. Write down what all processes do, then say
                collected.
    restart     turn, cause. The attempt before `turn` has failed. End all processes, then say ended.
    stop        cause, again. The job has failed or was stopped by `cause`, which never changes: end all processes, then
                say stopped. With `again` true only this gang is over, and its members join a new gang after the finish.
                A member does not if a signal told it to stop, or if `cause` is its own and no restart can help.
    finish      after. The job is complete. After a stop: the member of its cause has left, and the others may leave.
                After a stop with `again`: in `after` seconds no process of this gang runs any more. `after` is 0
                otherwise.
    unheard     The hub has not heard this member for two heartbeats. Sent at every heartbeat until it hears it again.

At work, from a member
    staged      Configuration and shard are in the work directory. Said once for all attempts.
    serving     turn. All servers of the member listen.
    progress    turn, age, line. A trainer printed `line` (at most 200 characters) `age` seconds ago. At most four times
                within `stall` seconds.
    collected   turn, processes, written. The evidence covers so many processes; `written` is false if it could not be
                written down.
    trained     turn. All trainers of the member have ended with exit code 0.
    ended       turn. After restart: all processes of the attempts before `turn` have ended.
    failed      turn, cause, age. Something has failed here `age` seconds before this was sent. The hub waits 0.3 s for
                the reports of others, since the oldest failure is the cause. It is also the last message of a member
                that gives up before its welcome; the rank in its cause is then null.
    stopped     After stop: all processes of the member have ended, and it is leaving.

    A cause is an object: kind, pod and what are strings, code is an integer, rank is an integer or null, tail is a list
    of strings (the last lines of a log, at most 8 KiB), final and silent are booleans. `launcher.model.Cause` explains
    them.

Attempts
    A gang starts the processes of the job in attempts: 0, and one more after each restart. `turn` is the number of the
    attempt. A message of another attempt than the current one is ignored by either side.

Heartbeats
    Each side sends alive every 5 s, as exactly these bytes: {"word":"alive"}. A connection on which nothing arrives for
    120 s is dead, and the peer is lost at once.

Reconnecting
    After the welcome, a member whose connection has ended connects again within 1 s. Its hello has the same incarnation
    and the identity of its gang. The hub answers with welcome, and then with the state of the gang: restart, begin,
    train, collect, stop and finish, each only if it was said. The member repeats staged, and all that it has said in
    this attempt. A message that is received twice counts once. A member that does not return within 1 s is lost.
    A member that has heard nothing for two heartbeats, or receives unheard in two of them, opens a second connection in
    the same way while the first one still exists. With the welcome the second connection replaces the first.
"""

from __future__ import annotations

import json
from typing import Any

VERSION = 6
UNKNOWN_PEER_LIMIT = 64 * 1024
KNOWN_PEER_LIMIT = 16 * 1024 * 1024  # a welcome has about 100 bytes per member
_TEXT_LIMIT = 1024

Message = dict[str, Any]


class Malformed(Exception):
    """A line or a message is not of this protocol."""


def canonical(value: object) -> bytes:
    """Return a value as JSON, in the only form that is used in lines and in proofs."""
    return json.dumps(value, separators=(",", ":")).encode()


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    return canonical(message) + b"\n"


def decode(line: bytes) -> Message:
    """Return the message on a line. Raise Malformed if there is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Malformed("not a line of JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("word"), str):
        raise Malformed("not a message")
    return message


ALIVE = encode({"word": "alive"})


# ---- fields of a message: each function raises Malformed with the name of the field ----------------------------------


def expect(message: Message, word: str) -> None:
    if message["word"] != word:
        raise Malformed(f"not a {word}")


def text(message: Message, name: str) -> str:
    """Return a printable text, since it may be written to a log."""
    value = message.get(name)
    if not isinstance(value, str) or len(value) > _TEXT_LIMIT or not value.isprintable():
        raise Malformed(name)
    return value


def number(message: Message, name: str) -> int:
    value = message.get(name)
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise Malformed(name)
    return value


def seconds(message: Message, name: str) -> float:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Malformed(name)
    return float(value)


def optional_text(message: Message, name: str) -> str | None:
    return None if message.get(name) is None else text(message, name)


def optional_number(message: Message, name: str) -> int | None:
    return None if message.get(name) is None else number(message, name)
