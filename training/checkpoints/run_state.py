"""What a run is at one moment: weights, optimizer, position; to and from a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from ...checkpoints.array_part import ArrayPart, whole
from ...checkpoints.checkpoint_files import Checkpoint, CheckpointError
from ...checkpoints.checkpoint_store import AUC_OF
from ...foundation.exceptions import MerlinSimError
from ...models.blocks.embeddings.spread_tables import TablePart
from ...models.families.registry import find_family
from ...models.saving import (
    MODEL_CLASS,
    MODEL_VARIABLES,
    assign_arrays,
    named_parts,
    named_variables,
    table_names,
    without_older,
)
from ...steps.loss_scale import LossScale
from ..evaluation.best_so_far import BestSoFar
from ..evaluation.metrics import AUCCounts

IDS = "ids"
"""The fact that notes what the dataset's ids mean; checkpoints of earlier versions lack it."""
TRAIN_AUC = "train_auc"
"""The array of the counts of the unfinished epoch's training AUC."""


@dataclass
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Epochs that are complete."""
    step: int = 0
    """Steps done in the epoch that is not."""
    steps: int = 0
    """Steps done in all."""
    loss_sums: dict[str, float] = field(default_factory=dict)
    """Sums of the losses over the epoch's steps, by name."""
    auc: AUCCounts = field(default_factory=AUCCounts)
    """Counts of the epoch's training AUC, of this rank."""
    finished_epoch: dict[str, Any] | None = None
    """The last complete epoch's metrics, without the times of the process that ran it."""
    best: BestSoFar = field(default_factory=BestSoFar)
    """The best evaluation, where the dataset has validation data."""

    def end_epoch(self, values: dict[str, Any]) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self.step = 0
        self.loss_sums = {}
        self.auc = AUCCounts()
        self.finished_epoch = values


@dataclass(frozen=True)
class RunFacts:
    """What must be the same for a run to be resumed from a checkpoint."""

    model_type: str
    model_options: dict[str, Any]
    optimizer: str
    dataset: str
    """The dataset's fingerprint."""
    amp: bool
    order: dict[str, Any]
    """What decides the order of rows: seed, global batch size, window, repetitions."""
    ids: dict[str, Any] | None = None
    """What the dataset's ids mean, where that is noted: on the rank that saves."""
    select_by: str | None = None
    """The mapping whose AUC finds the best checkpoint; None where none is chosen."""

    def other_model(self, theirs: dict[str, Any]) -> list[str]:
        """Say what a checkpoint has otherwise of what makes its weights fit."""
        compared = (
            ("model_type", self.model_type, theirs["model_type"]),
            ("optimizer", self.optimizer, theirs["optimizer"]),
            ("amp", self.amp, theirs["amp"]),
        )
        problems = [
            f"`{name}` should be the checkpoint's, {_written(found)}. Received: {_written(given)}"
            for name, given, found in compared
            if given != found
        ]
        if self.model_type == theirs["model_type"]:
            given, found = map(self._completed, (self.model_options, theirs["model_options"]))
            problems += _differing(given, found)
        return problems

    def _completed(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return options, with those that a checkpoint is too old to know at their defaults."""
        try:
            completed: dict[str, Any] = (
                find_family(self.model_type).options.parse(options).to_dict()
            )
        except MerlinSimError:  # an option that there is no more: they differ
            return options
        return completed


def _differing(given: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Name the options that are not a checkpoint's; those that are the same are left out.

    >>> _differing({"top_k": 4, "heads": 2}, {"top_k": 8, "heads": 2})
    ["`top_k` should be the checkpoint's, 8. Received: 4"]
    """
    return [
        f"`{name}` should be the checkpoint's, {_written(found.get(name))}. "
        f"Received: {_written(given.get(name))}"
        for name in {**given, **found}
        if given.get(name) != found.get(name)
    ]


def _written(value: Any) -> str:
    """Write a value as the command line takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "none"}[value]
    return str(value)


NEEDED: dict[str, Any] = {
    "model_type": str,
    "model_options": dict,
    "model_config": dict,
    "optimizer": str,
    "dataset": str,
    "amp": bool,
    "order": dict,
    MODEL_CLASS: str,
    MODEL_VARIABLES: list,
    "epoch": int,
    "step": int,
    "steps": int,
    "loss_sums": dict,
    "finished_epoch": (dict, type(None)),
}
"""What every checkpoint of a run says, and of what type."""


def check_facts(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint that lacks what a run or an export needs to know.

    Raises:
        CheckpointError: naming what is missing or of another type.
    """
    facts = checkpoint.facts
    wrong = [name for name, kind in NEEDED.items() if not isinstance(facts.get(name, ...), kind)]
    if wrong or TRAIN_AUC not in checkpoint.arrays:
        raise CheckpointError(
            f"{checkpoint.path} does not say what a run needs: {', '.join(wrong) or TRAIN_AUC}."
        )


def replayed_dataset(facts: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the older dataset that a checkpoint's run replayed, if any."""
    replay = facts["order"].get("replay")
    return None if replay is None else str(replay["dataset"])


@dataclass
class RunState:
    """Everything that changes while training."""

    model: Any
    optimizer: Any
    """Has ``iterations``, and its ``slots`` by name, each in the order of the trained variables."""
    loss_scale: LossScale
    facts: RunFacts
    position: Position = field(default_factory=Position)

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables by the names under which a checkpoint keeps them.

        The model's stand under their places in it, an optimizer's moments under the name of what
        they are moments of.
        """
        of_model = named_variables(self.model)
        return {
            **of_model,
            **self._slots(of_model),
            "optimizer/iterations": self.optimizer.iterations,
            "loss_scale/scale": self.loss_scale.scale,
            "loss_scale/good_steps": self.loss_scale.good_steps,
        }

    def _slots(self, of_model: dict[str, tf.Variable]) -> dict[str, tf.Variable]:
        names = {variable.ref(): name for name, variable in of_model.items()}
        trained = [names[variable.ref()] for variable in self.model.trainable_variables]
        return {
            f"{name}/{kind}": slot
            for kind, slots in self.optimizer.slots.items()
            for name, slot in zip(trained, slots, strict=True)
        }

    def to_checkpoint(self, auc: AUCCounts) -> tuple[dict[str, Any], list[ArrayPart]]:
        """Return the facts and arrays to save; ``auc`` are the counts of all ranks."""
        parts = self.parts
        whole_here = {n: v for n, v in self.variables.items() if n not in parts}
        arrays = {name: variable.numpy() for name, variable in whole_here.items()}
        arrays[TRAIN_AUC] = auc.counts
        tables = table_names(self.model)
        for name, table in list(tables.items()):
            tables |= {f"{name}/{kind}": table for kind in self.optimizer.slots}
        position = self.position
        facts = {
            "model_type": self.facts.model_type,
            "model_options": self.facts.model_options,
            "model_config": self.model.get_config(),
            "optimizer": self.facts.optimizer,
            "dataset": self.facts.dataset,
            "amp": self.facts.amp,
            "order": self.facts.order,
            IDS: self.facts.ids,
            AUC_OF: self.facts.select_by,
            "epoch": position.epoch,
            "step": position.step,
            "loss_sums": position.loss_sums,
            "finished_epoch": position.finished_epoch,
            "best": position.best.to_facts(),
            MODEL_CLASS: type(self.model).__name__,
            MODEL_VARIABLES: list(named_variables(self.model)),
        }
        return facts, whole(arrays, tables) + self.own_parts()

    @property
    def parts(self) -> dict[str, TablePart]:
        """Say which variables are parts of tables, and of their slots, that other ranks lack."""
        tables = named_parts(self.model)
        kinds = self.optimizer.slots
        slots = {f"{name}/{kind}": part for name, part in tables.items() for kind in kinds}
        return {**tables, **slots}

    def own_parts(self) -> list[ArrayPart]:
        """Return what this rank alone has of tables, for it to write."""
        tables = table_names(self.model)
        variables = self.variables
        found = []
        for name, part in self.parts.items():
            values = variables[name].numpy()
            if values.size:
                (row, _), (column, _) = part.places(values.shape)
                table = tables.get(name) or tables[name.rpartition("/")[0]]
                shape = part.whole_shape(values.shape)
                found.append(ArrayPart(name, values, shape, table, row, column))
        return found

    def restore_own(self, checkpoint: Checkpoint) -> None:
        """Take this rank's parts of tables over from a checkpoint, on another rank than the first.

        Raises:
            CheckpointError: where it is of another model.
        """
        parts = self.parts
        own = {name: variable for name, variable in self.variables.items() if name in parts}
        assign_arrays(own, checkpoint, set(), parts)

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
        expected = set(checkpoint.arrays) - {TRAIN_AUC}
        variables = without_older(self.model, self.variables, checkpoint)
        assign_arrays(variables, checkpoint, expected, self.parts)
        facts = checkpoint.facts
        auc = AUCCounts()
        if first_rank:
            auc.counts = checkpoint.arrays[TRAIN_AUC].astype(np.int64)
        self.position = Position(
            facts["epoch"],
            facts["step"],
            facts["steps"],
            dict(facts["loss_sums"]),
            auc,
            facts["finished_epoch"],
            BestSoFar.from_facts(facts.get("best") or {}),
        )

    def check(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint that this run cannot go on with, saying all reasons."""
        theirs, ours = checkpoint.facts, self.facts
        problems = ours.other_model(theirs)
        if ours.dataset != theirs["dataset"]:
            problems.append(
                f"its dataset should be {ours.dataset}. Received: {theirs['dataset']}. To train "
                "what it has learned on another dataset, with the same or grown vocabularies, "
                "name it by --warm_start instead"
            )
        if theirs["step"] and theirs["order"] != ours.order:
            problems.append("it lies within an epoch, whose order of rows has to stay as it was")
            problems += _differing(ours.order, theirs["order"])
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise CheckpointError(f"{checkpoint.path} is of another run:\n{lines}")
