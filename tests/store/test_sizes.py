"""A change of size is no failure: a job that grows, or pods that were told to stop and not replaced."""

from __future__ import annotations

import pytest

from launcher.store import sizes


@pytest.mark.parametrize(
    ("kind", "size", "next_size", "expected"),
    [
        ("resized", 2, 3, True),
        ("resized", 2, None, True),  # the larger gang has not begun yet
        ("stopped", 3, 2, True),
        ("stopped", 3, 3, False),  # the pod was replaced
        ("stopped", 3, None, False),
        ("lost", 3, 2, False),  # the pod has failed
        ("trainer", 2, 3, False),
        (None, None, None, False),
    ],
)
def test_a_generation_ends_by_a_change_of_size(
    kind: str | None, size: int | None, next_size: int | None, expected: bool
) -> None:
    assert sizes.is_resize(kind, size, next_size) is expected


def test_sizes_that_are_not_known_do_not_differ() -> None:
    assert not sizes.vary([None, 3, 3, None])
    assert sizes.vary([3, None, 2])
