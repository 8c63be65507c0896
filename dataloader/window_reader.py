"""The rows of an epoch window by window: read, decoded and checked ahead of the batches."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from merlin.schema import Schema

from .background import Background
from .batch_form import list_widths, small_ids
from .batches.filled_window import FilledWindow
from .batches.memory_blocks import MemoryBlocks
from .epoch_plan import EpochPlan, RankRows, Rows
from .gpu_rows import DeviceWindow, FrameReader, FrameRows, rows_to_read
from .row_check import RowCheck
from .rows.decoded_rows import ListColumn
from .rows.decoding import decode_windows
from .rows.gathered_rows import GatheredRows
from .rows.row_source import ParquetRows, RowSource
from .rows.sequence_reader import SequenceReader


class RowWindow(NamedTuple):
    """Rows that are shuffled together, as far as they are of this rank."""

    first_step: int
    """The first step whose rows these are."""

    rows: FilledWindow | GatheredRows | DeviceWindow
    """What batches are taken from."""

    batches: list[Rows]
    """The numbers of the rows of each batch."""


@dataclass(frozen=True)
class WindowReader:
    """Reads the rows of one rank, in the form that the batches are to have."""

    schema: Schema
    """The columns that are read."""

    rank: int
    ranks: int
    pad_lists: bool
    compact_ids: bool
    check: bool
    parallel_calls: int | None
    """Threads that decode; None for one per core."""

    blocks: MemoryBlocks
    """The memory of the batches."""

    def read(
        self, source: RowSource, plan: EpochPlan, first_step: int
    ) -> Generator[RowWindow, None, None]:
        """Read on the processor: into the batches' own memory where all lists have a width."""
        layout = source.layout
        lists = {name for name, like in layout.columns.items() if isinstance(like, ListColumn)}
        spans = self._spans(plan, first_step, SequenceReader(source, plan))
        check: Callable[[Any], None] = _accept
        if self.check:
            check = RowCheck(self.schema)
        if lists <= self._widths.keys():

            def filled() -> Iterator[Any]:
                for first, rows, pieces in spans:
                    window = FilledWindow(
                        rows.batches, layout, self._widths, self._small_ids, self.blocks
                    )
                    work = ((stored, window.expect(*span)) for stored, *span in pieces)
                    yield RowWindow(first, window, rows.batches), work

            yield from decode_windows(filled(), check, self.parallel_calls)
            return

        def gathered() -> Iterator[Any]:
            for first, rows, pieces in spans:
                known = list(pieces)
                yield (first, known, rows.batches), [(stored, _accept) for stored, *_ in known]

        for first, known, batches in decode_windows(gathered(), check, self.parallel_calls):
            pieces = [(stored.whole(), *span) for stored, *span in known]
            window = GatheredRows(pieces, layout, self._widths, self._small_ids)
            yield RowWindow(first, window, batches)

    def read_on_device(
        self, source: ParquetRows, plan: EpochPlan, first_step: int, frames: Any
    ) -> Generator[RowWindow, None, None]:
        """Read with cudf, a window ahead, small windows together."""
        layout = source.layout
        reader = FrameReader(FrameRows(source, frames, self.schema, self.check), plan)

        def read() -> Iterator[RowWindow]:
            windows = list(plan.windows(first_step))
            rows_of_window = max((w.batches * w.batch_rows for w in windows), default=1)
            mine = max(1, rows_of_window // self.ranks)
            together = max(1, rows_to_read(layout, self._widths) // mine)
            for index in range(0, len(windows), together):
                group = windows[index : index + together]
                of_rank = [plan.rank_rows(w, self.rank, self.ranks) for w in group]
                reader.fetch([span for rows in of_rank for span in rows.spans])
                for window, rows in zip(group, of_rank, strict=True):
                    pieces = reader.pieces(rows.spans)
                    first = window.first_row // plan.global_batch_size
                    on_device = DeviceWindow(pieces, layout, self._widths, self._small_ids)
                    yield RowWindow(first, on_device, rows.batches)

        windows = Background(read(), ahead=1)
        try:
            yield from windows
        finally:
            windows.stop()

    @cached_property
    def _widths(self) -> dict[str, int]:
        return list_widths(self.schema, ragged=self.pad_lists)

    @cached_property
    def _small_ids(self) -> frozenset[str]:
        return small_ids(self.schema) if self.compact_ids else frozenset()

    def _spans(
        self, plan: EpochPlan, first_step: int, reader: SequenceReader
    ) -> Iterator[tuple[int, RankRows, Iterator[Any]]]:
        """Give each window's first step, its rows, and its pieces, to be asked for in order."""
        for window in plan.windows(first_step):
            rows = plan.rank_rows(window, self.rank, self.ranks)
            pieces = (piece for span in rows.spans for piece in reader.read(*span))
            yield window.first_row // plan.global_batch_size, rows, pieces


def _accept(anything: Any) -> None:
    """Do nothing about it."""
