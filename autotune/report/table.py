"""Markdown tables whose columns line up, so that they read well as plain text too."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Return a Markdown table.

    Args:
        head: Heading of each column.
        rows: Cells; each row has as many as `head`.
        right: Indices of the columns that are aligned to the right.
    """
    cells = [[_one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    rule = [
        "-" * (width - 1) + ":" if i in right else "-" * width for i, width in enumerate(widths)
    ]
    lines = [
        [
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in cells
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (lines[0], rule, *lines[1:]))


def shorten(text: str, limit: int) -> str:
    """Return text as one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: max(0, limit - 3)] + "..."


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
