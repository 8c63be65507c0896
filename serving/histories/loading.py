"""Interactions from where they are already: a raw log, or what a dataset keeps of its log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Reporter
from ...foundation.requests import RequestError
from ...schemas.users_layout import JOINS
from ...workflows.behaviour_columns import ROLE, BehaviourColumns
from ...workflows.interactions import with_roles
from ...workflows.preprocess.earlier_histories import EarlierHistories
from ...workflows.preprocess.fitted import FittedWorkflow
from ...workflows.rules import ITEM_ORDER
from ...workflows.table_log import TableLog
from ...workflows.text_lines import BadRows, checked
from ...workflows.times import NANOSECONDS
from .store import ITEM, USER, Interaction, check_time, key_text

SECOND = NANOSECONDS["date in s"]
ROWS = 100_000
"""Interactions that are handed over at once."""


def read_log(
    source: TableLog, on_bad_rows: str, bad: list[BadRows], reporter: Reporter
) -> Iterator[list[Interaction]]:
    """Read what makes history in a log: what was taken, by the behaviours that do.

    Rows that cannot be read are refused, or added to ``bad``.
    """
    columns, kind = source.columns, source.time_kind()
    with reporter.phase("reading interactions", source.size()) as report:
        for block in source.blocks():
            lines, done = block.lines_before(), 0
            of_block = BadRows(str(block.path))
            for piece in checked(block, source.read(block), on_bad_rows):
                of_block.add(piece.bad, lines)
                lines += piece.lines
                table = _those_that_join(piece.table, columns)
                yield from _interactions(table, columns, kind, str(block.path))
                report(piece.done - done, table.num_rows)
                done = piece.done
            if of_block.count:
                bad.append(of_block)


def _those_that_join(table: pa.Table, columns: BehaviourColumns) -> pa.Table:
    if columns.behaviour is not None:
        with_role, _ = with_roles(table, columns)
        return with_role.filter(pc.equal(pc.bit_wise_and(with_role[ROLE], JOINS), JOINS))
    if columns.label is not None:
        return table.filter(pc.equal(table[columns.label], 1))
    return table


@dataclass(frozen=True)
class KeptHistories:
    """Users' histories that a dataset of a behaviour log keeps, for the next day too."""

    files: EarlierHistories
    columns: BehaviourColumns
    by_item: bool
    """Whether interactions of one time are in the order of their items."""

    @classmethod
    def open(cls, directory: Path) -> KeptHistories:
        """Read what the dataset's workflow says of them."""
        workflow = FittedWorkflow.load(directory)
        if workflow.kept is None:
            raise MerlinSimError(
                f"{directory}: keeps no histories of its users. `merlin-sim preprocess` writes them"
                " of logs of behaviour."
            )
        return cls(workflow.kept, workflow.columns, workflow.rules.equal_times == ITEM_ORDER)

    def read(self, path: Path, names: Sequence[str], filters: Any = None) -> pa.Table:
        """Read what makes history of one of the files, in the order of a history."""
        columns = self.columns
        every = dict.fromkeys((*names, columns.user, columns.item, columns.timestamp, ROLE))
        table = self.files.read(path, [*every], filters)
        table = table.filter(pc.equal(pc.bit_wise_and(table[ROLE], JOINS), JOINS))
        order = (columns.timestamp, *([columns.item] if self.by_item else []))
        # Stable: the log's order stays within one time.
        return table.sort_by([(name, "ascending") for name in order])


def read_dataset(directory: Path, reporter: Reporter) -> Iterator[list[Interaction]]:
    """Read what a dataset keeps of its users' histories."""
    kept = KeptHistories.open(directory)

    def pieces() -> Iterator[list[Interaction]]:
        with reporter.phase("reading histories", kept.files.size()) as report:
            for path in kept.files.paths:
                table = kept.read(path, ())
                yield from _interactions(table, kept.columns, kept.files.times, str(path))
                report(path.stat().st_size, table.num_rows)

    return pieces()


def _interactions(
    table: pa.Table, columns: BehaviourColumns, kind: str, path: str
) -> Iterator[list[Interaction]]:
    for start in range(0, table.num_rows, ROWS):
        part = table.slice(start, ROWS)
        times = _kept_times(np.asarray(part[columns.timestamp]), kind)
        users, items = part[columns.user].to_pylist(), part[columns.item].to_pylist()
        try:
            yield [
                Interaction(key_text(user, USER), key_text(item, ITEM), check_time(time))
                for user, item, time in zip(users, items, times, strict=True)
            ]
        except RequestError as error:
            raise MerlinSimError(f"{path}: {error}.") from error


def _kept_times(times: npt.NDArray[Any], kind: str) -> list[int | float]:
    """Dates in seconds since 1970, as an event's own time is; numbers as the log has them.

    >>> _kept_times(np.array([2_000, 2_500]), "date in ms"), _kept_times(np.array([7]), "int")
    ([2, 2.5], [7])
    """
    if kind not in NANOSECONDS:
        return [*times.tolist()]
    unit = NANOSECONDS[kind]
    seconds = times / (SECOND // unit) if unit < SECOND else times * float(unit // SECOND)
    return [int(second) if second.is_integer() else second for second in seconds.tolist()]
