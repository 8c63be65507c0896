"""How good the search stage is: what it keeps of what exact attention would look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import tensorflow as tf

from ..dataloader.loader import ONCE_MB
from ..dataloader.open_loader import open_loader
from ..foundation.exceptions import MerlinSimError
from ..foundation.progress import Reporter
from ..foundation.ranks import Ranks
from ..schemas.dataset import DatasetDirectory
from .blocks.checks import check_choice, check_positive
from .blocks.search.search_units import GeneralSearchUnit, HardSearchUnit
from .blocks.search.top_k_mask import top_k_mask
from .blocks.shapes import as_rows
from .known_families import families
from .registry import family_of
from .sim import SearchedModel

Array = np.ndarray[Any, Any]
ROWS_PER_BATCH = 1024
FOUND_WITHOUT_LIMIT = 100
"""How many positions are looked for where the model's own search keeps any number, as SDIM's."""


@dataclass(frozen=True)
class SearchRow:
    """The search stage on the users whose long histories have a certain length."""

    lengths: tuple[int, int]
    """Shortest and longest number of real positions in the long history, both included."""
    samples: int
    """How many samples have such a history."""
    recall: float
    """Of the best positions by exact attention, the share that the model's own search keeps."""
    attention: float
    """The share of the exact attention's weight on the positions that the own search keeps."""
    soft_recall: float
    """As ``recall``, of soft search, the dot product's best."""
    soft_attention: float
    """As ``attention``, of soft search."""
    hard_recall: float | None
    """As ``recall``, of hard search; None without a category."""
    hard_attention: float | None
    """As ``attention``, of hard search; None without a category."""
    overlap: float | None
    """Positions that soft and hard search both keep, of those that either does; None without a
    category."""


def search_report(
    model: SearchedModel,
    batches: Iterable[Mapping[str, Any]],
    category_feature: str | None = None,
    longest: Sequence[int] | None = None,
    best: int | None = None,
) -> list[SearchRow]:
    """Compare searches with exact target attention, by length of the long history.

    Exact attention is what the model's attention unit would give to the whole long history (the
    mean over its heads; for SDIM, whose attention has no scores, the dot product's). The model's
    own search is compared as it is, SDIM's by the positions of most collisions, which are as many
    as the best; soft and hard search beside it keep as many, too. Samples without a long history
    are left out.

    Args:
        model: A model with a search: SIM, ETA, SDIM or TWIN.
        batches: Batches of columns, as ``model.forward`` takes them.
        category_feature: The target item's column that is its category; None for the model's own
            option, and without one hard search is left out.
        longest: The longest length of each row but the last; None for quarters of the longest.
        best: How many positions by exact attention are to be found; None for as many as the
            model's own search keeps, or, where that is any number, 100.
    """
    body = model.body
    name = category_feature or getattr(body.options, "category_feature", None)
    if name is not None:
        check_choice("category_feature", name, body.channels.target_item)
    if best is None:
        best = getattr(body.options, "top_k", FOUND_WITHOUT_LIMIT)
    check_positive("best", best)
    long_length = body.options.long_length
    if longest is None:
        longest = [long_length * quarter // 4 for quarter in (1, 2, 3)]
    limits = np.unique([*longest, long_length])
    measured: list[list[Array]] = [_measure(model, columns, name, best) for columns in batches]
    if not measured:
        return []
    lengths, *shares = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    rows = []
    for index, limit in enumerate(limits):
        shortest = int(limits[index - 1]) + 1 if index else 1
        chosen = (lengths >= shortest) & (lengths <= limit)
        if chosen.any():
            means = [_mean(share[chosen]) for share in shares]
            known, hard = [mean or 0.0 for mean in means[:4]], means[4:]
            rows.append(SearchRow((shortest, int(limit)), int(chosen.sum()), *known, *hard))
    return rows


def format_search_report(rows: Sequence[SearchRow]) -> str:
    """Lay a report out as a table.

    >>> table = format_search_report([SearchRow((1, 45), 8, 1.0, 0.9, 0.5, 0.25, None, None, None)])
    >>> for line in table.splitlines():
    ...     print(line[:66])
    length     samples  recall  attention  soft recall  soft attention
    1-45             8   1.000      0.900        0.500           0.250
    """
    names = [field.name for field in fields(SearchRow) if field.name not in ("lengths", "samples")]
    titles = [name.replace("_", " ") for name in names]
    lines = [f"{'length':9}  {'samples':>7}  " + "  ".join(titles)]
    for row in rows:
        cells = []
        for name, title in zip(names, titles, strict=True):
            value = getattr(row, name)
            cells.append(f"{'-' if value is None else format(value, '.3f'):>{len(title)}}")
        length = f"{row.lengths[0]}-{row.lengths[1]}"
        lines.append(f"{length:9}  {row.samples:7d}  " + "  ".join(cells))
    return "\n".join(lines)


def _measure(
    model: SearchedModel, columns: Mapping[str, Any], category: str | None, best: int
) -> list[Array]:
    body, features = model.body, model.body.features(columns)
    vectors = body.embed(features, with_gradient=False)
    target, history = body.target_and_history(features, vectors)
    heads = body.attention_unit.weights_over(target, history, history.mask)
    exact = as_rows(tf.reduce_mean(heads, axis=2))
    best_ones = top_k_mask(exact, best)
    everywhere = tf.zeros_like(heads[:, :, 0], tf.bool)  # one row for all candidates becomes each's
    lengths = np.sum(as_rows(history.mask | everywhere).numpy(), axis=1)
    # What the model's own search keeps; of one that keeps all, the strongest.
    found = body.search_unit(target, history)
    chosen = found.selected
    if found.strength is not None:
        chosen = top_k_mask(found.strength, best)
    own = as_rows(chosen | everywhere)
    soft = as_rows(GeneralSearchUnit(best)(target, history).selected)
    shares = [
        part for kept in (own, soft) for part in (_share(best_ones, kept), _weight(exact, kept))
    ]
    if category is None:
        return [lengths, *shares, *[np.full(len(lengths), np.nan)] * 3]
    hard = as_rows(HardSearchUnit(category, best)(target, history).selected)
    either = np.sum((hard | soft).numpy(), axis=1)
    both = np.sum((hard & soft).numpy(), axis=1)
    overlap = np.divide(both, either, out=np.full(len(lengths), np.nan), where=either > 0)
    return [lengths, *shares, _share(best_ones, hard), _weight(exact, hard), overlap]


def _share(best: tf.Tensor, kept: tf.Tensor) -> Array:
    best_ones = np.sum(best.numpy(), axis=1)
    found = np.sum((best & kept).numpy(), axis=1)
    return np.divide(found, best_ones, out=np.full(len(best_ones), np.nan), where=best_ones > 0)


def _mean(shares: Array) -> float | None:
    known = shares[~np.isnan(shares)]
    return float(known.mean()) if known.size else None


def _weight(exact: tf.Tensor, kept: tf.Tensor) -> Array:
    shares: Array = np.sum(tf.where(kept, exact, 0.0).numpy(), axis=1)
    return shares


def search_rows(
    model: Any,
    dataset: DatasetDirectory,
    most: int,
    category_feature: str | None,
    reporter: Reporter,
    best: int | None = None,
) -> list[SearchRow]:
    """Compare the search stage with exact attention on test data."""
    if not family_of(model).has_search:
        having = ", ".join(name for name, family in families().items() if family.has_search)
        raise MerlinSimError(
            f"expected a model with a search stage (`model_type` {having}). "
            f"Received: {type(model).__name__}."
        )
    columns = list(model.channels.served)
    feed = open_loader(dataset, "test", columns, ROWS_PER_BATCH, Ranks(), data_memory_mb=ONCE_MB)
    rows = min(most, feed.plan(0).rows)

    def batches() -> Iterator[dict[str, Any]]:
        done = 0
        try:
            for batch, _ in feed:
                count = min(rows - done, len(next(iter(batch.values()))))
                yield {name: values[:count] for name, values in batch.items()}
                done += count
                report(count, count)
                if done == rows:
                    return
        finally:
            feed.stop()

    with reporter.phase("searching", rows) as report:
        return search_report(model, batches(), category_feature, best=best)
