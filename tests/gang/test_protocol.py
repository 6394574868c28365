"""The messages of the gang, their proofs, and the choice of the first cause."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from launcher.gang import MissingMembers, Stop, handshake, messages, protocol
from launcher.gang.events import Credentials
from launcher.gang.first_cause import first_cause
from launcher.gang.protocol import Malformed
from launcher.model import Cause, CauseKind, Member, Roster, Shape
from tests.support.members import died

ME = Member("pod-1", "uid-1", "10.0.0.9", "192.168.0.9", 1)
CREDENTIALS = Credentials(ME, "incarnation", "job", b"secret")
ROSTER = Roster(
    (Member("pod-0", "uid-0", "fd00::1", "fd00::1", 0), ME, Member("pod-2", "", "10.1.1.1", "x", 2, "pserver"))
)


def hello(credentials: Credentials = CREDENTIALS, **changes: Any) -> protocol.Message:
    return {**handshake.hello(credentials, Shape(3, 1), None, "hub", "member"), **changes}


def read(line: bytes) -> protocol.Message:
    return protocol.decode(line.rstrip(b"\n"))


@pytest.mark.parametrize("gang", [None, "gang"])
@pytest.mark.parametrize("rank", [None, 1])
def test_a_hello_is_read_as_it_was_sent(gang: str | None, rank: int | None) -> None:
    credentials = replace(CREDENTIALS, me=replace(ME, rank=rank))
    received = handshake.read_hello(
        read(protocol.encode(handshake.hello(credentials, Shape(3, 1), gang, "hub", "member")))
    )
    assert received.member == credentials.me
    assert (received.job, received.shape, received.gang, received.incarnation, received.nonce) == (
        *("job", Shape(3, 1), gang, "incarnation", "member"),
    )
    assert handshake.verify_hello(received, b"secret", "hub")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("job", "other"),
        ("trainers", 4),
        ("pservers", 0),
        ("runs", 2),
        ("controller", "other"),
        ("gang", "gang"),
        ("incarnation", "other"),
        ("role", "pserver"),
        ("rank", 2),
        ("pod", "other"),
        ("uid", "other"),
        ("address", "10.0.0.10"),
        ("training", "10.0.0.10"),
        ("nonce", "other"),
    ],
)
def test_the_answer_covers_every_field_of_the_hello(field: str, value: Any) -> None:
    assert not handshake.verify_hello(handshake.read_hello(hello(**{field: value})), b"secret", "hub")


def test_the_answer_needs_the_secret_and_this_challenge() -> None:
    received = handshake.read_hello(hello())
    assert not handshake.verify_hello(received, b"another", "hub")
    assert not handshake.verify_hello(received, None, "hub")
    assert not handshake.verify_hello(received, b"secret", "another challenge")
    assert not handshake.verify_hello(handshake.read_hello(hello(replace(CREDENTIALS, secret=None))), b"secret", "hub")
    assert not handshake.verify_hello(handshake.read_hello(hello(answer="é")), b"secret", "hub")


def test_a_welcome_is_read_as_it_was_sent() -> None:
    line = handshake.Welcomes("gang", ROSTER).encode(7, 1, b"secret", "hub", "member")
    received = handshake.read_welcome(read(line))
    assert (received.gang, received.attempt, received.rank, received.roster) == ("gang", 7, 1, ROSTER)
    assert handshake.verify_welcome(received, b"secret", "hub", "member")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gang", "other"),
        ("turn", 8),
        ("rank", 2),
        ("roster", json.dumps([["pod", "", "a", None, "both", 1, ""]] * 3)),
    ],
)
def test_the_hubs_proof_covers_everything(field: str, value: object) -> None:
    message = read(handshake.Welcomes("gang", ROSTER).encode(7, 1, b"secret", "hub", "member"))
    assert not handshake.verify_welcome(handshake.read_welcome({**message, field: value}), b"secret", "hub", "member")


def test_the_hubs_proof_needs_the_secret_and_both_nonces() -> None:
    received = handshake.read_welcome(read(handshake.Welcomes("gang", ROSTER).encode(7, 1, b"secret", "hub", "member")))
    assert not handshake.verify_welcome(received, b"another", "hub", "member")
    assert not handshake.verify_welcome(received, b"secret", "another", "member")
    assert not handshake.verify_welcome(received, b"secret", "hub", "another")


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
    assert len(line) < protocol.UNKNOWN_PEER_LIMIT


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
        ("nonce", 5),
        ("answer", None),
    ],
)
def test_a_hello_with_a_wrong_field_is_malformed(field: str, value: Any) -> None:
    with pytest.raises(Malformed):
        handshake.read_hello(hello(**{field: value}))


@pytest.mark.parametrize("age", [None, "1", -1, True, float("nan"), float("inf")])
def test_a_wrong_age_is_malformed(age: object) -> None:
    with pytest.raises(Malformed):
        messages.read_failed({**messages.failed(0, died("trainer", 1, 3), 0), "age": age})


@pytest.mark.parametrize(
    ("field", "value"),
    [("kind", 1), ("rank", "1"), ("pod", None), ("code", "3"), ("tail", [1]), ("tail", "x"), ("final", 1)],
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
    message = read(handshake.Welcomes("gang", ROSTER).encode(0, 1, None, "hub", "member"))
    with pytest.raises(Malformed):
        handshake.read_welcome({**message, **change})


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
