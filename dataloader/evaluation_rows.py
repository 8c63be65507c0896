"""How the rows of an evaluation are made up, where a row holds several samples of a user."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..foundation.ranks import Ranks
from ..schemas.dataset import DatasetDirectory
from .user_rows import UserRows


class EvaluationRows(NamedTuple):
    """What ``open_loader`` is asked for."""

    candidates: int
    global_batch_size: int

    @classmethod
    def of(
        cls,
        dataset: DatasetDirectory,
        mapping: str,
        candidates: int,
        global_batch_size: int,
        ranks: Ranks,
    ) -> EvaluationRows:
        """Hold as many candidates as some user has, and full rows in a batch of about that size.

        Of test, a user has often one position alone: in rows for more, most would be fillers. What
        is scored does not depend on how it is cut.

        Args:
            dataset: an opened directory.
            mapping: what is scored.
            candidates: of a row at most; 1 for plain rows, which stay as they are.
            global_batch_size: samples of a batch at most, or of one row for each rank.
            ranks: the run.
        """
        if candidates == 1 or dataset.users is None:
            return cls(candidates, global_batch_size)
        counts = UserRows(dataset, mapping).part_positions
        of_position = dataset.users.samples_per_position
        most = of_position * max((int(np.max(of_part)) for of_part in counts), default=1)
        candidates = min(candidates, most)
        step = candidates * ranks.size
        return cls(candidates, step * max(1, global_batch_size // step))
