"""AUC of the next day's samples, scored as a server would score them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.steps.sample_batch import SampleBatch
from merlin_sim.schemas.channels import LABEL
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.deployment.judged import open_judged
from merlin_sim.training.evaluation.metrics import AUC
from merlin_sim.workflows.synthetic.click_days import DriftingWorld, draw_days


def aucs_of_next_day(dataset: Path, checkpoints: Mapping[str, Path]) -> dict[str, float]:
    """Score what would train on the next day, and what would test, with models of today.

    Args:
        dataset: Of the next day, with ids that grew from those of the models.
        checkpoints: Of each model.
    """
    opened = DatasetDirectory.open(dataset)
    # One that did not change is scored once.
    models = {path: open_judged(path) for path in dict.fromkeys(checkpoints.values())}
    counts = {path: AUC() for path in models}
    names = dict.fromkeys(n for model in models.values() for n in model.columns.names)
    label = opened.channels[LABEL][0]
    for model in models.values():
        model.check(opened)
    for mapping in ("train", "test"):
        for given in open_loader(opened, mapping, [*names, label], 8192, Ranks()):
            batch = SampleBatch(*given)
            columns = {name: values.numpy() for name, values in batch.columns.items()}
            labels = batch.labels.numpy().reshape(-1) > 0.5
            for path, model in models.items():
                counts[path].update_state(labels, model.score(columns))
    return {name: _value(counts[path]) for name, path in checkpoints.items()}


def auc_of_chance(log: str, world: str, day: int, drift: float) -> float:
    """Return the AUC of the chances that a day's clicks were drawn by: nobody can do better."""
    words = world.split()
    given: dict[str, Any] = {
        name.removeprefix("--"): int(value)
        for name, value in zip(words[::2], words[1::2], strict=True)
    }
    *_, drawn = draw_days(DriftingWorld(turnover=drift, **given), day + 1)
    clicked = pa_csv.read_csv(log)["clicked"].to_numpy() > 0
    if not np.array_equal(clicked, drawn.clicked):
        raise SystemExit(f"{log} is not day {day} of `{world}`")
    counts = AUC()
    counts.update_state(clicked, drawn.chance)
    return _value(counts)


def _value(counts: AUC) -> float:
    auc = counts.exact_result()
    assert auc is not None
    return auc
