"""Decodes windows in threads, one window ahead of the one that is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ...foundation.cores import count_cores
from .decoded_rows import Column, DecodedRows
from .stored_rows import PartReader, StoredRows

Window = TypeVar("Window")

Use = Callable[[dict[str, Column]], None]
"""Takes the columns of a part where they were decoded, while they are in its core's cache."""


def decode_windows(
    windows: Iterable[tuple[Window, Iterable[tuple[StoredRows, Use]]]],
    check: Callable[[DecodedRows], None],
    parallel_calls: int | None = None,
) -> Iterator[Window]:
    """Decode the rows of every window, and give the window when all of them were used.

    Parts are decoded side by side, whatever window they are of: nobody waits but whoever wants a
    window that is not there yet. What goes wrong is raised in place of its window.

    Args:
        windows: each with its rows, in order, and what is to be done with every part of them.
        check: called once with everything that was decoded; raises where it cannot be used.
        parallel_calls: so many threads; None for one per core.
    """
    threads = ThreadPoolExecutor(parallel_calls or count_cores())
    latest: dict[PartReader, Future[None]] = {}

    def start(stored: StoredRows, use: Use) -> Iterator[Future[None]]:
        nonlocal latest
        work = {
            part: threads.submit(_decode, stored, part, use, check, latest.get(part))
            for part in stored.parts
        }
        latest = work
        yield from work.values()

    ready: tuple[Window, list[Future[None]]] | None = None
    try:
        for window, rows in windows:
            started = window, [future for piece in rows for future in start(*piece)]
            if ready is not None:
                yield _finished(*ready)
            ready = started
        if ready is not None:
            yield _finished(*ready)
    finally:
        threads.shutdown(cancel_futures=True)


def _decode(
    stored: StoredRows,
    part: PartReader,
    use: Use,
    check: Callable[[DecodedRows], None],
    before: Future[None] | None,
) -> None:
    if before is not None:
        before.result()  # the same reader's: it was begun earlier, so this wait ends
    columns, whole = stored.decode(part)
    use(columns)
    if whole is not None:
        check(whole)


def _finished(window: Window, work: list[Future[None]]) -> Window:
    for future in work:
        future.result()
    return window
