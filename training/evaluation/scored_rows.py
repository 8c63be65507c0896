"""What a model said of each row, by user: from this, differences between runs are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.atomic_write import open_replacing
from ...foundation.exceptions import MerlinSimError

Array = npt.NDArray[Any]

TEST_SCORES = "test_scores.parquet"
"""Their file in a results directory."""
COLUMNS = {"user": pa.int64(), "label": pa.bool_(), "score": pa.float32()}


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Rows of an evaluation, [rows] each, in the order of users, scores and labels."""

    users: Array
    """Ids, int64."""
    labels: Array
    """Clicks where true."""
    scores: Array
    """Click probabilities, float32."""

    def write(self, path: Path) -> None:
        """Write a parquet file that is there whole or not at all.

        Raises:
            MerlinSimError: where it cannot be written.
        """
        columns = (self.users, self.labels, self.scores)
        arrays = [
            pa.array(column, kind) for column, kind in zip(columns, COLUMNS.values(), strict=True)
        ]
        with open_replacing(path) as file:
            pq.write_table(pa.table(arrays, list(COLUMNS)), file)

    @classmethod
    def read(cls, path: Path) -> ScoredRows:
        """Read what :meth:`write` wrote.

        Raises:
            MerlinSimError: where the file is not of that form.
        """
        try:
            table = pq.read_table(path, schema=pa.schema(COLUMNS.items()))
        except (OSError, pa.ArrowException) as error:
            raise MerlinSimError(f"{path}: expected the scores of a run: {error}") from error
        return cls(*(np.asarray(table[name]) for name in COLUMNS))
