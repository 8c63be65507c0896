"""Samples per second from files to tensors: four 100-long history columns, batch 4096.

The feed, Merlin's own loader, and published-style TFRecord pipelines over the same rows: records of
one sample, and prebatched ones, which is their fastest.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import merlin.dataloader.tensorflow  # noqa: E402
import merlin.io  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import (  # noqa: E402
    prebatched_batches,
    tfrecord_batches,
    write_dataset,
    write_tfrecord,
)

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402

BATCH = 4096
ROWS, TFRECORD_ROWS, STOCK_ROWS = 24 * 16384, 5 * BATCH, 512


def main() -> None:
    """Write the rows, then read them in every way, in turn."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        dataset = write_dataset(root / "dataset", ROWS)
        write_tfrecord(dataset, root / "rows.tfrecord", TFRECORD_ROWS)
        write_tfrecord(dataset, root / "together.tfrecord", TFRECORD_ROWS, BATCH)
        small = root / "small.parquet"
        pq.write_table(pq.read_table(dataset.files("train")[0]).slice(0, STOCK_ROWS), small)
        columns = dataset.schema.column_names
        shuffled = open_loader(dataset, "train", columns, BATCH, Ranks(), shuffle=True, seed=1)
        stored = open_loader(dataset, "train", columns, BATCH, Ranks())
        records = tfrecord_batches(root / "rows.tfrecord", BATCH)
        prebatched = prebatched_batches(root / "together.tfrecord", BATCH)
        source = merlin.io.Dataset(str(small), engine="parquet", schema=dataset.schema, cpu=True)

        def count(batches) -> int:
            return sum(int(labels.shape[0]) for _, labels in batches)

        def stock() -> int:
            return count(merlin.dataloader.tensorflow.Loader(source, BATCH, shuffle=False))

        alternatives = {
            "feed, shuffled": lambda: count(shuffled),
            "feed, stored order": lambda: count(stored),
            "TFRecord, parse_example": lambda: count(records),
            "TFRecord, prebatched": lambda: count(prebatched),
            "Merlin's loader on CPU": stock,
        }
        in_turn(alternatives, 1)  # fills the page cache
        show("feed", in_turn(alternatives, 5), "TFRecord, parse_example")


if __name__ == "__main__":
    main()
