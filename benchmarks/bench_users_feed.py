"""Samples per second from users' rows to tensors, as rows and as users x candidates.

Beside them the feed of the samples layout (length 100), with four full history columns each.
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

from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import LENGTH, write_dataset  # noqa: E402
from rows.user_rows import write_users  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

BATCH, CANDIDATES, INTERACTIONS = 4096, 16, 2_000_000
SAMPLES = {100: 60 * BATCH, 1000: 12 * BATCH}
"""How many are read a time, by length; of users x candidates ten times as many."""


def count(feed: Any, samples: int) -> int:
    """Read so many samples; those of fillers are none."""
    read = 0
    for _, labels, *weights in feed:
        read += int(weights[0].numpy().sum()) if weights else int(labels.shape[0])
        if read >= samples:
            feed.stop()
            break
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
        "users, rows, 1 position together": way(names, positions_together=1),
        "users, rows, 32 positions together": way(names, positions_together=32),
        "users, rows without negatives": way(positive),
        f"users x {CANDIDATES}": way(names, 10 * samples, candidates=CANDIDATES),
    }


def main() -> None:
    """Write the rows, then read them in every way, in turn."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        rows = write_dataset(root / "samples", 8 * 16384)
        stored = open_loader(rows, "train", rows.schema.column_names, BATCH, Ranks(), shuffle=True)
        for length, samples in SAMPLES.items():
            users = INTERACTIONS // (3 * length)
            dataset = write_users(root / f"users{length}", users, 3 * length, length)
            alternatives = alternatives_of(dataset, samples)
            if length == LENGTH:
                alternatives["samples layout, rows"] = functools.partial(count, stored, samples)
            in_turn(alternatives, 1)  # compiles numba's loops, fills the page cache
            show(f"feed, length {length}", in_turn(alternatives, 5), "users, rows")


if __name__ == "__main__":
    main()
