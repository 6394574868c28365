"""Which folders are passes of a job."""

from __future__ import annotations

import pytest

from launcher.base import passes
from launcher.base.passes import pass_folder, pass_number


@pytest.mark.parametrize("number", [0, 7, 99999, 123456, 2**31 - 2])
def test_a_folder_that_paddle_has_named_is_a_pass(number: int) -> None:
    assert pass_number("/out", pass_folder("/out", number)) == number


@pytest.mark.parametrize(
    "name", ["pass-1", "pass-000001", "pass-00001.bak", "pass--0001", "pass-\u0661\u0661\u0661\u0661\u0661"]
)
def test_another_name_is_no_pass(name: str) -> None:
    assert pass_number("/out", f"/out/{name}") is None


@pytest.mark.parametrize("digits", ["20261119094500", str(2**31 - 1), "9" * 250])
def test_a_number_that_is_out_of_bounds_is_no_pass_and_named_once(
    digits: str, caplog: pytest.LogCaptureFixture
) -> None:
    passes._warn.cache_clear()  # another test may have had it named
    for _ in range(3):
        assert pass_number("/out", f"/out/pass-{digits}") is None
    assert [line for line in caplog.messages if digits in line] == [
        f"pass-{digits} is ignored: its number is out of bounds, so it is no pass of this job"
    ]
