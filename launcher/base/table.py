"""Tables in messages and command output."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.base.file_errors import printable


def format_table(rows: Sequence[Sequence[object]]) -> str:
    """Return the rows as lines with aligned columns. None and "" become "-". Unprintable characters are escaped."""
    cells = [["-" if value in (None, "") else printable(str(value)) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)
