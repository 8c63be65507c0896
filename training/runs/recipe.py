"""How a log of one's own is trained by default, by how many samples it has.

The published recipe is made for one large benchmark: on most logs its batch of 131,072 samples
makes a handful of steps. A dataset that ``preprocess log`` made is trained by the preset that
docs/quality.md stands for, with a batch and a learning rate for its size.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from ...foundation.ranks import launched_size
from ...schemas.dataset import DatasetDirectory
from ...schemas.fitted_record import histories_record
from ...schemas.layout_names import WORKFLOW_FILE
from ...schemas.users_layout import usual_candidates
from .run_config import RunConfig

BY_ITEM = "item"
"""The order of interactions of one time in the published datasets; no log of one's own has it."""
STEPS_PER_EPOCH = 200
"""An epoch has as many steps at least, where the data allow it."""
SMALLEST_BATCH, LARGEST_BATCH = 256, 8192
MEASURED_BATCH, MEASURED_RATE = 512, 0.002
"""The batch and the rate of the preset `lifelong` in docs/quality.md."""
LARGEST_RATE = 0.004


def is_own_log(directory: Path) -> bool:
    """Return whether ``preprocess log`` made a dataset: by the rules of its fitted workflow."""
    try:
        document = json.loads((directory / WORKFLOW_FILE).read_text(encoding="utf-8"))
        record = histories_record(document)
        return record is not None and record["config"]["rules"]["equal_times"] != BY_ITEM
    except (OSError, ValueError, KeyError, TypeError):
        return False


def training_samples(dataset: DatasetDirectory) -> int:
    """Count the training samples by what files say of themselves; 0 where they cannot be read."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = dataset.stored_files("train")
    layout = dataset.users
    try:
        if layout is None:
            return sum(pq.read_metadata(path).num_rows for path in files)
        begin, end = layout.positions["train"]
        positions = 0
        for path in files:
            table = pq.read_table(path, columns=[begin, end])
            positions += (pc.sum(table[end]).as_py() or 0) - (pc.sum(table[begin]).as_py() or 0)
        return max(0, positions) * layout.samples_per_position
    except (OSError, pa.ArrowException):  # the feed says what is wrong with which file
        return 0


def batch_for(samples: int) -> int:
    """Return the largest power of two with which an epoch has enough steps, within bounds.

    >>> [batch_for(samples) for samples in (1_000, 160_000, 500_000, 100_000_000)]
    [256, 512, 2048, 8192]
    """
    rows = max(1, samples // STEPS_PER_EPOCH)
    power = 1 << (rows.bit_length() - 1)
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, power))


def rate_for(batch: int) -> float:
    """Return the learning rate for a batch: by the root of its size, up to the largest.

    >>> rate_for(256), rate_for(512), rate_for(2048), rate_for(8192)
    (0.0014, 0.002, 0.004, 0.004)
    """
    rate = MEASURED_RATE * math.sqrt(batch / MEASURED_BATCH)
    return float(f"{min(LARGEST_RATE, rate):.2g}")


def batch_of(config: RunConfig, dataset: DatasetDirectory, samples: int) -> int:
    """Return the batch for so many samples that ranks, and users' rows, can share."""
    batch = batch_for(samples)
    unit = launched_size()
    if dataset.users is not None:  # so many samples share a row of a batch at most
        unit *= config.candidates or usual_candidates(dataset.users)
    return max(unit, batch - batch % unit)
