"""Samples per second of ``model.fit(dataset)`` beside the loop of ``merlin-sim train``.

The same dataset directory, feed, step, optimizer and threads, batch 4096, each in a process of its
own and in turn; ``fit`` with its default metrics, and with the loss alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import tensorflow as tf  # noqa: E402
from bench_step import trainer  # noqa: E402
from own_process import OwnProcess, Works  # noqa: E402
from sim_rows import write_dataset  # noqa: E402
from timing import in_turn, show  # noqa: E402

from merlin_sim.feed.open_feed import open_feed  # noqa: E402
from merlin_sim.foundation.ranks import Ranks  # noqa: E402
from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.training.evaluation.metrics import AUCCounts  # noqa: E402

BATCH, STEPS, EPOCHS, ROUNDS = 4096, 5, 2, 3
BASELINE = "loop of merlin-sim train"


def command_line(directory: Path) -> Works:
    """Make the epochs of the command line's loop, its training AUC included."""
    dataset = DatasetDirectory.open(directory)
    columns = dataset.schema.column_names
    feed = open_feed(dataset, "train", columns, BATCH, Ranks(), shuffle=True, seed=1)
    _, step = trainer(dataset, "adam")
    auc = AUCCounts()

    def run() -> int:
        for _ in range(EPOCHS):
            for batch, labels in feed:
                result = step(batch, labels, 1.0)
                result.losses.numpy()
                auc.update(labels.numpy(), tf.sigmoid(result.logits).numpy())
        return BATCH * STEPS * EPOCHS

    return {BASELINE: run}


def fit(directory: Path, label: str, metrics: list[str] | None) -> Works:
    """Make the epochs of Keras's ``fit``."""
    dataset = DatasetDirectory.open(directory)
    model = build_model("sim", dataset.schema)
    model.compile("adam", metrics=metrics)

    def run() -> int:
        model.fit(dataset, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        return BATCH * STEPS * EPOCHS

    return {label: run}


def main() -> None:
    """Write the rows, then train over them each way, in turn."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_dataset(directory, BATCH * STEPS, files=1)
        work = {
            **OwnProcess(command_line, directory, as_command=True).works,
            **OwnProcess(fit, directory, "fit(dataset)", None, as_command=True).works,
            **OwnProcess(fit, directory, "fit(dataset), loss alone", [], as_command=True).works,
        }
        in_turn(work, 1)
        show(f"fit beside the command line, batch {BATCH}", in_turn(work, ROUNDS), BASELINE)


if __name__ == "__main__":
    main()
