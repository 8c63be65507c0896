"""Two datasets compared, feature by feature, and what of it is too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...foundation.settings import require_settings, setting

Array = npt.NDArray[Any]

BINS = 10
"""Into which the reference is cut for the index, each with about a tenth of it."""


def stability_index(reference: Array, new: Array) -> float:
    """Return the population stability index of counts in the same bins.

        sum of (p_new - p_reference) ln(p_new / p_reference)

    Half a count is added to each bin, so that an empty one is not infinitely far.

    >>> stability_index(np.array([5, 5]), np.array([50, 50]))
    0.0
    >>> round(stability_index(np.array([500, 500]), np.array([400, 600])), 3)
    0.04
    """
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (reference, new))
    return float(np.sum((q - p) * np.log(q / p)))


def largest_distance(reference: Array, new: Array) -> float:
    """Return Kolmogorov and Smirnov's distance of the counts of the same values, in their order.

    >>> largest_distance(np.array([1, 1, 0]), np.array([0, 1, 1]))
    0.5
    """
    if not reference.sum() or not new.sum():
        return 0.0
    below = (np.cumsum(counts) / counts.sum() for counts in (reference, new))
    return float(np.abs(np.subtract(*below)).max())


def bins_of_values(reference: Array) -> Array:
    """Return the inner edges of bins with about as many values each; fewer where values repeat."""
    return np.asarray(np.unique(np.quantile(reference, np.arange(1, BINS) / BINS)))


def count_bins(values: Array, edges: Array) -> Array:
    """Count values between edges; a value on an edge is above it."""
    return np.bincount(np.searchsorted(edges, values, "right"), minlength=len(edges) + 1)


def count_distinct(reference: Array, new: Array) -> tuple[Array, Array]:
    """Count the values of both at each different value, in their order."""
    distinct, where = np.unique(np.concatenate([reference, new]), return_inverse=True)
    parts = where[: len(reference)], where[len(reference) :]
    counts = [np.bincount(part, minlength=len(distinct)) for part in parts]
    return counts[0], counts[1]


def by_popularity(reference: Array) -> tuple[Array, Array]:
    """Put ids in order by how often the reference has them, and into bins of equal shares.

    Ids that it does not have stand with the rarest: in any sample many rare ids are missing.
    Returns the ids in their order, and the bin of each in that order.
    """
    order = np.argsort(-reference, kind="stable")
    counts = reference[order]
    before = np.cumsum(counts) - counts
    bins = np.floor(before / max(1, counts.sum()) * BINS).astype(np.int64)
    return order, np.unique(np.minimum(bins, BINS - 1), return_inverse=True)[1]


IDS, NUMBERS, LENGTHS, RATE, SCORES = "ids", "numbers", "history lengths", "label rate", "scores"


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
        """All columns that were counted; of numbers those of which there are any."""
        return {*self.counts, *(name for name, values in self.numbers.items() if len(values))}


@dataclass(frozen=True)
class DriftBounds:
    """Bounds above which a feature has drifted."""

    psi: float = setting(
        0.25, "Population stability index above which a feature has drifted.", at_least=0
    )
    ks: float = setting(
        0.2,
        "Kolmogorov and Smirnov's distance above which it has.",
        at_least=0,
        at_most=1,
    )
    unknown: float = setting(
        0.1,
        "Rise of the share of ids unknown to --reference above which it has.",
        at_least=0,
        at_most=1,
    )
    label_rate: float = setting(
        0.05,
        "Change of the share of clicks above which labels have.",
        at_least=0,
        at_most=1,
    )

    def __post_init__(self) -> None:
        require_settings(self)


@dataclass(frozen=True)
class FeatureDrift:
    """One feature of both datasets."""

    feature: str
    kind: str
    reference: int
    """How many values."""
    new: int
    psi: float
    ks: float
    reference_mean: float | None = None
    """Of numbers, lengths, labels and scores."""
    new_mean: float | None = None
    reference_unknown: float | None = None
    """Share of ids that stand for no key of the reference's."""
    new_unknown: float | None = None
    reasons: list[str] = field(default_factory=list)
    """What of it is too much; nothing where nothing is."""

    @property
    def drifted(self) -> bool:
        """Whether anything is too much."""
        return bool(self.reasons)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {**asdict(self), "drifted": self.drifted}


def compare(
    reference: SeenColumns, new: SeenColumns, bounds: DriftBounds
) -> Iterator[FeatureDrift]:
    """Compare all columns that both have, lengths of histories and labels."""
    if reference.labelled and new.labelled:
        yield _labels(reference, new, bounds)
    both = reference.columns & new.columns
    for name in reference.counts:
        if name in both:
            yield _ids(name, reference.counts[name], new.counts[name], bounds)
    for name in reference.numbers:
        if name in both:
            yield values_finding(name, NUMBERS, reference.numbers[name], new.numbers[name], bounds)
    if len(reference.lengths) and len(new.lengths):
        yield values_finding("history", LENGTHS, reference.lengths, new.lengths, bounds)


def values_finding(
    name: str, kind: str, reference: Array, new: Array, bounds: DriftBounds
) -> FeatureDrift:
    """Compare values that have an order, at least one of each."""
    edges = bins_of_values(reference)
    psi = stability_index(count_bins(reference, edges), count_bins(new, edges))
    ks = largest_distance(*count_distinct(reference, new))
    return FeatureDrift(
        name, kind, len(reference), len(new), psi, ks,
        reference_mean=float(np.mean(reference, dtype=np.float64)),
        new_mean=float(np.mean(new, dtype=np.float64)),
        reasons=_too_far(psi, ks, bounds),
    )  # fmt: skip


def _ids(name: str, reference: Array, new: Array, bounds: DriftBounds) -> FeatureDrift:
    known = len(reference)
    # Id 0 stands for no key, and an id behind the last of the reference for a key that it lacks.
    unknown = [int(reference[0]), int(new[0] + new[known:].sum())]
    sides = reference[1:], new[1:known]
    order, bins = by_popularity(sides[0])
    counts = [np.append(side[order], count) for side, count in zip(sides, unknown, strict=True)]
    last = int(bins.max(initial=-1)) + 1
    bins = np.append(bins, last)
    binned = [np.bincount(bins, side, last + 1) for side in counts]
    psi, ks = stability_index(*binned), largest_distance(*counts)
    totals = [int(side.sum()) for side in counts]
    shares = [count / max(1, total) for count, total in zip(unknown, totals, strict=True)]
    reasons = _too_far(psi, ks, bounds)
    if shares[1] - shares[0] > bounds.unknown:
        reasons.append(f"unknown {shares[0]:.1%} to {shares[1]:.1%}")
    return FeatureDrift(
        name, IDS, totals[0], totals[1], psi, ks,
        reference_unknown=shares[0], new_unknown=shares[1], reasons=reasons,
    )  # fmt: skip


def _labels(reference: SeenColumns, new: SeenColumns, bounds: DriftBounds) -> FeatureDrift:
    counts = [np.array([side.rows - side.clicks, side.clicks]) for side in (reference, new)]
    rates = [side.clicks / max(1, side.rows) for side in (reference, new)]
    psi, ks = stability_index(*counts), largest_distance(*counts)
    reasons = _too_far(psi, ks, bounds)
    if abs(rates[1] - rates[0]) > bounds.label_rate:
        reasons.append(f"clicks {rates[0]:.1%} to {rates[1]:.1%}")
    return FeatureDrift(
        "label", RATE, reference.rows, new.rows, psi, ks,
        reference_mean=rates[0], new_mean=rates[1], reasons=reasons,
    )  # fmt: skip


def _too_far(psi: float, ks: float, bounds: DriftBounds) -> list[str]:
    found = (("PSI", psi, bounds.psi), ("KS", ks, bounds.ks))
    return [f"{name} {value:.3f}" for name, value, bound in found if value > bound]
