"""The gang's protocol, version 10, and its line format.

This page is the specification. `handshake.py` and `messages.py` build and read the single messages.

Roles
    Every launcher listens on the gang port. The launcher of rank 0 is the hub. Every other launcher, here called a
    member, keeps one TCP connection to the hub. The hub decides; members report. Members talk to each other only to
    check whether they can: see "Neighbours".

Lines
    A message is one line: a JSON object in UTF-8, ended by a line feed. The field "word" is the name of the message,
    and the other fields depend on the name. The receiver ignores fields that are not listed here. The receiver ends the
    connection if a line is not such an object, has an unknown word, or has a field of a wrong type. The sender then
    counts as lost.
    Types, unless stated otherwise: numbers are integers from 0 to 2^31 - 1. Times are in seconds, integer or not, below
    10^9. Texts are printable and have at most 1024 characters. `launcher.base.bounds` has the same bounds. A launcher
    that would have to send another value ends with an error instead.
    Before the proof, a line has at most 1 KiB. The first line with a seal to the hub, the join, has at most 8 KiB. All
    other lines have at most 16 MiB.
    With LAUNCHER_TLS_DIR all connections use TLS 1.3, and each side verifies the certificate of the other side.

A whole run
    member                               hub
       | ------- TCP connection -------> |
       | hello ------------------------> |    handshake
       | <------------------------ proof |    from now on, each line has a seal
       | join -------------------------> |
       | <-------------- waiting, 0 to n |    until all members have joined
       | <---------------------- welcome |
       | <------------------------ begin |    attempt 0
       | staged, serving --------------> |
       | <------------------------ train |    all members have sent staged and serving
       | progress, trained ------------> |
       | <----------------------- finish |    all members have sent trained

    A failure in an attempt leads to a restart, or to a stop:
       | failed -----------------------> |            | failed -----------------------> |
       | <---------------------- restart |            | <------------------------- stop |
       | ended ------------------------> |            | stopped ----------------------> |
       | <------------------------ begin |            | <----------------------- finish |

Handshake
    hello       member  version, nonce. The first line on every connection, sent by the launcher that connected.
    proof       hub     nonce, proof. The hub proves that it has the secret. The seal of the next line proves that the
                        member has it, too. If the proof is wrong, the member sends again, without a seal.
    challenge   hub     version, nonce. Sent once, at most 1 s after the start of the connection, unless a hello has
                        come by then. The nonce is empty. The receiver ignores it. In the versions before 10, the hub
                        began with this line, and the member waited for it.
    again       both    reason, retry. The sender refuses the hello, the join or the proof, and ends the connection. If
                        `retry` is true, the member tries again to join the same launcher: that launcher may not know
                        yet that it is the hub. If `retry` is false, the member looks for its peers again.
    join        member  job, trainers, pservers, gang, incarnation, role, rank, pod, uid, address, training, runs,
                        controller. See "Join".
    waiting     hub     joined, size, ranks, runs. The member has joined, but the roster is not complete: `joined` of
                        `size` members have joined. `ranks` lists the first 20 missing ranks. The list is empty if
                        members have no numbers. Sent at most 0.5 s after the join, unless the roster is complete by
                        then, and at every heartbeat in place of alive. If `runs` is true, an elastic gang runs with
                        `joined` members, and takes this member when it grows: then the hub sends again, and the member
                        joins the next gang. In this case, the first one is sent at once.
    welcome     hub     roster, gang, turn, rank. All members have joined. `gang` is the identity of this gang, new and
                        random. `rank` is the rank of the receiver. `roster` is a text of any length, which contains
                        JSON in ASCII: a list in rank order of [pod, uid, address, training address or null if it equals
                        the address, role, number of trainers, controller]. The roster is a text, so that the hub
                        encodes it only once.
    Before the join, neither side sends anything but its version, random numbers and a reason without names. A launcher
    that does not know its secret yet answers a hello with again. A launcher that is not the hub answers a join with
    again. A launcher ends a connection that has no join after 5 s to 6 s. Of such connections it has at most 64 more
    than the job has members: each further one ends the oldest. In every version of the protocol, hello and challenge
    have a field `version`. So launchers of different versions refuse each other with a reason that both can read.

Join
    job                   the identity of the job
    trainers, pservers    how many members of each role the job has; `pservers` is 0 if each member does both
    gang                  null, or the gang to which the member returns
    incarnation           a random text that is new with every start of a launcher
    role                  "both", "trainer" or "pserver"
    rank                  the number of this member, or null if members have no numbers
    pod, uid              the name and the uid of the pod
    address, training     the address of the member for the gang, and its address for Paddle
    runs                  how many trainers this member runs
    controller            the identity of the object that controls the pod, or empty. It is set only if each role has
                          its own controller and no identity of the job was configured. Then all members of a role must
                          have the same controller, and the controllers of both roles are the identity of the job.

Proofs and seals
    Both sides compute HMAC-SHA384, with the secret of the job as the key, of a JSON list without spaces, in ASCII:
    [version, nonce of the hub, nonce of the member]. The first 16 bytes of the HMAC are `proof`, sent as lower-case
    hexadecimal digits. The next 16 bytes are the key for the seals of all lines to the hub. The last 16 bytes are the
    key for the seals of all lines to the member. Both nonces are new for each connection, so a recorded line is of no
    use.
    A job without a secret uses an empty key, which protects against mistakes but not against attacks.
    Every line after the proof, in both directions, begins with its seal of 32 hexadecimal digits, before the JSON
    object. The seal is the keyed BLAKE2b hash, of 16 bytes, of the SHA-256 of the rest of the line with its line feed.
    The salt is the number of the line in its direction, as 16 bytes, the first one highest, from 0. So a line that was
    changed, inserted, repeated or left out is noticed. The receiver then ends the connection, which counts like a
    connection that the network has ended: see "Reconnecting".

At work, from the hub
    begin       turn, generation, resume, before. Start the servers that do not run yet. `generation` counts the
                attempts of all gangs of the job, from 0. `resume` is the newest complete pass, or null to start from
                the beginning. `before` is the number of members that trained before, or null if there were none.
    train       turn, stall. Start the trainers, and send progress: at most four times within `stall` seconds. If
                `stall` is 0, members send no progress, and the job is never stalled.
    collect     survey, file. Find out what all processes do, then send collected. If `file` is true, also write it to a
                file. Surveys are numbered from 0. The hub starts one if no trainer prints anything for too long, or if
                a user asks: `paddle-launcher why`.
    restart     turn, cause. The attempt before `turn` has failed. End all processes, then send ended.
    stop        cause, again. The job has failed or was stopped by `cause`, which never changes. End all processes, then
                send stopped. If `again` is true, only this gang ends, and its members join a new gang after finish. Two
                kinds of members do not join again: a member that got SIGTERM, and the member at fault if no restart can
                help.
    hold        turn. In an elastic job: trainers that call launcher.train.should_stop wait at their next call. Send
                reached.
    until       turn, step. Trainers end after this step. If `step` is 0, there is no agreement, and they continue.
    finish      after. Without a stop: the job is complete. After a stop: the member at fault has left, so the other
                members may leave. After a stop with `again` true: no process of this gang runs any more after `after`
                seconds. In all other cases `after` is 0.
    unheard     The hub has not heard this member for two heartbeats. Sent at every heartbeat until the hub hears the
                member again.

At work, from a member
    staged      Configuration and shard are in the work directory. Sent once, for all attempts.
    serving     turn. All servers of the member listen.
    progress    turn, age, line, first, pause, passes. A trainer printed `line` (at most 200 characters) `age` seconds
                ago. The first line of the attempt came `first` seconds after the start of the training, and the longest
                pause after it took `pause` seconds. `passes` says how many passes of this attempt are done: "none" for
                less than two, "some", or "all" if the last pass is done.
    collected   survey, phase, processes, states, written. The answer to collect. The member is in this phase and has
                `processes` processes. `states` has at most 8 of them, each a list: role, place in the program,
                innermost Python frame or an empty text, seconds without output, how many processes are at this place.
                `written` is false if the evidence could not be written to a file.
    reached     turn, step. The answer to hold: the highest step of a trainer of this member, or null if not all of its
                trainers call launcher.train.should_stop.
    trained     turn. All trainers of the member have ended with exit code 0. A member without trainers sends trained as
                soon as the training begins.
    ended       turn. After restart: all processes of the attempts before `turn` have ended.
    failed      turn, cause, age. Something failed on this member `age` seconds before this message was sent. The hub
                waits 0.3 s for the reports of other members, since the oldest failure is the cause. If a member leaves
                before its welcome, failed is its last message, and the rank in the cause is null.
    stopped     After stop: all processes of the member have ended, and the member leaves.
    unreached   rank, age, reason. See "Neighbours".

    A cause is an object: kind, pod and what are strings. code is an integer, and rank is an integer or null. tail is a
    list of strings: the last lines of a log, at most 8 KiB. final and silent are booleans. `launcher.model.Cause`
    explains them.

Attempts
    A gang starts the processes of the job in attempts, which are numbered from 0. Each restart begins the next attempt.
    `turn` is the number of the attempt. Both sides ignore messages about all attempts except the current one. A restart
    is an exception: it has the number of the next attempt.

Heartbeats
    Each side sends alive every 5 s, as exactly these bytes: {"word":"alive"}. A connection on which no line arrives for
    120 s is dead, and the peer is lost at once.

Reconnecting
    After the welcome, a member whose connection has ended connects again within 1 s. Its join has the same incarnation
    and the identity of its gang. The hub answers with welcome, and then with the state of the gang: restart, begin,
    train, collect, stop and finish, each only if it applies to the current attempt. The member repeats staged, and all
    its reports about the current attempt. A message that is received twice counts once. A member that does not return
    within 1 s is lost.
    A member opens a second connection in the same way in two cases: it has heard nothing for two heartbeats, or it has
    received unheard at two heartbeats in a row. The first connection still exists then. The welcome on the second
    connection replaces the first one.

Neighbours
    A network may be cut between two members that both reach the hub. So each member but the last one checks the next
    member in rank order every 40 s, a third of the silence. For a check it connects, does the handshake up to the
    proof, and ends this connection. The last member has its link to the first one, the hub. If no check has succeeded
    for 120 s, the member sends unreached after each check that fails. The message has the rank of the other member,
    for how many seconds it was not reached, and why. The hub ignores the message if it has not heard both members
    all the time. Otherwise the hub names both members in its log, and in the cause if the job fails or stalls.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from launcher.base.bounds import is_number, is_seconds, is_text

VERSION = 10
UNKNOWN_PEER_LIMIT = 1024  # a hello has about 80 bytes, and one of version 6 has about 500
JOIN_LIMIT = 8 * 1024  # a join has about 350 bytes, and 6.3 KiB if all its texts have MAX_TEXT characters of ASCII
KNOWN_PEER_LIMIT = 16 * 1024 * 1024  # a welcome has about 100 bytes per member

Message = dict[str, Any]
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Malformed(Exception):
    """A line or a message does not follow this protocol."""


class Unsendable(Exception):
    """This launcher would have to send a message that every receiver refuses: a fault of the launcher itself."""


def canonical(value: object) -> bytes:
    """Return a value as JSON, in the form that all lines and proofs use."""
    return _encode(value).encode()


def encode(message: Message) -> bytes:
    """Return a message as a line."""
    return canonical(message) + b"\n"


def checked(message: Message, read: Callable[[Message], object]) -> Message:
    """Return the message. Raise Unsendable if `read`, which the receiver uses, does not accept it."""
    try:
        read(message)
    except Malformed as error:
        field = str(error)
        value = f", {message[field]!r:.100}," if field in message else ""
        raise Unsendable(f"cannot send {message['word']}: its field {field}{value} is out of bounds") from None
    return message


def decode(line: bytes) -> Message:
    """Return the message on a line. Raise Malformed if the line is not a message."""
    try:
        message = json.loads(line.decode())
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
    """Return a field that is a text. The text must be printable, since it may be written to a log."""
    value = message.get(name)
    if not is_text(value):
        raise Malformed(name)
    return value


def number(message: Message, name: str) -> int:
    value = message.get(name)
    if not is_number(value):
        raise Malformed(name)
    return value


def seconds(message: Message, name: str) -> float:
    value = message.get(name)
    if not is_seconds(value):
        raise Malformed(name)
    return float(value)


def optional_text(message: Message, name: str) -> str | None:
    return None if message.get(name) is None else text(message, name)


def optional_number(message: Message, name: str) -> int | None:
    return None if message.get(name) is None else number(message, name)
