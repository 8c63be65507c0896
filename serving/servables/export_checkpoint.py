"""From a run's checkpoint to a servable or a model repository."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...checkpoints.asked_step import BEST
from ...checkpoints.checkpoint_files import SUMS
from ...checkpoints.checkpoint_store import Checkpoint, CheckpointError
from ...checkpoints.choice import choose_checkpoint
from ...foundation.digest import sha256
from ...foundation.staging import check_apart
from ...models.registry import model_class
from ...models.saving import restored_model
from ...schemas import SPEC_FILE
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...training.checkpoints.run_state import check_facts, replayed_dataset
from ..triton.repository import write_stock_repository
from .export import export_model

Say = Callable[[str], None]
FACTS = ("steps", "epoch", "step", "test_auc", "dataset", "optimizer", "amp")
"""What a servable's manifest says of its checkpoint."""


@dataclass(frozen=True)
class CheckpointExport:
    """What to export, and how."""

    checkpoints: Path
    """A run's directory of checkpoints, or one of them."""
    dataset: Path
    """The dataset directory of the run; its vocabularies go along."""
    feature_spec: str = SPEC_FILE
    """The spec's file name in that directory."""
    pad: bool = False
    """Whether signatures take histories as padded rows."""
    overwrite: bool = False
    """Whether to replace an output directory that holds something."""
    step: str = BEST
    """Which checkpoint: see :func:`~merlin_sim.checkpoints.choice.choose_checkpoint`."""

    def to_servable(self, output: Path, say: Say = lambda message: None) -> None:
        """Write a servable.

        Raises:
            CheckpointError: Where there is no checkpoint, or it is of another dataset.
        """
        check_apart(output, [self.checkpoints, self.dataset])
        dataset = DatasetDirectory.open(self.dataset, feature_spec=self.feature_spec)
        checkpoint = choose_checkpoint(self.checkpoints, self.step, say, check_facts)
        model = restore_model(checkpoint, dataset)
        facts = {name: checkpoint.facts.get(name) for name in FACTS}
        facts = {"name": checkpoint.path.name, "sha256": sha256(checkpoint.path / SUMS), **facts}
        facts["replayed_dataset"] = replayed_dataset(checkpoint.facts)
        export_model(
            model,
            dataset,
            output,
            pad=self.pad,
            overwrite=self.overwrite,
            checkpoint=facts,
            say=say,
        )

    def to_triton(self, output: Path, say: Say = lambda message: None) -> None:
        """Write a model repository for the stock Triton."""
        check_apart(output, [self.checkpoints, self.dataset])
        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.absolute().parent) as directory:
            servable = Path(directory) / "servable"
            self.to_servable(servable, say)
            write_stock_repository(servable, output, overwrite=self.overwrite, say=say)


def restore_model(checkpoint: Checkpoint, dataset: DatasetDirectory) -> Any:
    """Build the model of a checkpoint with its weights, in the precision it was trained in."""
    facts = checkpoint.facts
    found = fingerprint(dataset)
    if facts["dataset"] != found:
        raise CheckpointError(
            f"{checkpoint.path} is of another dataset: its fingerprint is {facts['dataset']}, "
            f"that of {dataset.path} is {found}."
        )
    return restored_model(checkpoint, model_class(facts["model_type"]))
