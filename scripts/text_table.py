"""Tables on a terminal and in files alike: columns of text, no line cut short."""

from __future__ import annotations

from collections.abc import Sequence


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write rows under their head; numbers stand at the right.

    >>> print(text_table(("", "Rows"), [["all", "12"], ["new users", "3"]]))
               Rows
    all          12
    new users     3
    """
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = [_are_numbers([row[index] for row in rows]) for index in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)


def _are_numbers(cells: Sequence[str]) -> bool:
    """Return whether cells are numbers, as far as there is anything in them."""
    return all(cell[:1] in "+-0123456789" for cell in cells) and any(cells)  # "" is in any text


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; what a terminal cannot show has its number there, as :mod:`.main` sets it."""
    print(text_table(head, rows))
