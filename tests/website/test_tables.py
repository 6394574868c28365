"""Tables as mkdocs reads them."""

from __future__ import annotations

from website.tables import with_plain_pipes


def test_a_pipe_in_a_code_span_of_a_table_has_no_backslash() -> None:
    row = "| `a \\| b` and ``c \\| `d` `` | x \\| y |\n"
    assert with_plain_pipes(row) == "| `a | b` and ``c | `d` `` | x \\| y |\n"


def test_text_and_code_blocks_stay_as_they_are() -> None:
    page = "Use `a \\| b`.\n\n```\n| `a \\| b` |\n```\n\n~~~~\n```\n| `a \\| b` |\n~~~~\n"
    assert with_plain_pipes(page) == page
    assert with_plain_pipes(page + "| `a \\| b` |") == page + "| `a | b` |"
