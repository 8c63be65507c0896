"""State of a run: weights, optimizer, position; to and from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from ...foundation.settings import shown_value
from ...models.blocks.embeddings.sharded_tables import TablePart
from ...models.known_families import find_family
from ...models.registry import family_of
from ...models.saving import (
    MODEL_CLASS,
    MODEL_VARIABLES,
    assign_arrays,
    named_parts,
    named_variables,
    table_names,
)
from ...parallel.checkpoints.array_files import ArrayPart, WrittenFile, whole, write_arrays
from ...parallel.checkpoints.checkpoint_files import CheckpointError, SavedCheckpoint
from ...parallel.checkpoints.checkpoint_store import CheckpointStore
from ...parallel.ranks import collectives
from ...parallel.steps.loss_scale import LossScale
from ...parallel.steps.optimizers import rate_variable
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import IdsNote, note_of

Array = npt.NDArray[Any]

RATE = "optimizer/learning_rate"
"""The array of a learning rate that is no schedule."""
METRICS = "metrics/"
"""What the names of the arrays begin with that are metrics' states in an unfinished epoch."""


@dataclass
class Position:
    """How far a run has come."""

    epoch: int = 0
    """Epochs that are complete."""
    step: int = 0
    """Steps done in the epoch that is not."""
    steps: int = 0
    """Steps done in all."""
    callbacks: dict[str, Any] = field(default_factory=dict)
    """What the callbacks of the run keep, by their names."""


@dataclass(frozen=True)
class RunMetadata:
    """What must be the same to resume a run, under the names of a checkpoint."""

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
    auc_of: str | None = None
    """The mapping whose AUC finds the best checkpoint; None where none is chosen."""
    precision: str = "fp32"
    """fp32, beside which ``amp`` may stand, or bf16."""

    @classmethod
    def of(cls, model: Any, loader: Any, select_by: str | None = None) -> RunMetadata:
        """Find out the facts of a model that ``fit`` trains on what a loader reads."""
        order = {
            "seed": loader.seed,
            "shuffle": bool(loader.shuffle),
            "global_batch_size": loader.global_batch_size,
            "window_rows": loader.window_rows,
            "drop_remainder": bool(loader.drop_last),
            "candidates": getattr(loader, "candidates", 1),
        }
        return cls(
            family_of(model).name,
            model.options.to_dict(),
            model.optimizer.get_config()["name"],
            fingerprint(loader.directory),
            model.loss_scale.active,
            order,
            note_of(loader.directory).to_dict(),
            select_by,
            "bf16" if model.dtype_policy.name == "mixed_bfloat16" else "fp32",
        )

    def other_model(self, theirs: dict[str, Any]) -> list[str]:
        """Say what a checkpoint has otherwise of what makes its weights fit."""
        names = ("model_type", "optimizer", "amp", "precision")
        given, found = (
            {name: metadata[name] for name in names} for metadata in (asdict(self), theirs)
        )
        problems = _differing(given, found)
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
        f"`{name}` should be the checkpoint's, {shown_value(found.get(name))}. "
        f"Received: {shown_value(given.get(name))}"
        for name in {**given, **found}
        if given.get(name) != found.get(name)
    ]


NEEDED: dict[str, Any] = {
    "model_type": str,
    "model_options": dict,
    "model_config": dict,
    "optimizer": str,
    "dataset": str,
    "amp": bool,
    "precision": str,
    "order": dict,
    "ids": dict,
    "callbacks": dict,
    MODEL_CLASS: str,
    MODEL_VARIABLES: list,
    "epoch": int,
    "step": int,
    "steps": int,
}
"""The metadata of every checkpoint of a run, and their types."""


def check_run_metadata(checkpoint: SavedCheckpoint) -> None:
    """Refuse a checkpoint that lacks what a run or an export needs to know."""
    metadata = checkpoint.metadata
    wrong = [name for name, kind in NEEDED.items() if not isinstance(metadata.get(name, ...), kind)]
    if wrong:
        raise CheckpointError(f"{checkpoint.path} lacks what a run needs: {', '.join(wrong)}.")


def ids_of(checkpoint: SavedCheckpoint) -> IdsNote:
    """Return what the ids of a checkpoint's dataset mean."""
    note = IdsNote.parse(checkpoint.metadata["ids"])
    if note is None:
        raise CheckpointError(f"{checkpoint.path}: ids: expected a note of what ids mean.")
    return note


def arrays_of_variables(checkpoint: SavedCheckpoint) -> set[str]:
    """Name the arrays that are a variable's."""
    return {name for name in checkpoint.arrays if not name.startswith(METRICS)}


def replayed_dataset(metadata: Mapping[str, Any]) -> str | None:
    """Return the fingerprint of the older dataset that a checkpoint's run replayed, if any."""
    replay = metadata["order"].get("replay")
    return None if replay is None else str(replay["dataset"])


@dataclass
class RunState:
    """Everything that changes while training."""

    model: Any
    optimizer: Any
    """A Keras optimizer. One of this package has its ``slots`` by name, each in the order of the
    trained variables."""
    loss_scale: LossScale
    metadata: RunMetadata
    position: Position = field(default_factory=Position)
    metrics: dict[str, Array] = field(default_factory=dict)
    """The states of metrics in the unfinished epoch, as a checkpoint had them."""
    initial_rate: float | None = None
    """The learning rate that the run was given, where it is no schedule."""
    restored_rate: float | None = None
    """The learning rate of the checkpoint that the run goes on from, if it goes on with that."""

    def __post_init__(self) -> None:
        """Note the rate, which callbacks may change from now on."""
        rate = rate_variable(self.optimizer)
        if rate is not None:
            self.initial_rate = float(rate.numpy())

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """All variables by the names under which a checkpoint keeps them.

        The model's stand under their paths in it, an optimizer's moments under the name of what
        they are moments of.
        """
        of_model = named_variables(self.model)
        return {
            **of_model,
            **self._of_optimizer(of_model),
            "loss_scale/scale": self.loss_scale.scale,
            "loss_scale/good_steps": self.loss_scale.good_steps,
        }

    def _of_optimizer(self, of_model: dict[str, tf.Variable]) -> dict[str, tf.Variable]:
        """Name what an optimizer keeps; a rate that callbacks may change is among it."""
        rate = rate_variable(self.optimizer)
        rates = {} if rate is None else {RATE: rate}
        if not hasattr(self.optimizer, "slots"):  # one of Keras's own
            variables = enumerate(self.optimizer.variables())
            return {**{f"optimizer/{index}": variable for index, variable in variables}, **rates}
        names = {variable.ref(): name for name, variable in of_model.items()}
        trained = [names[variable.ref()] for variable in self.model.trainable_variables]
        slots = {
            f"{name}/{kind}": slot
            for kind, slots in self.optimizer.slots.items()
            for name, slot in zip(trained, slots, strict=True)
        }
        return {**slots, "optimizer/iterations": self.optimizer.iterations, **rates}

    @property
    def kinds(self) -> list[str]:
        """The kinds of slots that each trained variable has."""
        return list(getattr(self.optimizer, "slots", {}))

    @property
    def tables(self) -> dict[str, str]:
        """The variables that have a row for each key, tables and their slots: name -> table."""
        tables = table_names(self.model)
        kinds = self.kinds
        slots = {f"{name}/{kind}": table for name, table in tables.items() for kind in kinds}
        return {**tables, **slots}

    def to_checkpoint(
        self, metrics: Mapping[str, Array] | None = None
    ) -> tuple[dict[str, Any], Iterator[ArrayPart]]:
        """Return the metadata and arrays to save, which are read one by one as they are written."""
        parts = self.parts
        whole_here = {n: v for n, v in self.variables.items() if n not in parts}
        of_metrics = {f"{METRICS}{name}": state for name, state in (metrics or {}).items()}
        metadata = {
            **asdict(self.metadata),
            **asdict(self.position),
            "model_config": self.model.get_config(),
            "initial_rate": self.initial_rate,
            MODEL_CLASS: type(self.model).__name__,
            MODEL_VARIABLES: list(named_variables(self.model)),
        }
        return metadata, chain(whole({**whole_here, **of_metrics}, self.tables), self.own_parts())

    @property
    def parts(self) -> dict[str, TablePart]:
        """Say which variables are parts of tables, and of their slots, that other ranks lack."""
        tables = named_parts(self.model)
        kinds = self.kinds
        slots = {f"{name}/{kind}": part for name, part in tables.items() for kind in kinds}
        return {**tables, **slots}

    def own_parts(self) -> Iterator[ArrayPart]:
        """Give what this rank alone has of tables, for it to write."""
        tables = table_names(self.model)
        variables = self.variables
        for name, part in self.parts.items():
            values = variables[name].numpy()
            if values.size:
                (row, _), (column, _) = part.ranges(values.shape)
                table = tables.get(name) or tables[name.rpartition("/")[0]]
                shape = part.whole_shape(values.shape)
                yield ArrayPart(name, values, shape, table, row, column)
            del values  # before the next one is there

    def restore_own(self, checkpoint: SavedCheckpoint) -> None:
        """Take this rank's parts of tables over, on another rank than the first."""
        parts = self.parts
        own = {name: variable for name, variable in self.variables.items() if name in parts}
        assign_arrays(own, checkpoint, set(), parts)

    def restore(self, checkpoint: SavedCheckpoint) -> None:
        """Take everything over from a checkpoint, on the first rank."""
        self.check(checkpoint)
        of_metrics = {name for name in checkpoint.arrays if name.startswith(METRICS)}
        expected = arrays_of_variables(checkpoint)
        variables = self.variables
        if RATE not in expected or checkpoint.metadata.get("initial_rate") != self.initial_rate:
            variables.pop(RATE, None)  # another one was given
            expected.discard(RATE)
        else:
            self.restored_rate = float(checkpoint.arrays[RATE])
        assign_arrays(variables, checkpoint, expected, self.parts)
        self.metrics = {n.removeprefix(METRICS): checkpoint.arrays[n] for n in of_metrics}
        metadata = checkpoint.metadata
        self.position = Position(**{entry.name: metadata[entry.name] for entry in fields(Position)})

    def share_position(self, ranks: Ranks) -> None:
        """Give every rank the position, and the rate, that the first one restored."""
        restored = (self.position, self.restored_rate)
        self.position, self.restored_rate = collectives.broadcast_object(restored, ranks)

    def check(self, checkpoint: SavedCheckpoint) -> None:
        """Refuse a checkpoint that this run cannot go on with, saying all reasons."""
        theirs, ours = checkpoint.metadata, self.metadata
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


def save_together(
    store: CheckpointStore,
    state: RunState,
    metrics: Mapping[str, Array],
    auc_of_held_out: float | None,
    ranks: Ranks,
    report: Callable[[], None] = lambda: None,
) -> None:
    """Save a run of which each rank has parts that no other has; all ranks call this.

    The directory must be on a file system that all ranks see.

    Raises:
        CheckpointError: on every rank, where one cannot write.
    """
    has_begun = False

    def write(directory: Path | None, parts: Iterable[ArrayPart]) -> list[WrittenFile]:
        """Write this rank's parts where the first rank does; return what all ranks wrote."""
        nonlocal has_begun
        has_begun = True
        directory = collectives.broadcast_object(directory, ranks)
        if directory is None:  # the first rank has failed
            return []
        written: WrittenFile | str
        try:
            written = write_arrays(directory, parts, ranks.rank, ranks.size, report)
        except OSError as error:
            written = f"rank {ranks.rank}: {error.strerror or error}"
        files = collectives.gather_objects(written, ranks)
        failures = [file for file in files if isinstance(file, str)]
        if failures:
            raise CheckpointError(f"{directory} cannot be written: {'; '.join(failures)}.")
        return files

    def save() -> None:
        if not ranks.is_first:
            write(None, state.own_parts())
            return
        try:
            metadata, parts = state.to_checkpoint(metrics)
            store.save(state.position.steps, metadata, parts, auc_of_held_out, write)
        finally:
            if not has_begun:  # the other ranks wait for a directory
                write(None, ())

    collectives.on_every_rank(save, ranks)
