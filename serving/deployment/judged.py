"""A model that is judged: a run's checkpoint, or what was exported of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import yaml

from ...foundation.batch_names import OFFSETS, VALUES
from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...models.family import Request
from ...models.registry import family_of, model_class
from ...models.saving import is_checkpoint, restored_model
from ...parallel.checkpoints.checkpoint_files import SUMS
from ...parallel.checkpoints.checkpoint_store import choose_checkpoint
from ...schemas import SPEC_FILE
from ...schemas.channels import channels_of
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import IdsNote, other_meanings
from ...schemas.layout_names import TRAIN
from ...training.checkpoints.run_state import check_run_metadata, ids_of, replayed_dataset
from ...training.evaluation.prediction import Predictor
from ..scorer import Scorer
from ..servable import MANIFEST, Servable, ServedColumn, ServedColumns

Say = Callable[[str], None]


@dataclass(frozen=True)
class Judged:
    """A model that scores rows of a dataset that it may not have been trained on."""

    path: Path
    columns: ServedColumns
    ids: IdsNote
    """What its ids mean."""
    origin: dict[str, Any]
    """Where it came from, as JSON can hold it."""
    predict: Callable[[dict[str, Array]], Array]
    """Columns as :func:`as_served` gives them -> click probabilities, [rows]."""

    def score(self, batch: Batch) -> Array:
        """Score rows as a server would."""
        scores = self.predict(as_served(batch, self.columns))
        right = (scores >= 0) & (scores <= 1)  # NaN is neither
        if not right.all():
            raise MerlinSimError(
                f"{self.path}: expected click probabilities. Received: {scores[~right][0]} for "
                f"{int((~right).sum()):,} of {len(scores):,} rows"
            )
        return scores

    def was_trained_on(self, dataset: DatasetDirectory, mapping: str) -> bool:
        """Return whether rows of a mapping of this dataset trained the model, as far as is noted.

        A model notes the datasets of its last run: its own, and the one that the run replayed.
        """
        noted = (self.origin["dataset"], self.origin["replayed_dataset"])
        return mapping == TRAIN and fingerprint(dataset) in noted

    def check(self, dataset: DatasetDirectory) -> None:
        """Refuse a dataset that lacks what the model reads, or whose ids mean something else."""
        schema = dataset.schema
        names = [column.name for column in self.columns.all]
        missing = [name for name in names if name not in schema.column_names]
        problems = [f"it has no column {name}, which the model reads" for name in missing]
        problems += other_meanings(self.ids, schema, dataset.path)
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise MerlinSimError(
                f"{dataset.path} cannot be scored by {self.path}: preprocess it with the "
                f"vocabularies of the model's dataset, grown or as they are (--fitted):\n{lines}"
            )


def refuse_trained_rows(
    challenger: Judged,
    current: Judged,
    dataset: DatasetDirectory,
    mapping: str,
    force: bool,
    say: Say,
) -> dict[str, dict[str, Any]]:
    """Refuse rows that the challenger was trained on, which it scores better than new rows.

    Rows that trained the current model are a handicap, and allowed. Returns where both models came
    from, with whether these rows trained them.
    """
    trained = {
        side: judged.was_trained_on(dataset, mapping)
        for side, judged in (("challenger", challenger), ("current", current))
    }
    problem = (
        f"{dataset.path}: expected rows that did not train the challenger. Received: "
        f"mapping {mapping!r}, on which {challenger.path} was trained (fingerprint "
        f"{fingerprint(dataset)}). A model scores rows of its own training better than new ones"
    )
    if trained["challenger"] and not force:
        raise MerlinSimError(
            f"{problem}. Name newer rows with --dataset_dir or --mapping, or pass --force."
        )
    if trained["challenger"]:
        say(f"{problem}: the verdict favours the challenger.")
    if trained["current"]:
        say(f"{dataset.path}: {current.path} was trained on these rows, which favours it.")
    return {
        side: {**judged.origin, "trained_on_these_rows": trained[side]}
        for side, judged in (("challenger", challenger), ("current", current))
    }


def open_judged(path: Path, say: Say = lambda message: None) -> Judged:
    """Open a servable, a checkpoint, or the newest whole one of a directory of checkpoints.

    Of a run's directory of results the configuration says where its checkpoints are.
    """
    if (path / MANIFEST).is_file() and (path / SPEC_FILE).is_file():
        return _of_servable(path)
    if is_checkpoint(path):
        return _of_checkpoint(path, path, say)
    return _of_checkpoint(path, _checkpoints_of(path), say)


def _checkpoints_of(results: Path) -> Path:
    file = results / "config.yaml"
    if not file.is_file():
        raise MerlinSimError(
            f"{results}: expected an exported model, a directory of checkpoints, or a run's "
            "directory of results; it is none of them."
        )
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
        saved = config.get("save_checkpoint_path")
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise MerlinSimError(f"{file}: expected a run's configuration: {error}") from error
    if not saved:
        raise MerlinSimError(
            f"{results} is of a run without --save_checkpoint_path, which kept no weights."
        )
    return Path(saved)


def _of_checkpoint(path: Path, checkpoints: Path, say: Say) -> Judged:
    checkpoint = choose_checkpoint(checkpoints, say=say, check=check_run_metadata)
    model = restored_model(checkpoint, model_class(checkpoint.metadata["model_type"]))
    schema = getattr(getattr(model, "body", model), "schema", None)
    if schema is None:
        raise MerlinSimError(
            f"{checkpoint.path}: a {type(model).__name__} has no attribute `schema`, which would "
            "say what it reads: `merlin-sim export` it, and give the export."
        )
    family = family_of(model)
    read = ServedColumns.of_rows if family.request is Request.ROWS else ServedColumns.read
    columns = read(schema, family.served_columns(channels_of(schema)))
    predictor = Predictor(model, parts=not tf.config.list_logical_devices("GPU"))

    def predict(rows: dict[str, Array]) -> Array:
        batch = {name: tf.constant(values) for name, values in rows.items()}
        scores: Array = predictor(batch).numpy()
        return scores

    origin = {
        "kind": "checkpoint",
        "path": str(path),
        "checkpoint": checkpoint.path.name,
        "checkpoint_sha256": sha256(checkpoint.path / SUMS),
        "dataset": checkpoint.metadata["dataset"],
        "replayed_dataset": replayed_dataset(checkpoint.metadata),
        "model_type": checkpoint.metadata["model_type"],
    }
    return Judged(path, columns, ids_of(checkpoint), origin, predict)


def _of_servable(path: Path) -> Judged:
    servable = Servable.open(path)
    manifest, columns = servable.manifest, servable.columns
    scorer = Scorer(servable)

    def predict(rows: dict[str, Array]) -> Array:
        return scorer.score_ids(_signature_inputs(rows, columns))

    origin = {
        "kind": "servable",
        "path": str(path),
        "servable_sha256": sha256(servable.path / MANIFEST),
        "checkpoint": manifest["checkpoint"].get("name"),
        "checkpoint_sha256": manifest["checkpoint"].get("sha256"),
        "dataset": manifest["checkpoint"].get("dataset"),
        "replayed_dataset": manifest["checkpoint"].get("replayed_dataset"),
        "model_type": manifest["model"]["type"],
    }
    return Judged(path, columns, servable.ids, origin, predict)


def _signature_inputs(rows: dict[str, Array], columns: ServedColumns) -> dict[str, Array]:
    """Bring padded rows to the types and forms that a servable's signature has."""
    inputs: dict[str, Array] = {}
    for column in (*columns.of_user, *columns.of_target):
        inputs[column.name] = rows[column.name].astype(column.dtype)
    if not columns.lists:
        return inputs
    filled = rows[columns.histories[0].name] > 0
    offsets = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
    for column in columns.lists:
        values = rows[column.name].astype(column.dtype)
        if columns.is_ragged:
            inputs[column.name + VALUES] = values[filled]
            inputs[column.name + OFFSETS] = offsets
        else:
            inputs[column.name] = values
    return inputs


Array = npt.NDArray[Any]
Batch = Mapping[str, Array]


def as_served(batch: Batch, columns: ServedColumns) -> dict[str, Array]:
    """Give rows the form in which a server would give them to the model.

    Ids that the model has no vector for are 0; such an item in a history is left out, and of a
    longer history the newest positions are read. A batch has [rows] of each column or, padded on
    the left with 0, [rows, positions].
    """
    rows = {column.name: _known(batch[column.name], column) for column in columns.all}
    if not columns.histories:
        return rows
    items = columns.histories[0].name
    kept = rows[items] > 0
    left_out = (batch[items] > 0) & ~kept
    # Positions that stay move to the right end in their order, where the newest stands.
    order = np.argsort(kept, axis=1, kind="stable") if left_out.any() else None
    for column in columns.lists:
        values = rows[column.name]
        if order is not None:
            values = np.take_along_axis(np.where(kept, values, 0), order, axis=1)
        rows[column.name] = _of_width(values, columns.longest)
    return rows


def _known(values: Array, column: ServedColumn) -> Array:
    largest = column.largest_id
    return values if largest is None else np.where(values > largest, 0, values)


def _of_width(values: Array, width: int) -> Array:
    missing = width - values.shape[1]
    if missing <= 0:
        return np.ascontiguousarray(values[:, -missing:] if missing else values)
    return np.pad(values, ((0, 0), (missing, 0)))
