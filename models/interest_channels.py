"""Columns of each channel, as ids, that the models read from a Merlin schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import tensorflow as tf
from merlin.schema import ColumnSchema, Schema

from ..foundation.batch_names import HISTORY_END, OFFSETS, VALUES
from ..schemas.channels import (
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
    channels_of,
    domain_of,
)
from .blocks.checks import OptionError
from .blocks.shapes import as_ids, is_one, repeat_candidates, sizes


class Features(NamedTuple):
    """One batch of users x candidates, by channel; plain rows have one candidate each.

    Ids are of :func:`~.blocks.shapes.id_type`; a history is oldest first, padded on the left.
    """

    user: dict[str, tf.Tensor]
    """User features and contexts, each [users]; or [users, candidates], where they belong to the
    interaction."""
    target_item: dict[str, tf.Tensor]
    """Features of the candidates, each [users, candidates]."""
    positive: dict[str, tf.Tensor]
    """The history, feature by feature, each [users, positions]."""
    negative: dict[str, tf.Tensor]
    """Items not clicked, for the auxiliary loss, each [users, positions]; empty at inference."""
    real: tf.Tensor
    """Which positions of the padded history are real: [users, positions], bool."""
    time_intervals: tf.Tensor | None
    """Time between the position and the candidates: [users, positions], float32; None without."""
    ends: tf.Tensor | None = None
    """Where what each candidate sees of the history ends: [users, candidates]. None where all see
    the whole of it."""
    window_ends: tf.Tensor | None = None
    """The same once for candidates one after the other that see the same: [users, windows]."""
    lists: Mapping[str, tf.Tensor] = MappingProxyType({})
    """Lists of the candidates, ids without an order, each [users, candidates, length], 0 where
    a list has ended."""
    user_numbers: tf.Tensor | None = None
    """Numbers of the user, vectors too, side by side: [users, 1, numbers], float32; or
    [users, candidates, numbers], where some belong to the interaction."""
    target_numbers: tf.Tensor | None = None
    """The candidates', likewise: [users, candidates, numbers], float32."""
    summary: tf.Tensor | None = None
    """The summaries of the windows' whole histories, where the model reads them:
    [users, windows, prototypes, dim + 1], float32."""

    def newest(self, length: int) -> Features:
        """Leave the newest positions of a history that all candidates see to its end.

        Where candidates have ends, each model cuts the windows before them by itself.
        """
        if self.ends is not None:
            return self
        intervals = self.time_intervals
        return self._replace(
            positive={name: column[:, -length:] for name, column in self.positive.items()},
            negative={name: column[:, -length:] for name, column in self.negative.items()},
            real=self.real[:, -length:],
            time_intervals=None if intervals is None else intervals[..., -length:],
        )

    @property
    def seen_until(self) -> tf.Tensor | None:
        """The ends that mask a long history: one column where all candidates have one end."""
        windows = self.window_ends
        return windows if windows is not None and is_one(sizes(windows)[1]) else self.ends


@dataclass(frozen=True)
class Channels:
    """The columns of a SIM-family dataset."""

    label: str
    user: tuple[str, ...]
    target_item: tuple[str, ...]
    positive: tuple[str, ...]
    """Columns of the history, in the order of ``target_item``."""
    negative: tuple[str, ...]
    """Columns of the negative history, in the order of ``target_item``; may be none."""
    time_intervals: str | None
    """Column of the time intervals, aligned with the history; None without."""
    history_length: int
    """Positions of a history, all histories alike."""
    schema: Schema
    target_lists: tuple[str, ...] = ()
    """Columns of lists of ids of the target item."""
    user_numerical: tuple[str, ...] = ()
    """Columns of numbers, and of vectors, of the user."""
    target_numerical: tuple[str, ...] = ()
    """Columns of numbers, and of vectors, of the target item."""

    @classmethod
    def read(cls, schema: Schema) -> Channels:
        """Read the channels from the tags of a Merlin schema, and check that they fit together."""
        names = {name: tuple(columns) for name, columns in channels_of(schema).items()}
        target, positive = names.get(TARGET_ITEM_FEATURES, ()), names.get(POSITIVE_HISTORY, ())
        negative = names.get(NEGATIVE_HISTORY, ())
        intervals = names.get(HISTORY_TIME_INTERVALS, ())
        problems = []
        if len(names.get(LABEL, ())) != 1:
            problems.append(f"{LABEL}: one column. Received: {list(names.get(LABEL, ()))}.")
        if not target:
            problems.append(f"{TARGET_ITEM_FEATURES}: at least one column. Received: none.")
        if len(positive) != len(target) or len(negative) not in (0, len(target)):
            problems.append(
                f"{POSITIVE_HISTORY} and {NEGATIVE_HISTORY}: as many columns as "
                f"{TARGET_ITEM_FEATURES}. Received: {len(positive)} and {len(negative)} for "
                f"{len(target)}."
            )
        elif target:
            problems += _unpaired(schema, names)
        if len(intervals) > 1:
            problems.append(f"{HISTORY_TIME_INTERVALS}: at most one. Received: {list(intervals)}.")
        lengths = {n: _length(schema[n]) for n in (*positive, *negative, *intervals)}
        if len(set(lengths.values())) > 1 or None in lengths.values():
            problems.append(f"history columns: one known longest length. Received: {lengths}.")
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise OptionError(f"The schema does not describe a SIM-family dataset:\n{lines}")
        return cls(
            label=names[LABEL][0],
            user=(*names.get(USER_FEATURES, ()), *names.get(CONTEXT_FEATURES, ())),
            target_item=target,
            positive=positive,
            negative=negative,
            time_intervals=intervals[0] if intervals else None,
            history_length=int(lengths[positive[0]] or 0),
            schema=schema,
            target_lists=names.get(TARGET_ITEM_LISTS, ()),
            user_numerical=names.get(USER_NUMERICAL, ()),
            target_numerical=names.get(TARGET_ITEM_NUMERICAL, ()),
        )

    @property
    def served(self) -> tuple[str, ...]:
        """The columns that inference reads: all but label and negative history."""
        intervals = (self.time_intervals,) if self.time_intervals else ()
        numerical = (*self.user_numerical, *self.target_numerical)
        histories = (*self.positive, *intervals)
        return (*self.user, *self.target_item, *histories, *self.target_lists, *numerical)

    @property
    def history_of(self) -> dict[str, str]:
        """The column of each target item feature -> that of its history."""
        return dict(zip(self.target_item, self.positive, strict=True))

    @property
    def inputs(self) -> Schema:
        """The schema of what training reads besides the label."""
        names = {*self.served, *self.negative}
        return self.schema.select_by_name([n for n in self.schema.column_names if n in names])

    @property
    def categorical(self) -> tuple[str, ...]:
        """The columns that are looked up in tables."""
        histories = (*self.positive, *self.negative)
        return (*self.user, *self.target_item, *histories, *self.target_lists)

    def numbers_dim(self, columns: Sequence[str]) -> int:
        """Return how many numbers some columns of numbers, and of vectors, have together."""
        return len(self.is_of_vector(columns))

    def is_of_vector(self, columns: Sequence[str]) -> list[bool]:
        """Say of each number of some columns whether it is one of a vector's."""
        widths = [_width(self.schema[name]) for name in columns]
        return [width is not None for width in widths for _ in range(width or 1)]

    @property
    def histories(self) -> dict[str, int]:
        """The history columns, each with its length."""
        intervals = (self.time_intervals,) if self.time_intervals else ()
        return dict.fromkeys((*self.positive, *self.negative, *intervals), self.history_length)

    def missing(self, columns: Mapping[str, Any], with_negatives: bool) -> list[str]:
        """Name the columns that are needed and, in whatever form, not there."""
        needed = (*self.served, *(self.negative if with_negatives else ()))
        return [
            name
            for name in needed
            if name not in columns and not {name + VALUES, name + OFFSETS} <= set(columns)
        ]

    def gather(self, columns: Mapping[str, tf.Tensor]) -> Features:
        """Sort padded columns into channels."""
        ends = window_ends = None
        length = self.history_length
        if HISTORY_END in columns:
            length, sharing = self._check_lengths(columns)
            window_ends = as_ids(columns[HISTORY_END])
            ends = tf.repeat(window_ends, sharing, axis=1) if sharing > 1 else window_ends
        histories = {
            n: _ids(columns[n], [length]) for n in self.positive + self.negative if n in columns
        }
        intervals = None
        if self.time_intervals:
            intervals = tf.cast(columns[self.time_intervals], tf.float32)
        return Features(
            user={n: _user_ids(columns[n]) for n in self.user},
            target_item={n: self._of_item(n, as_ids(columns[n])) for n in self.target_item},
            positive={n: histories[n] for n in self.positive},
            negative={n: histories[n] for n in self.negative if n in histories},
            real=histories[self.positive[0]] > 0,
            time_intervals=intervals,
            ends=ends,
            window_ends=window_ends,
            lists={n: self._of_item(n, as_ids(columns[n])) for n in self.target_lists},
            user_numbers=self._numbers(self.user_numerical, columns),
            target_numbers=self._numbers(self.target_numerical, columns),
        )

    def _of_item(self, name: str, column: tf.Tensor) -> tf.Tensor:
        """Return values as [users, candidates], and lists as [users, candidates, width].

        Plain rows have one candidate each: of single values [rows] or [rows, 1], of lists
        [rows, width], or as Merlin has them [rows, width, 1].
        """
        width = _width(self.schema[name])
        if width is None:
            return column if column.shape.rank == 2 else tf.reshape(column, [-1, 1])
        if column.shape.rank == 3 and column.shape[2] in (width, None):
            return tf.ensure_shape(column, [None, None, width])
        return tf.reshape(column, [-1, 1, width])

    def _numbers(self, names: Sequence[str], columns: Mapping[str, tf.Tensor]) -> tf.Tensor | None:
        """[users, candidates, numbers] of columns, or None; one candidate where all have one."""
        found = [self._of_item(name, tf.cast(columns[name], tf.float32)) for name in names]
        found = [part if part.shape.rank == 3 else part[..., tf.newaxis] for part in found]
        several = [numbers for numbers in found if not is_one(sizes(numbers)[1])]
        if several and len(several) < len(found):
            found = [repeat_candidates(numbers, sizes(several[0])[1]) for numbers in found]
        return tf.concat(found, axis=-1) if found else None

    def _check_lengths(self, columns: Mapping[str, tf.Tensor]) -> tuple[int, int]:
        """Return how many positions the histories have, and how many candidates share an end."""
        names = (*self.target_item, *self.positive, *self.negative)
        shapes = {n: columns[n].shape.as_list() for n in (HISTORY_END, *names) if n in columns}
        windows = shapes[HISTORY_END][-1:]
        lengths = [shapes[n][-1:] for n in (*self.positive, *self.negative) if n in shapes]
        candidates = [shapes[n][-1:] for n in self.target_item]
        intervals = columns[self.time_intervals].shape if self.time_intervals else None
        if intervals is not None and intervals.as_list()[1:] != [windows[0], *lengths[0]]:
            raise OptionError(
                f"A batch with `{HISTORY_END}` should have time intervals of [users, windows, "
                "positions]: how long before each window's end each is. Received: "
                f"{self.time_intervals!r} of {intervals} with {windows} windows and {lengths[0]} "
                "positions."
            )
        fits = (
            all(len(shape) == 2 for shape in shapes.values())
            and all(size == lengths[0] for size in lengths)
            and all(size == candidates[0] for size in candidates)
            and (lengths[0][0] or 0) >= self.history_length
            and (windows == candidates[0] or _divides(windows[0], candidates[0][0]))
        )
        if not fits:
            raise OptionError(
                f"A batch with `{HISTORY_END}` should have it as [users, windows], the target "
                "item's columns as [users, candidates], as many for each window, and histories as "
                "[users, positions], of one known number of at least "
                f"{self.history_length}. Received: {shapes}."
            )
        sharing = 1 if windows == candidates[0] else candidates[0][0] // windows[0]
        return int(lengths[0][0]), sharing


def _unpaired(schema: Schema, names: Mapping[str, Sequence[str]]) -> list[str]:
    """Say which histories have no target feature of their domain."""
    problems = []
    for channel in (POSITIVE_HISTORY, NEGATIVE_HISTORY):
        pairs = zip(names[TARGET_ITEM_FEATURES], names.get(channel, ()), strict=False)
        others = [
            f"{history!r} (domain {theirs!r}) for {target!r} (domain {ours!r})"
            for target, history in pairs
            if (theirs := domain_of(schema[history])) != (ours := domain_of(schema[target]))
        ]
        if others:
            problems.append(
                f"{channel}: for each target item feature a column of its domain, because both "
                f"share one table. Received: {', '.join(others)}. Give the columns of a pair one "
                "domain name in the schema."
            )
    return problems


def _divides(part: int | None, whole: int | None) -> bool:
    return bool(part) and bool(whole) and (whole or 0) % (part or 1) == 0


def _ids(column: tf.Tensor, shape: list[int]) -> tf.Tensor:
    return tf.reshape(as_ids(column), [-1, *shape])


def _user_ids(column: tf.Tensor) -> tf.Tensor:
    """Return ids as [users]; as [users, candidates] those that belong to the interaction."""
    ids = as_ids(column)
    return ids if ids.shape.rank == 2 and (ids.shape[1] or 1) > 1 else tf.reshape(ids, [-1])


def _width(column: ColumnSchema) -> int | None:
    """Return how many values a row has: None for one that is not a list."""
    return int(column.value_count.max) if column.is_list else None


def _length(column: ColumnSchema) -> int | None:
    dims: list[Any] = list(column.shape.dims or [])
    longest = dims[1].max if len(dims) > 1 else None
    return None if not longest else int(longest)
