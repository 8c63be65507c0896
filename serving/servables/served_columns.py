"""The columns that a servable reads, by the part they play, without TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...foundation.batch_names import OFFSETS, VALUES
from ...schemas.channels import (
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
    channels_of,
)

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema, Schema

Tensors = dict[str, npt.NDArray[Any]]
"""The inputs of a signature by name."""


@dataclass(frozen=True)
class Column:
    """One column of the schema, as serving needs it."""

    name: str
    domain: str
    """Name of its domain of ids; of a column without ids its own name."""
    dtype: npt.DTypeLike
    largest_id: int | None
    """The domain's largest id; None for a column of numbers."""
    width: int | None = None
    """How many values a row has where that is fixed: of a vector, of a list of ids without an
    order, which 0 fills up; None for a single value, and for a history."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a column that is not a history."""
        return (-1,) if self.width is None else (-1, self.width)


@dataclass(frozen=True)
class ServedColumns:
    """The columns of one servable."""

    users: tuple[Column, ...]
    """Ids of the user, and of the moment that a request is of."""
    targets: tuple[Column, ...]
    histories: tuple[Column, ...]
    """In the order of ``targets``; none where requests are plain rows."""
    intervals: Column | None
    """Time intervals, aligned with the histories."""
    longest: int
    """Positions of a history that the model reads, the newest."""
    is_ragged: bool
    """Whether histories are values and offsets, or padded rows."""
    user_numbers: tuple[Column, ...] = ()
    """Numbers and vectors beside the user."""
    target_lists: tuple[Column, ...] = ()
    """Lists of ids of each candidate."""
    target_numbers: tuple[Column, ...] = ()
    """Numbers and vectors of each candidate."""

    @classmethod
    def read(cls, schema: Schema) -> ServedColumns:
        """Read the channels of a schema."""
        channels = channels_of(schema)

        def columns(channel: str) -> tuple[Column, ...]:
            return tuple(_column(schema[name]) for name in channels.get(channel, ()))

        histories = columns(POSITIVE_HISTORY)
        first = schema[histories[0].name]
        return cls(
            users=(*columns(USER_FEATURES), *columns(CONTEXT_FEATURES)),
            targets=columns(TARGET_ITEM_FEATURES),
            histories=histories,
            intervals=next(iter(columns(HISTORY_TIME_INTERVALS)), None),
            longest=int(first.value_count.max),
            is_ragged=bool(first.is_ragged),
            user_numbers=columns(USER_NUMERICAL),
            target_lists=columns(TARGET_ITEM_LISTS),
            target_numbers=columns(TARGET_ITEM_NUMERICAL),
        )

    @classmethod
    def of_rows(cls, schema: Schema, names: Sequence[str]) -> ServedColumns:
        """Take columns as they stand beside each other in a plain row: all change row by row."""
        targets = tuple(_column(schema[name]) for name in names)
        return cls((), targets, (), None, longest=0, is_ragged=False)

    @property
    def of_user(self) -> tuple[Column, ...]:
        """All columns with one row for each user."""
        return (*self.users, *self.user_numbers)

    @property
    def of_target(self) -> tuple[Column, ...]:
        """All columns with one row for each candidate."""
        return (*self.targets, *self.target_lists, *self.target_numbers)

    @property
    def lists(self) -> tuple[Column, ...]:
        """All columns with a history in each row."""
        return (*self.histories, *((self.intervals,) if self.intervals else ()))

    @property
    def inputs(self) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
        """The signature: input -> dtype and shape, -1 where any length goes."""
        found: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {}
        for column in (*self.of_user, *self.of_target):
            found[column.name] = (column.dtype, column.shape)
        for column in self.lists:
            if self.is_ragged:
                found[column.name + VALUES] = (column.dtype, (-1,))
                found[column.name + OFFSETS] = (np.int32, (-1,))
            else:
                found[column.name] = (column.dtype, (-1, self.longest))
        return found


def _column(column: ColumnSchema) -> Column:
    domain = column.int_domain
    dtype = np.dtype(column.dtype.to("numpy"))
    width = int(column.value_count.max) if column.is_list and not column.is_ragged else None
    if domain is None or domain.max is None:
        return Column(column.name, column.name, dtype, None, width)
    return Column(column.name, domain.name or column.name, dtype, int(domain.max), width)
