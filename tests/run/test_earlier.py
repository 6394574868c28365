"""The causes of earlier generations, in the last lines of a log and in the termination message."""

from __future__ import annotations

from launcher.run.earlier import EarlierCauses


def lines(causes: dict[int, str], latest: int | None = None, end: str = "") -> list[str]:
    earlier = EarlierCauses()
    earlier.add(causes)
    return earlier.lines(latest, end)


def test_each_generation_has_a_line_with_its_cause() -> None:
    assert lines({1: "rank 2 (b): lost", 0: "rank 1 (a): ended"}) == [
        "earlier: generation 0: rank 1 (a): ended",
        "earlier: generation 1: rank 2 (b): lost",
    ]


def test_generations_in_a_row_with_the_same_cause_share_a_line() -> None:
    same = "rank 1 (a): ended"
    assert lines({0: same, 1: same, 2: "lost", 3: same}) == [
        f"earlier: generations 0 to 1: {same}",
        "earlier: generation 2: lost",
        f"earlier: generation 3: {same}",
    ]


def test_the_latest_generation_is_left_out_only_if_the_end_names_its_cause() -> None:
    causes = {0: "rank 1 (a): ended", 1: "rank 1 (a): ended"}
    assert len(lines(causes, 1, "given up: rank 1 (a): ended; given up: twice")) == 1
    assert len(lines({0: "rank 1 (a): ended"}, 1, "rank 1 (a): ended")) == 1
    assert len(lines({0: "rank 1 (a): ended", 1: "rank 2 (b): lost"}, 1, "got SIGTERM")) == 2


def test_a_cause_is_not_written_twice() -> None:
    causes = {0: "rank 1 (a): code 1", 1: "rank 2 (b): lost", 2: "rank 1 (a): code 13"}
    assert lines(causes, 3, "exit code 71: rank 1 (a): code 13; given up") == [
        "earlier: generation 0: rank 1 (a): code 1",
        "earlier: generation 1: rank 2 (b): lost",
        "earlier: generation 2: the same cause",
    ]


def test_the_first_cause_that_a_member_has_learnt_stays() -> None:
    earlier = EarlierCauses()
    earlier.add({0: "seen by itself"})
    earlier.add({0: "read from the volume", 1: "new"})
    assert earlier.lines(None, "") == ["earlier: generation 0: seen by itself", "earlier: generation 1: new"]


def test_many_long_causes_are_bounded_and_keep_the_first_and_the_newest() -> None:
    shown = lines({number: f"rank {number} (pod): {'é' * 400}" for number in range(100)})
    assert sum(len(line.encode()) + 1 for line in shown) <= 1200
    assert shown[0].startswith("earlier: generation 0: rank 0")
    assert shown[0].endswith("...")
    assert shown[1] == f"earlier: {100 - (len(shown) - 1)} more causes are in job.json (generations)"
    assert shown[-1].startswith("earlier: generation 99: rank 99")
