"""What a run is at one moment: weights, optimizer, position; to and from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from .checkpoints import Checkpoint, CheckpointError
from .loss_scale import LossScale
from .metrics import AUCCounts
from .optimizers import Optimizer


@dataclass
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Epochs that are complete."""
    step: int = 0
    """Steps done in the epoch that is not."""
    steps: int = 0
    """Steps done in all."""
    loss_sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Sums of the three losses over the epoch's steps."""
    auc: AUCCounts = field(default_factory=AUCCounts)
    """Counts of the epoch's training AUC, of this rank."""
    finished_epoch: dict[str, Any] | None = None
    """The last complete epoch's metrics."""

    def end_epoch(self, values: dict[str, Any]) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self.step = 0
        self.loss_sums = [0.0, 0.0, 0.0]
        self.auc = AUCCounts()
        self.finished_epoch = values


@dataclass(frozen=True)
class RunFacts:
    """What must be the same for a checkpoint to be gone on with."""

    model_type: str
    model_options: dict[str, Any]
    optimizer: str
    dataset: str
    """The dataset's fingerprint."""
    amp: bool
    order: dict[str, Any]
    """What decides the order of rows: seed, global batch size, window, repetitions."""


@dataclass
class RunState:
    """Everything that changes while training."""

    model: Any
    optimizer: Optimizer
    loss_scale: LossScale
    facts: RunFacts
    position: Position = field(default_factory=Position)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables by the names under which a checkpoint keeps them."""
        groups = {
            "model": self.model.variables,
            "optimizer": self.optimizer.variables,
            "loss_scale": self.loss_scale.variables,
        }
        return {
            f"{group}/{index}": variable
            for group, variables in groups.items()
            for index, variable in enumerate(variables)
        }

    def to_checkpoint(self, auc: AUCCounts) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the facts and arrays to save; ``auc`` are the counts of all ranks."""
        variables = self.variables
        arrays = {name: variable.numpy() for name, variable in variables.items()}
        arrays["train_auc"] = auc.counts
        position = self.position
        facts = {
            "model_type": self.facts.model_type,
            "model_options": self.facts.model_options,
            "model_config": self.model.get_config(),
            "optimizer": self.facts.optimizer,
            "dataset": self.facts.dataset,
            "amp": self.facts.amp,
            "order": self.facts.order,
            "epoch": position.epoch,
            "step": position.step,
            "loss_sums": position.loss_sums,
            "finished_epoch": position.finished_epoch,
            "variables": {name: variable.name for name, variable in variables.items()},
        }
        return facts, arrays

    def restore(self, checkpoint: Checkpoint, first_rank: bool = True) -> None:
        """Take everything over from a checkpoint.

        Args:
            checkpoint: what was read.
            first_rank: whether this rank takes the counts of the unfinished epoch; if every rank
                did, they would count several times.

        Raises:
            CheckpointError: where it is of another model, dataset or order of rows.
        """
        self.check(checkpoint)
        for name, variable in self.variables.items():
            array = checkpoint.arrays.get(name)
            if array is None or array.shape != tuple(variable.shape):
                found = "nothing" if array is None else str(list(array.shape))
                raise CheckpointError(
                    f"{checkpoint.path} is of another model: {variable.name} should have the shape"
                    f" {variable.shape.as_list()}. Received: {found}"
                )
            variable.assign(array)
        facts = checkpoint.facts
        auc = AUCCounts()
        if first_rank:
            auc.counts = checkpoint.arrays["train_auc"].astype(np.int64)
        self.position = Position(
            facts["epoch"],
            facts["step"],
            facts["steps"],
            list(facts["loss_sums"]),
            auc,
            facts["finished_epoch"],
        )

    def check(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that this run cannot go on with, saying all reasons."""
        theirs, ours = checkpoint.facts, self.facts
        problems = [
            f"{what} should be {wanted}. Received: {found}"
            for what, wanted, found in (
                ("its model", ours.model_type, theirs["model_type"]),
                ("its model's options", ours.model_options, theirs["model_options"]),
                ("its dataset", ours.dataset, theirs["dataset"]),
                ("its optimizer", ours.optimizer, theirs["optimizer"]),
                ("its use of amp", ours.amp, theirs["amp"]),
            )
            if wanted != found
        ]
        if theirs["step"] and theirs["order"] != ours.order:
            problems.append(
                "it lies within an epoch, whose order of rows depends on "
                f"{ours.order}. Received: {theirs['order']}"
            )
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise CheckpointError(f"{checkpoint.path} is of another run:\n{lines}")


def load_model_weights(model: Any, checkpoint: Checkpoint) -> None:
    """Give ``model`` the weights of a checkpoint, for inference.

    Raises:
        CheckpointError: where they do not fit.
    """
    for index, variable in enumerate(model.variables):
        array = checkpoint.arrays.get(f"model/{index}")
        if array is None or array.shape != tuple(variable.shape):
            raise CheckpointError(f"{checkpoint.path} is of another model: {variable.name}.")
        variable.assign(array)
