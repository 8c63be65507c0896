"""How good the search stage is: what it keeps of what exact attention would look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ..blocks.checks import check_choice
from ..blocks.search.general_search_unit import GeneralSearchUnit
from ..blocks.search.hard_search_unit import HardSearchUnit
from ..blocks.search.top_k_mask import top_k_mask
from ..blocks.shapes import as_rows
from .sim import SIMModel

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class SearchRow:
    """The search stage on the users whose long histories have a certain length."""

    lengths: tuple[int, int]
    """Shortest and longest number of real positions in the long history, both included."""

    samples: int
    """How many samples have such a history."""

    soft_recall: float
    """Of the top_k positions by exact attention, the share that soft search keeps."""

    soft_attention: float
    """The share of the exact attention's weight on the positions that soft search keeps."""

    hard_recall: float | None
    """As ``soft_recall``, of hard search; None without a category."""

    hard_attention: float | None
    """As ``soft_attention``, of hard search; None without a category."""

    overlap: float | None
    """Positions that both searches keep, of those that either does; None without a category."""


def search_report(
    model: SIMModel,
    batches: Iterable[Mapping[str, Any]],
    category_feature: str | None = None,
    longest: Sequence[int] | None = None,
) -> list[SearchRow]:
    """Compare soft and hard search with exact target attention, by length of the long history.

    Exact attention is what the model's attention unit would give to the whole long history (the
    mean over its heads). Samples without a long history are left out.

    Args:
        model: A SIM model.
        batches: Batches of columns, as ``model.forward`` takes them.
        category_feature: The target item's column that is its category; None for the model's own
            option, and without one hard search is left out.
        longest: The longest length of each row but the last; None for quarters of the longest.
    """
    body = model.body
    name = category_feature or body.options.category_feature
    if name is not None:
        check_choice("category_feature", name, body.channels.target_item)
    long_length = min(body.options.long_seq_length, body.channels.history_length)
    if longest is None:
        longest = [long_length * quarter // 4 for quarter in (1, 2, 3)]
    limits = np.unique([*longest, long_length])
    measured: list[list[Array]] = [_measure(model, columns, name) for columns in batches]
    if not measured:
        return []
    lengths, *shares = (np.concatenate(parts) for parts in zip(*measured, strict=True))
    rows = []
    for place, limit in enumerate(limits):
        shortest = int(limits[place - 1]) + 1 if place else 1
        chosen = (lengths >= shortest) & (lengths <= limit)
        if chosen.any():
            means = [_mean(share[chosen]) for share in shares]
            soft, hard = means[:2], means[2:]
            recall, attention = (0.0 if mean is None else mean for mean in soft)
            count = int(chosen.sum())
            rows.append(SearchRow((shortest, int(limit)), count, recall, attention, *hard))
    return rows


def format_search_report(rows: Sequence[SearchRow]) -> str:
    """Lay a report out as a table.

    >>> print(format_search_report([SearchRow((1, 45), 8, 1.0, 0.9, 0.5, 0.25, None)]))
    length     samples  soft recall  soft attention  hard recall  hard attention  overlap
    1-45             8        1.000           0.900        0.500           0.250        -
    """
    names = ("soft_recall", "soft_attention", "hard_recall", "hard_attention", "overlap")
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


def _measure(model: SIMModel, columns: Mapping[str, Any], category: str | None) -> list[Array]:
    body, features = model.body, model.features(dict(columns))
    top_k = body.options.top_k
    vectors = body.embed(features, with_gradient=False)
    target, history = body.target_and_history(features, vectors)
    heads = body.attention_unit.weights_over(target, history, history.mask)
    exact = as_rows(tf.reduce_mean(heads, axis=2))
    best = top_k_mask(exact, top_k)
    found = GeneralSearchUnit(top_k)(target, history).selected
    lengths = np.sum(as_rows(history.mask | tf.zeros_like(found)).numpy(), axis=1)
    soft = as_rows(found)
    shares = [_share(best, soft), _weight(exact, soft)]
    if category is None:
        return [lengths, *shares, *[np.full(len(lengths), np.nan)] * 3]
    hard = as_rows(HardSearchUnit(category, top_k)(target, history).selected)
    either = np.sum((hard | soft).numpy(), axis=1)
    both = np.sum((hard & soft).numpy(), axis=1)
    overlap = np.divide(both, either, out=np.full(len(lengths), np.nan), where=either > 0)
    return [lengths, *shares, _share(best, hard), _weight(exact, hard), overlap]


def _share(best: tf.Tensor, kept: tf.Tensor) -> Array:
    wanted = np.sum(best.numpy(), axis=1)
    found = np.sum((best & kept).numpy(), axis=1)
    return np.divide(found, wanted, out=np.full(len(wanted), np.nan), where=wanted > 0)


def _mean(shares: Array) -> float | None:
    known = shares[~np.isnan(shares)]
    return float(known.mean()) if known.size else None


def _weight(exact: tf.Tensor, kept: tf.Tensor) -> Array:
    shares: Array = np.sum(tf.where(kept, exact, 0.0).numpy(), axis=1)
    return shares
