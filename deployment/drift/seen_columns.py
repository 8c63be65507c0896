"""What a dataset's columns hold, counted: ids by how often, numbers and lengths as they are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from ...dataloader.loader import ONCE_MB
from ...dataloader.open_loader import open_loader
from ...foundation.progress import Narrator
from ...foundation.ranks import Ranks
from ...schemas.channels import (
    HISTORY_TIME_INTERVALS,
    LABEL,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
)
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of
from ...steps.sample_batch import SampleBatch
from .distances import Array

ROWS_PER_BATCH = 16_384


@dataclass
class SeenColumns:
    """The columns of some rows."""

    rows: int = 0
    clicks: int = 0
    labelled: bool = True
    """Whether it is known which of them were clicks."""
    counts: dict[str, Array] = field(default_factory=dict)
    """Column of ids -> how often each id was seen; of lists without the 0 that fills up."""
    numbers: dict[str, Array] = field(default_factory=dict)
    """Column of numbers -> its values; of vectors their lengths."""
    lengths: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Of the histories; nothing where rows have none."""

    @property
    def columns(self) -> set[str]:
        """All columns that were counted."""
        return {*self.counts, *self.numbers}


def see_columns(
    dataset: DatasetDirectory,
    mapping: str,
    rows: int,
    left_out: Collection[str],
    narrator: Narrator,
) -> SeenColumns:
    """Count what the first rows of a mapping hold; of either layout, the samples that are read.

    Negative histories are drawn, and are left out.

    Args:
        dataset: An opened directory.
        mapping: Which rows.
        rows: How many at most.
        left_out: Columns that are not looked at.
        narrator: Shows progress.
    """
    channels = dataset.channels
    label = channels[LABEL][0]
    drawn = {*channels.get(NEGATIVE_HISTORY, ()), *left_out}
    history = next(iter(channels.get(POSITIVE_HISTORY, ())), None)
    read = [name for name in dataset.schema.column_names if name not in drawn]
    names = [name for names in channels.values() for name in names if name in read]
    more = [name for name in (label, history) if name is not None and name not in names]
    wanted = [*names, *more]
    feed = open_loader(dataset, mapping, wanted, ROWS_PER_BATCH, Ranks(), data_memory_mb=ONCE_MB)
    domains = {name: domain_of(dataset.schema[name]) for name in names}
    largest = {name: domain[1] for name, domain in domains.items() if domain is not None}
    counts = {name: np.zeros(last + 1, np.int64) for name, last in largest.items()}
    seen = SeenColumns(counts=counts)
    lists = {name for name in names if dataset.schema[name].is_list}
    intervals = channels.get(HISTORY_TIME_INTERVALS, [])
    numbers: dict[str, list[Array]] = {
        name: [] for name in names if name not in largest and name != label
    }
    lengths: list[Array] = []
    total = min(rows, feed.plan(0).rows)
    with narrator.phase(f"counting {dataset.path.name}", total) as report:
        for given in feed:
            batch = SampleBatch(*given)
            count = min(total - seen.rows, len(batch.labels))
            columns = {name: values.numpy()[:count] for name, values in batch.columns.items()}
            seen.clicks += int((batch.labels.numpy()[:count] > 0.5).sum())
            for name, of_ids in seen.counts.items():
                values = columns[name]
                values = values[values > 0] if name in lists else values
                of_ids += np.bincount(values, minlength=len(of_ids))
            places = None if history is None else columns[history] > 0
            if places is not None:
                lengths.append(places.sum(axis=1))
            for name, parts in numbers.items():
                parts.append(_plain(columns[name], places if name in intervals else None))
            seen.rows += count
            report(count, count)
            if seen.rows == total:
                feed.stop()
                break
    seen.numbers = {name: np.concatenate(parts) for name, parts in numbers.items()}
    if lengths:
        seen.lengths = np.concatenate(lengths)
    return seen


def _plain(values: Array, places: Array | None) -> Array:
    """Make one number of each value: of a vector its length, of a history each place's."""
    if values.ndim == 1:
        return values.astype(np.float32)
    if places is not None:
        return values[places].astype(np.float32)
    return np.asarray(np.linalg.norm(values.astype(np.float64), axis=1).astype(np.float32))
