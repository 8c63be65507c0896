"""Samples per second of whole runs: feed and step together, beside the published arrangement.

Parquet through the feed into the SIM step, with the threads of ``merlin-sim train``, beside
TFRecord into a plain Keras step with those that TensorFlow chooses.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

from baselines.plain_sim import PlainSIM, plain_step  # noqa: E402
from bench_step import trainer  # noqa: E402
from measuring.own_process import OwnProcess, Works  # noqa: E402
from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import tfrecord_batches, write_dataset, write_tfrecord  # noqa: E402

from merlin_sim.dataloader.open_loader import open_loader  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402

BATCH, STEPS = 4096, 3


def feed_and_step(root: Path) -> Works:
    """Make the run of this package."""
    dataset = DatasetDirectory.open(root / "dataset")
    columns = dataset.schema.column_names
    feed = open_loader(dataset, "train", columns, BATCH, Ranks(), shuffle=True, seed=1)
    _, step = trainer(dataset, "adam")

    def run() -> int:
        for batch, labels in feed:
            step(batch, labels, 1.0).losses.numpy()
        return BATCH * STEPS

    return {"feed + step": run}


def published(root: Path) -> Works:
    """Make the published arrangement's run."""
    records = tfrecord_batches(root / "rows.tfrecord", BATCH)
    step = plain_step(PlainSIM())

    def run() -> int:
        for batch, labels in records:
            step(batch, labels).numpy()
        return BATCH * STEPS

    return {"TFRecord + plain Keras step": run}


def main() -> None:
    """Write the rows both ways, then train over them both ways, in turn."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        dataset = write_dataset(root / "dataset", BATCH * STEPS, files=1)
        write_tfrecord(dataset, root / "rows.tfrecord", BATCH * STEPS)
        work = {
            **OwnProcess(feed_and_step, root, as_command=True).works,
            **OwnProcess(published, root).works,
        }
        in_turn(work, 1)
        show("whole run, batch 4096", in_turn(work, 3), "TFRecord + plain Keras step")


if __name__ == "__main__":
    main()
