"""Exit codes and messages follow from the first cause and from the part of the member in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.errors import Exit
from launcher.model import Cause, CauseKind, Outcome, Shape
from launcher.run import outcome


def cause(kind: str = "trainer", rank: int | None = 1, code: int = 3, **more: object) -> Cause:
    return Cause(CauseKind(kind), rank, f"pod-{rank}", "it ended", code, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "rank", "code"),
    [
        (None, 0, Exit.COMPLETE),
        (cause(), 1, 3),
        (cause(code=137), 1, 137),
        (cause(), 0, Exit.PEER_FAILED),
        (cause(code=69), 1, Exit.MASKED),
        (cause(code=143), 1, Exit.MASKED),
        (cause("pserver", code=0), 1, Exit.MASKED),
        (cause("staging", code=66), 1, Exit.NO_INPUT),
        (cause("staging", code=66), 2, Exit.PEER_FAILED),
        (cause("peers", None, code=75), 2, Exit.TIMED_OUT),
        (cause("lost", 1, code=76), 0, Exit.PEER_LOST),
        (cause("lost", 1, code=76), 2, Exit.PEER_FAILED),
        (cause("lost", 0, code=76), 1, Exit.PEER_LOST),
        (cause("lost", 0, code=76), 2, Exit.PEER_FAILED),
        (cause("stopped", 1, code=143), 2, Exit.PEER_FAILED),
        (cause(final=True), 1, Exit.GIVEN_UP),
        (cause(final=True), 2, Exit.GIVEN_UP),
    ],
)
def test_each_member_ends_with_the_exit_code_of_its_part_in_the_failure(
    first: Cause | None, rank: int, code: int
) -> None:
    assert outcome.outcome_of(first, rank, told_to_stop=False, shape=Shape(3)).code == code


@pytest.mark.parametrize(
    ("first", "blamed"),
    [
        (cause("trainer", 1), {1}),
        (cause("volume", 0), {0}),
        (cause("stalled", None), {0}),
        (cause("lost", 0), {1}),
        (cause("lost", 2), {0}),
        (cause("stopped", 1), set()),
        (cause("peers", None), set()),
    ],
)
def test_only_the_member_that_kubernetes_blames_ends_with_the_code_of_the_cause(first: Cause, blamed: set[int]) -> None:
    assert {rank for rank in range(3) if outcome.is_blamed(first, rank)} == blamed


def test_a_launcher_that_got_sigterm_ends_with_143_for_any_cause() -> None:
    for first in (None, cause(), cause("lost", 0, code=76), cause(final=True)):
        assert outcome.outcome_of(first, 1, told_to_stop=True, shape=Shape(3)).code == Exit.STOPPED


def test_the_message_contains_the_masked_exit_code() -> None:
    assert "exit code 69" in outcome.outcome_of(cause(code=69), 1, told_to_stop=False, shape=Shape(3)).text


def test_all_other_members_name_rank_and_pod_of_the_first_cause() -> None:
    text = outcome.outcome_of(cause(), 0, told_to_stop=False, shape=Shape(3)).text
    assert "rank 1" in text
    assert "pod-1" in text


def test_the_termination_message_keeps_the_cause_and_the_newest_lines_within_4096_bytes() -> None:
    tail = tuple(f"line {number} {'é' * 200}" for number in range(40))
    message = outcome.termination_message(Outcome(3, cause(tail=tail), "rank 1 (pod-1): it ended"))
    assert len(message) <= 4096
    assert message.startswith(b"exit code 3: rank 1 (pod-1): it ended\n")
    assert b"line 39" in message
    assert b"line 0 " not in message


def test_the_termination_message_has_the_causes_of_earlier_generations_after_its_first_line() -> None:
    earlier = ["earlier: generation 0: rank 2 (pod-2): it was lost"]
    message = outcome.termination_message(Outcome(3, cause(tail=("last line",)), "it ended"), earlier)
    assert message.decode().splitlines() == ["exit code 3: it ended", *earlier, "last line"]
    long = outcome.termination_message(Outcome(3, cause(tail=("last line",)), "x" * 9000), earlier)
    assert len(long) == 4096
    assert long.decode().splitlines()[1:] == earlier
    for size in range(4):
        assert (
            outcome.termination_message(Outcome(3, None, "x" * size + "é" * 9000)).decode().startswith("exit code 3: ")
        )


def test_the_termination_message_is_written_only_where_kubernetes_made_the_file(tmp_path: Path) -> None:
    made = tmp_path / "termination-log"
    made.write_text("old and longer than the new one")
    outcome.write_termination_message(str(made), b"new")
    assert made.read_text() == "new"
    outcome.write_termination_message(str(tmp_path / "absent"), b"new")
    assert not (tmp_path / "absent").exists()


def test_text_with_bytes_that_are_not_utf_8_can_be_written() -> None:
    message = outcome.termination_message(Outcome(3, cause(tail=("\udcff",)), "`sh \udcff` ended"))
    assert message == b"exit code 3: `sh \\udcff` ended\n\\udcff\n"


def test_a_fault_of_the_launcher_is_not_shown_as_a_masked_code() -> None:
    fault = outcome.outcome_of(cause("peers", None, code=70), 1, told_to_stop=False, shape=Shape(3))
    assert "is shown as" not in fault.text
