"""Samples per second of ``model.fit(dataset)`` beside ``merlin-sim train``.

The same dataset directory, feed, step, optimizer and threads, batch 4096, each in a process of its
own and in turn. Of the command line, what a run logs as its throughput: the steps of its loop but
the first, in which TensorFlow makes the graph, with waiting for batches, training AUC and log. Of
``fit``, with its default metrics and with the loss alone, whole calls after a first one.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

from measuring.own_process import OwnProcess, Works  # noqa: E402
from measuring.timing import in_turn, show  # noqa: E402
from rows.sim_rows import write_dataset  # noqa: E402

from merlin_sim.models import build_model  # noqa: E402
from merlin_sim.schemas.dataset import DatasetDirectory  # noqa: E402
from merlin_sim.training.runs.run import run  # noqa: E402
from merlin_sim.training.runs.run_config import RunConfig  # noqa: E402

BATCH, STEPS, EPOCHS, ROUNDS = 4096, 5, 2, 3
BASELINE = "bare loop of the step"


def command_line(directory: Path) -> Works:
    """Make a whole run of ``merlin-sim train``, which tells the rate of its loop by itself."""

    def train() -> int:
        config = RunConfig(
            dataset_dir=directory,
            results_dir=directory / "results",
            model_type="sim",
            global_batch_size=BATCH,
            epochs=EPOCHS,
            seed=1,
        )
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            return round(run(config)["throughput"])

    return {BASELINE: train}


def fit(directory: Path, label: str, metrics: list[str] | None) -> Works:
    """Make the epochs of Keras's ``fit``."""
    dataset = DatasetDirectory.open(directory)
    model = build_model("sim", dataset.schema)
    model.compile("adam", metrics=metrics)

    def train() -> int:
        model.fit(dataset, batch_size=BATCH, epochs=EPOCHS, verbose=0)
        return BATCH * STEPS * EPOCHS

    return {label: train}


def main() -> None:
    """Write the rows, then train over them each way, in turn."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_dataset(directory, BATCH * STEPS, files=1)
        loop = OwnProcess(command_line, directory, as_command=True).works[BASELINE]
        works = {
            **OwnProcess(fit, directory, "fit(dataset)", None, as_command=True).works,
            **OwnProcess(fit, directory, "fit(dataset), loss alone", [], as_command=True).works,
        }
        in_turn(works, 1)
        rounds = [{BASELINE: loop(), **in_turn(works, 1)} for _ in range(ROUNDS)]
        rates = {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}
        show(f"fit beside the command line, batch {BATCH}", rates, BASELINE)


if __name__ == "__main__":
    main()
