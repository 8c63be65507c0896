"""Whether an order that nobody behaved in tells positives from negatives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...schemas.item_table import ID, KEY
from .checked_rows import Array
from .feature_counts import auc_of_counts
from .finding import Finding

LEAST_ROWS = 100
"""Of either label; of fewer an order tells nothing."""
EXACT = 64
"""Steps up to here are told apart one by one, larger ones by their number of bits."""
RANKS = 256


class StepCounts:
    """Counts rows by how far the target stands above the last item of the history, and by label.

    The rule that it measures needs no training: the smaller the step up, the likelier the label 1.

    Args:
        order: What orders the items, for messages.
        rank_of: By id, an item's rank in that order.
    """

    def __init__(self, order: str, rank_of: Array) -> None:
        """Begin with nothing counted."""
        self.order = order
        self._rank_of = rank_of
        self._counts = np.zeros((EXACT + 64, 2), np.int64)

    def add(self, targets: Array, last: Array, labels: Array) -> None:
        """Count rows; those without history (0 as the last item) are left out."""
        known = last > 0
        steps = self._rank_of[targets[known]] - self._rank_of[last[known]]
        bits = np.ceil(np.log2(np.maximum(steps, 1))).astype(np.int64)
        group = np.where(steps < EXACT, steps, EXACT + bits)
        np.add.at(self._counts, (np.maximum(group, 0), labels[known]), 1)

    def finding(self, column: str, bound: float) -> Finding | None:
        """Say how well the rule does; nothing where there are too few rows."""
        scores = -np.arange(len(self._counts), dtype=np.float64)
        scores[0] = -float(len(scores))  # no step up at all is the least likely
        auc = auc_of_counts(scores, self._counts)
        if auc is None or self._counts.sum(axis=0).min() < LEAST_ROWS:
            return None
        return _finding(f"{self.order} above the last", column, auc, auc, bound)


class RankCounts:
    """Counts rows by where they stand in their file, and by label."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self._counts = np.zeros((RANKS, 2), np.int64)

    def add(self, ranks: Array, labels: Array) -> None:
        """Count rows; ``ranks`` are shares of the file, 0 to 1."""
        np.add.at(self._counts, ((ranks * RANKS).astype(np.int64), labels), 1)

    def finding(self, mapping: str, bound: float) -> Finding | None:
        """Say how well the place in the file tells the label; nothing of too few rows."""
        auc = auc_of_counts(np.arange(RANKS, dtype=np.float64), self._counts)
        if auc is None or self._counts.sum(axis=0).min() < LEAST_ROWS:
            return None
        return _finding("rank in the file", mapping, auc, max(auc, 1 - auc), bound)


def _finding(check: str, where: str, auc: float, strength: float, bound: float) -> Finding:
    return Finding(check, where, auc, bound, strength > bound, f"AUC {auc:.4f}")


def key_ranks(vocabulary: Path, size: int) -> Array | None:
    """By id, a key's rank in the order of the keys: of numbers, or of texts.

    Args:
        vocabulary: The file of the domain.
        size: How many ids there are, the padding counted.

    Returns:
        None where there is no such file.
    """
    if not vocabulary.is_file():
        return None
    table = pq.read_table(vocabulary, columns=[ID, KEY])
    keys = table[KEY].combine_chunks()
    if pa.types.is_string(keys.type) and pc.all(pc.utf8_is_decimal(keys)).as_py():
        keys = pc.utf8_lpad(keys, pc.max(pc.utf8_length(keys)).as_py(), "0")  # 9 before 10
    ranks: Array = np.zeros(size, np.int64)
    places = np.empty(len(keys), np.int64)
    places[np.asarray(pc.sort_indices(keys))] = np.arange(len(keys))
    ranks[np.asarray(table[ID])] = places
    return ranks
