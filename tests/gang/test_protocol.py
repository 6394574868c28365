"""The messages of the gang, their proofs, and the choice of the first cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from launcher.gang import NO_PASS, MissingMembers, Progress, Stop, handshake, messages, protocol
from launcher.gang.events import Credentials
from launcher.gang.first_cause import first_cause
from launcher.gang.handshake import Nonces, Welcome
from launcher.gang.protocol import Malformed, Unsendable
from launcher.gang.seal import digest
from launcher.model import Cause, CauseKind, Member, MemberReport, ProcessState, Roster, Shape, Start
from tests.support.members import died

ME = Member("pod-1", "uid-1", "10.0.0.9", "192.168.0.9", 1)
CREDENTIALS = Credentials(ME, "incarnation", "job", b"secret")
ROSTER = Roster(
    (Member("pod-0", "uid-0", "fd00::1", "fd00::1", 0), ME, Member("pod-2", "", "10.1.1.1", "x", 2, "pserver"))
)


NONCES = Nonces("hub", "member")


def join(credentials: Credentials = CREDENTIALS, **changes: Any) -> protocol.Message:
    return {**handshake.join(credentials, Shape(3, 1), None), **changes}


def read(line: bytes) -> protocol.Message:
    return protocol.decode(line.rstrip(b"\n"))


@pytest.mark.parametrize("gang", [None, "gang"])
@pytest.mark.parametrize("rank", [None, 1])
def test_a_join_is_read_as_it_was_sent(gang: str | None, rank: int | None) -> None:
    credentials = replace(CREDENTIALS, me=replace(ME, rank=rank))
    received = handshake.read_join(read(protocol.encode(handshake.join(credentials, Shape(3, 1), gang))))
    assert received.member == credentials.me
    assert (received.job, received.shape, received.gang, received.incarnation) == (
        *("job", Shape(3, 1), gang, "incarnation"),
    )


def test_the_proof_needs_the_secret_and_both_nonces() -> None:
    proof = handshake.prove(b"secret", NONCES)
    sent = read(protocol.encode(handshake.proof("hub", proof)))
    assert handshake.read_proof(sent, b"secret", "member") == proof
    assert handshake.read_proof(sent, b"another", "member") is None
    assert handshake.read_proof(sent, None, "member") is None
    assert handshake.read_proof(sent, b"secret", "another nonce") is None
    for changes in ({"nonce": "another"}, {"proof": "é"}, {"proof": ""}):
        assert handshake.read_proof({**sent, **changes}, b"secret", "member") is None
    exchanged = handshake.proof("member", handshake.prove(b"secret", Nonces("hub", "member")))
    assert handshake.read_proof(exchanged, b"secret", "hub") is None


def test_the_keys_of_the_seals_need_the_secret_and_both_nonces() -> None:
    others = [(b"another", NONCES), (b"secret", Nonces("another", "member")), (b"secret", Nonces("hub", "another"))]
    keys = [handshake.prove(secret, nonces)[1:] for secret, nonces in [(b"secret", NONCES), *others]]
    assert len({key for of_connection in keys for key in of_connection}) == 2 * len(keys)


def test_each_direction_has_its_own_key_and_none_is_the_proof() -> None:
    proof = handshake.prove(b"secret", NONCES)
    assert len({proof.text, proof.to_hub.hex(), proof.to_member.hex()}) == 3


def test_a_welcome_is_read_as_it_was_sent() -> None:
    parts, hashed = handshake.Welcomes("gang", ROSTER).encode(7, 1)
    line = b"".join(parts)
    assert handshake.read_welcome(read(line)) == Welcome("gang", 7, 1, ROSTER)
    assert hashed == digest(line)


def test_a_cause_is_read_as_it_was_sent() -> None:
    cause = Cause(CauseKind.PSERVER, 2, "pod-2", "killed\n'\"\udcff", 137, ("last", "lines \x1b[0m"), True)
    assert messages.read_stop(read(protocol.encode(messages.stop(cause, True)))) == Stop(cause, True)
    assert messages.read_failed(read(protocol.encode(messages.failed(0, replace(cause, rank=None), 0.25)))) == (
        replace(cause, rank=None),
        0.25,
    )


def test_a_kind_of_cause_that_only_a_later_version_knows_leads_to_no_restart() -> None:
    message = messages.stop(died("trainer", 1, 3))
    message["cause"]["kind"] = "of a later version"
    kind = messages.read_stop(message).cause.kind
    assert (kind.restartable, kind.gone) == (False, False)


def test_only_the_end_of_a_long_tail_is_sent() -> None:
    tail = tuple(f"{number} " + "\x00" * 1000 for number in range(100))
    line = protocol.encode(messages.failed(0, died("trainer", 1, 3, "w" * 100_000, tail=tail), 0))
    cause, _ = messages.read_failed(read(line))
    assert cause.tail[-1] == tail[-1]
    assert 5 < len(cause.tail) < 10
    assert len(line) < 64 * 1024


def test_an_age_is_never_negative() -> None:
    assert messages.read_failed(messages.failed(0, died("trainer", 1, 3), -0.001))[1] == 0


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe\x00",
        b"GET / HTTP/1.1\r",
        b"[" * 60_000,
        b"1" * 60_000,
        b"[]",
        b"null",
        b'"alive"',
        b"{}",
        b'{"word": 1}',
        b'{"word": "hello"',
    ],
)
def test_a_line_without_a_message_is_malformed(line: bytes) -> None:
    with pytest.raises(Malformed):
        protocol.decode(line)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("word", "staged"),
        ("job", None),
        ("job", ["job"]),
        ("trainers", "3"),
        ("trainers", True),
        ("pservers", 1 << 40),
        ("gang", 1),
        ("rank", -1),
        ("rank", 1.0),
        ("rank", False),
        ("pod", "line\nbreak"),
        ("pod", "\x1b[2J"),
        ("pod", "p" * 2000),
        ("uid", None),
    ],
)
def test_a_join_with_a_wrong_field_is_malformed(field: str, value: Any) -> None:
    with pytest.raises(Malformed):
        handshake.read_join(join(**{field: value}))


@pytest.mark.parametrize("age", [None, "1", -1, True, float("nan"), float("inf")])
def test_a_wrong_age_is_malformed(age: object) -> None:
    with pytest.raises(Malformed):
        messages.read_failed({**messages.failed(0, died("trainer", 1, 3), 0), "age": age})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", 1),
        ("rank", "1"),
        ("rank", -1),
        ("rank", 1 << 31),
        ("pod", None),
        ("code", "3"),
        ("tail", [1]),
        ("tail", "x"),
        ("final", 1),
    ],
)
def test_a_wrong_cause_is_malformed(field: str, value: object) -> None:
    message = messages.stop(died("trainer", 1, 3))
    message["cause"][field] = value
    with pytest.raises(Malformed):
        messages.read_stop(message)


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 3},
        {"roster": None},
        {"roster": []},
        {"roster": "{}"},
        {"roster": "[" * 60_000},
        {"roster": '[["pod"]]'},
        {"roster": '[["pod","uid",4,null,"both",1],["pod","uid","a",null,"both",1]]'},
        {"roster": "[\u00e9]"},
    ],
)
def test_a_wrong_welcome_is_malformed(change: dict[str, object]) -> None:
    message = read(b"".join(handshake.Welcomes("gang", ROSTER).encode(0, 1)[0]))
    with pytest.raises(Malformed):
        handshake.read_welcome({**message, **change})


@pytest.mark.parametrize("ranks", [None, [1.5], [-1], ["1"], list(range(21))])
def test_a_wrong_list_of_missing_ranks_is_malformed(ranks: object) -> None:
    with pytest.raises(Malformed, match="ranks"):
        handshake.read_waiting({"word": "waiting", "joined": 1, "size": 3, "ranks": ranks})


TOO_MUCH = 1 << 31
PROGRESS = Progress("", 0.0, 0.0, NO_PASS)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: messages.begin(0, Start(TOO_MUCH, None)), "generation, 2147483648"),
        (lambda: messages.begin(0, Start(0, 20261119094500)), "resume, 20261119094500"),
        (lambda: messages.train(0, 1e9), "stall, 1000000000"),
        (lambda: messages.finish(float("inf")), "after, inf"),
        (lambda: messages.progress(0, float("nan"), PROGRESS), "age, nan"),
        (lambda: messages.progress(0, 0.0, replace(PROGRESS, longest_pause=1e10)), "pause"),
        (lambda: messages.progress(0, 0.0, replace(PROGRESS, passes="two")), "passes"),
        (lambda: messages.collected(0, MemberReport("training", -1, ())), "processes, -1"),
        (lambda: messages.collected(0, MemberReport("a\nb", 1, ())), "phase"),
        (lambda: messages.collected(0, MemberReport("", 1, (ProcessState("", "", "", 1e10, 1),))), "states"),
        (lambda: messages.failed(0, died("trainer", TOO_MUCH, 3), 0.0), "cause"),
        (lambda: messages.unreached(1, 1e10, ""), "age"),
        (lambda: handshake.join(replace(CREDENTIALS, job="j" * 1025), Shape(3, 1), None), "job"),
        (lambda: handshake.join(replace(CREDENTIALS, me=replace(ME, pod="a\nb")), Shape(3, 1), None), "pod"),
    ],
)
def test_a_message_that_every_receiver_would_refuse_is_not_made(make: Callable[[], object], field: str) -> None:
    with pytest.raises(Unsendable, match=f"its field {field}"):
        make()


def test_a_join_that_no_hub_would_read_is_not_made() -> None:
    name = "n" * 1024
    me = Member(name, name, name, name, 99_999, "pserver", 64, name)
    longest = handshake.join(Credentials(me, "i" * 16, name, b"secret"), Shape(99_999, 99_999), "g" * 16)
    assert len(protocol.encode(longest)) < protocol.JOIN_LIMIT
    with pytest.raises(Unsendable, match="are its names too long"):
        handshake.join(replace(CREDENTIALS, me=replace(ME, pod="\N{GRINNING FACE}" * 1024)), Shape(3, 1), None)


def test_the_reason_why_a_member_was_not_reached_is_cut_and_printable() -> None:
    rank, age, reason = messages.read_unreached(messages.unreached(1, 120.5, "\x1b[2J" + "x" * 5000))
    assert (rank, age, reason) == (1, 120.5, "?[2J" + "x" * 196)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (MissingMembers(2, 3, (2,)), "2 of 3; rank 2 has not joined"),
        (MissingMembers(1, 3, (1, 2)), "1 of 3; ranks 1, 2 have not joined"),
        (MissingMembers(1, 30, (1, 2)), "1 of 30; ranks 1, 2 and 27 more have not joined"),
        (MissingMembers(1, 3, ()), "1 of 3"),
    ],
)
def test_missing_members_are_described(missing: MissingMembers, text: str) -> None:
    assert str(missing) == text
    assert handshake.read_waiting(read(protocol.encode(handshake.waiting(missing)))) == missing


@pytest.mark.parametrize(
    ("first", "others"),
    [
        # A killed pserver. All trainers die of it within 50 ms, and one of them seems to be older.
        ((0.0, "pserver", 137), [(-0.03, "trainer", 139), (0.01, "trainer", 134), (0.02, "pserver", 141)]),
        ((0.0, "pserver", 137), [(-0.03, "pserver", 134), (-0.04, "pserver", 141)]),
        # A trainer that was killed or has another exit code, before the deaths of survivors.
        ((0.0, "trainer", 137), [(-0.04, "pserver", 134), (-0.04, "pserver", 141), (0.3, "trainer", 139)]),
        ((0.0, "trainer", 3), [(-0.04, "pserver", 134), (0.1, "trainer", 134)]),
        # No pserver dies of a segmentation fault when it loses a peer.
        ((0.0, "pserver", 139), [(-0.04, "trainer", 139), (-0.04, "trainer", 134), (-0.04, "pserver", 141)]),
        # A trainer that aborts by itself (bad data), and the pservers that die of it.
        ((0.0, "trainer", 134), [(0.03, "pserver", 134), (-0.01, "pserver", 141), (0.04, "trainer", 139)]),
        # A pserver's abort counts before a trainer's, unless the trainer's is clearly older.
        ((0.0, "pserver", 134), [(-0.01, "trainer", 134), (-0.01, "trainer", 139)]),
        # A death that is older by more than the tolerance is the first one, with any code.
        ((0.0, "trainer", 139), [(0.2, "pserver", 137), (0.3, "trainer", 3)]),
        # The launcher was lost or told to stop.
        ((0.0, "lost", 76), [(-0.03, "trainer", 139), (0.5, "trainer", 134)]),
        ((0.0, "stopped", 143), [(-0.01, "trainer", 139), (0.1, "trainer", 143)]),
        ((0.0, "staging", 66), [(0.1, "lost", 76)]),
    ],
)
def test_the_first_cause(first: tuple[float, str, int], others: list[tuple[float, str, int]]) -> None:
    def report(death: tuple[float, str, int], rank: int) -> tuple[float, Cause]:
        return 100.0 + death[0], died(death[1], rank, death[2])

    right = report(first, 9)
    reports = [report(other, rank) for rank, other in enumerate(others)]
    assert first_cause([right, *reports]) == right
    assert first_cause([*reports, right]) == right
