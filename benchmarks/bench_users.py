"""Samples per second made of users on the device, as rows and as users x candidates.

Beside them, at length 100, what reads rows per sample with four full history columns each: this
package's loader, the published pipeline's prebatched TFRecord, and Merlin's own loader, which takes
seconds for the file. Merlin's own loader of the users is beside the one that reads them.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import merlin.dataloader.tensorflow  # noqa: E402
import merlin.io  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from measuring.records import Recording  # noqa: E402
from measuring.timing import in_turn  # noqa: E402
from rows.sim_rows import (  # noqa: E402
    LENGTH,
    prebatched_batches,
    write_dataset,
    write_tfrecord,
)
from rows.user_rows import write_users  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.dataloader.stored_rows import batches_of  # noqa: E402
from merlin_sim.dataloader.user_rows import (  # noqa: E402
    UserRows,
    UsersLoader,
    read_columns,
)
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

BATCH, CANDIDATES, INTERACTIONS = 4096, 16, 2_000_000
SAMPLES = {100: 60 * BATCH, 1000: 12 * BATCH}
"""How many are read a time, by length; of users x candidates ten times as many."""
MERLINS_ROWS = 2 * BATCH


def count(feed: Any, samples: int) -> int:
    """Read so many samples; those of fillers are none."""
    read = 0
    for _, labels, *weights in feed:
        read += int(weights[0].numpy().sum()) if weights else int(labels.shape[0])
        if read >= samples:
            break
    return read


def users_by(loader_of: Callable[..., Any], dataset: DatasetDirectory) -> Callable[[], int]:
    """Read all users with a loader; counts their interactions."""
    rows = UserRows(dataset, "train")
    files = [str(path) for path in rows.files]
    source = merlin.io.Dataset(files, engine="parquet", schema=rows.schema, cpu=True)
    users = sum(group.users for group in rows.groups)

    def read() -> int:
        batches = batches_of(loader_of(source, 1 << 16, shuffle=False), users)
        values, _ = read_columns(batches)[rows.layout.history]
        return len(values)

    return read


def alternatives_of(dataset: DatasetDirectory, samples: int) -> dict[str, Callable[[], int]]:
    """The ways in which a dataset of users is read."""
    names = dataset.schema.column_names
    positive = [name for name in names if not name.endswith("_neg")]

    def way(columns: list[str], wanted: int = samples, **options: Any) -> Callable[[], int]:
        feed = open_loader(dataset, "train", columns, BATCH, Ranks(), shuffle=True, **options)
        return lambda: count(feed, wanted)

    return {
        "users, rows": way(names),
        "users, rows, negatives of a short history of 10": way(names, negatives_read=10),
        "users, rows without negatives": way(positive),
        f"users x {CANDIDATES}": way(names, 10 * samples, candidates=CANDIDATES),
    }


def main() -> None:
    """Write the rows, then read them in every way, in turn."""
    settings = {"batch": BATCH, "candidates": CANDIDATES, "interactions": INTERACTIONS}
    recording = Recording("feed", "Feed", settings)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        rows = write_dataset(root / "samples", 8 * 16384)
        names = rows.schema.column_names
        stored = open_loader(rows, "train", names, BATCH, Ranks(), shuffle=True)
        write_tfrecord(rows, root / "together.tfrecord", 5 * BATCH, BATCH)
        prebatched = prebatched_batches(root / "together.tfrecord", BATCH)
        few = root / "few.parquet"
        pq.write_table(pq.read_table(rows.files("train")[0]).slice(0, MERLINS_ROWS), few)
        source = merlin.io.Dataset(str(few), engine="parquet", schema=rows.schema, cpu=True)
        for length, samples in SAMPLES.items():
            users = INTERACTIONS // (3 * length)
            dataset = write_users(root / f"users{length}", users, 3 * length, length)
            alternatives = alternatives_of(dataset, samples)
            if length == LENGTH:
                alternatives["rows per sample"] = functools.partial(count, stored, samples)
                alternatives["TFRecord, prebatched"] = lambda: count(prebatched, 5 * BATCH)
                alternatives["Merlin's loader, rows per sample"] = lambda: count(
                    merlin.dataloader.tensorflow.Loader(source, BATCH, shuffle=False), MERLINS_ROWS
                )
            in_turn(alternatives, 1)  # traces the functions, fills the page cache
            rates = in_turn(alternatives, 5)
            recording.table(f"length {length}", "samples/s", rates, "users, rows")
        reading = {
            "users' interactions, read": users_by(UsersLoader, dataset),
            "Merlin's loader as it is": users_by(merlin.dataloader.tensorflow.Loader, dataset),
        }
        rates = in_turn(reading, 3)
        recording.table("reading users", "interactions/s", rates, "Merlin's loader as it is")
    recording.end()


if __name__ == "__main__":
    main()
