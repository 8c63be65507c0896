"""From a checkpoint or a trained model to a servable that needs neither, nor its dataset."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tensorflow as tf
from merlin.schema import Schema

from ...foundation.batch_names import HISTORY_SUMMARY, OFFSETS, VALUES
from ...foundation.digest import sha256
from ...foundation.files import TOO_LITTLE_SPACE, cannot_be_written, check_apart, staged_directory
from ...foundation.process_wide import quiet_save
from ...models.composed_model import ComposedModel, is_composed
from ...models.family import Request
from ...models.registry import family_of, model_class
from ...models.row_parts import in_parts
from ...models.saving import Signature, absent_columns, columns_signature, restored_model
from ...parallel.checkpoints import BEST
from ...parallel.checkpoints.checkpoint_files import SUMS
from ...parallel.checkpoints.checkpoint_store import (
    CheckpointError,
    SavedCheckpoint,
    choose_checkpoint,
)
from ...schemas import SCHEMA_FILE, SPEC_FILE
from ...schemas.channels import (
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    channels_of,
    known_channel,
)
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.layout_names import CATEGORIES, WORKFLOW_FILE
from ...schemas.schema_file import write_schema
from ...training.checkpoints.run_state import check_run_metadata, replayed_dataset
from ...workflows.criteo.click_graph import is_of_clicks
from ...workflows.criteo.criteo_columns import LOGARITHMS
from ..lookups import read_workflow
from ..servable import (
    ITEM_VECTOR_SIGNATURE,
    MODEL,
    ONE_USER_SIGNATURE,
    PLAIN_SIGNATURE,
    SCORE,
    SUMMARIZE_SIGNATURE,
    SUMMARIZED,
    USER_VECTOR_SIGNATURE,
    VECTOR,
    ServableError,
    ServedColumns,
    write_manifest,
)
from .repository import write_stock_repository


@contextmanager
def explained_disk_errors(output: Path) -> Iterator[None]:
    """Say of a full disk what is free on it, whether Python or TensorFlow met it."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        refused = error if isinstance(error, OSError) else _system_error(error)
        if refused is None or refused.errno not in TOO_LITTLE_SPACE:
            raise
        raise cannot_be_written(output, refused) from refused


def _system_error(error: tf.errors.OpError) -> OSError | None:
    """The system's error behind one of TensorFlow's, which has its text but not its number."""
    text = str(error)
    found = (number for number in TOO_LITTLE_SPACE if os.strerror(number) in text)
    return next((OSError(number, os.strerror(number)) for number in found), None)


def save_served_model(
    model: Any, schema: Schema, path: Path, takes_rows: bool, has_vectors: bool = False
) -> None:
    """Write the SavedModel of a servable.

    It holds the forward pass and the weights: no optimizer, no objective, no Keras objects, whose
    loading would rebuild them from their configuration.
    """
    signature = columns_signature(schema)
    of_target = (TARGET_ITEM_FEATURES, TARGET_ITEM_LISTS, TARGET_ITEM_NUMERICAL)
    channels = channels_of(schema)
    targets = [name for channel in of_target for name in channels.get(channel, ())]

    def score(columns: dict[str, Any]) -> tf.Tensor:
        if isinstance(model, ComposedModel):
            return model.scores(columns)
        return tf.sigmoid(tf.cast(model.forward(columns).logits, tf.float32))

    def score_candidates(user: dict[str, Any], candidates: dict[str, Any]) -> tf.Tensor:
        return score({**user, **{name: ids[tf.newaxis] for name, ids in candidates.items()}})

    def plain(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {SCORE: score(columns)}

    def one_user(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        user = {n: _of_one_user(n, column) for n, column in columns.items() if n not in targets}
        candidates = {name: columns[name] for name in targets}
        return {SCORE: in_parts(lambda part: score_candidates(user, part), candidates)}

    functions = {PLAIN_SIGNATURE: _traced(plain, signature)}
    if not takes_rows:
        functions[ONE_USER_SIGNATURE] = _traced(one_user, signature)
    if dim := getattr(model, "summary_dim", 0):
        summarized = signature | {HISTORY_SUMMARY: tf.TensorSpec([None, dim], name=HISTORY_SUMMARY)}
        functions[PLAIN_SIGNATURE + SUMMARIZED] = _traced(plain, summarized)
        functions[ONE_USER_SIGNATURE + SUMMARIZED] = _traced(one_user, summarized)
        histories = columns_signature(schema.select_by_name(channels[POSITIVE_HISTORY]))
        functions[SUMMARIZE_SIGNATURE] = _traced(
            lambda columns: {HISTORY_SUMMARY: model.summarize(columns)}, histories
        )
    if has_vectors:
        functions |= _vector_functions(model, signature, targets)
    signatures = {name: f.get_concrete_function() for name, f in functions.items()}
    module = tf.Module()
    module.functions = functions
    # What the functions read has to be found in the module; nothing else is saved.
    read = {v.ref(): v for function in signatures.values() for v in function.variables}
    module.weights = list(read.values())
    with quiet_save():
        tf.saved_model.save(module, str(path), signatures=signatures)


def _traced(function: Callable[..., dict[str, tf.Tensor]], signature: Signature) -> Any:
    # Nothing in a model needs autograph, whose conversion takes half of an export's time.
    return tf.function(function, input_signature=[signature], autograph=False)


def _vector_functions(model: Any, signature: Signature, targets: list[str]) -> dict[str, Any]:
    """Return what gives vectors of users, without any item, and of items, without any user."""
    of_users = {name: spec for name, spec in signature.items() if name not in targets}
    of_items = {name: signature[name] for name in targets}

    @tf.function(input_signature=[of_users], autograph=False)
    def users(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {VECTOR: model.forward({**columns, **absent_columns(columns, of_items)}).users}

    @tf.function(input_signature=[of_items], autograph=False)
    def items(columns: dict[str, Any]) -> dict[str, tf.Tensor]:
        return {VECTOR: model.forward({**columns, **absent_columns(columns, of_users)}).items[:, 0]}

    return {USER_VECTOR_SIGNATURE: users, ITEM_VECTOR_SIGNATURE: items}


def _of_one_user(name: str, column: tf.Tensor) -> tf.Tensor:
    """Let the graph know that a column has one row, so that it need not make room for more."""
    if name.endswith(VALUES):
        return column
    rows = 2 if name.endswith(OFFSETS) else 1
    return tf.ensure_shape(column, [rows, *column.shape[1:]])


def export_model(
    model: Any,
    dataset: DatasetDirectory,
    output: Path | str,
    *,
    pad: bool = False,
    overwrite: bool = False,
    target: str | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write a servable; it appears whole or not at all.

    Args:
        model: A trained model, or ``mm.Model(block, outputs)`` of a block of this package.
        dataset: The dataset directory it was trained on; its vocabularies go along.
        output: The directory to make.
        pad: Whether the signatures take histories as padded rows; values and offsets otherwise
            (or as the dataset has them, if it has padded rows itself).
        overwrite: Replace a directory that holds something.
        target: Of a model with several outputs, the target whose prediction is the score; None for
            the label that the block's own losses are about.
        checkpoint: What the manifest is to say of the checkpoint; None for its dataset alone, by
            which a gate knows rows that trained the model.
        say: Called with a sentence on what was found of an earlier run.
    """
    output = Path(output)
    check_apart(output, [dataset.path])
    schema = served_schema(dataset.schema, pad)
    if is_composed(model):
        model = ComposedModel(model, target)
    elif target is not None:
        raise ServableError(f"`target` is for mm.Model(block, outputs). Received: {target!r}")
    family, is_whole = family_of(model), not isinstance(model, ComposedModel)
    names = family.served_columns(dataset.channels, model)
    takes_rows = family.request is Request.ROWS
    columns = (ServedColumns.of_rows if takes_rows else ServedColumns.read)(schema, names)
    if takes_rows and pad:
        raise ServableError("`pad` is about histories, and this model reads none.")
    if checkpoint is None:
        checkpoint = {"dataset": fingerprint(dataset)}
    numbers = LOGARITHMS if is_of_clicks(dataset.path / WORKFLOW_FILE) else None
    metadata = {
        "request": {"of": family.request.value, "columns": names, "numbers": numbers},
        "model": {
            "type": family.name if is_whole else f"composed of {family.name}",
            "options": model.options.to_dict(),
            "precision": model.dtype_policy.name,
        },
        "checkpoint": dict(checkpoint),
        "histories": "ragged" if columns.is_ragged else "padded",
    }
    if dim := getattr(model, "summary_dim", 0):
        metadata["summary"] = {"dim": dim, "recent": model.channels.history_length}
    sources = _vocabularies(dataset, columns)
    if (dataset.path / WORKFLOW_FILE).exists():
        sources.append(dataset.path / WORKFLOW_FILE)
    read_workflow(dataset.path)  # refuses what no server could read
    with (
        staged_directory(output, overwrite=overwrite, say=say) as directory,
        explained_disk_errors(output),
    ):
        served = Schema([schema[n] for n in names])
        has_vectors = family.has_vectors and is_whole
        save_served_model(model, served, directory / MODEL, takes_rows, has_vectors)
        dataset.spec.write(directory / SPEC_FILE)
        write_schema(schema, directory / SCHEMA_FILE)
        for source in sources:
            copy = directory / source.relative_to(dataset.path)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(source, copy)
        write_manifest(directory, metadata)
    return output


def served_schema(schema: Schema, pad: bool) -> Schema:
    """Give histories their fixed length where they are to be padded."""
    if not pad:
        return schema
    lists = {
        column.name
        for column in schema
        for tag in column.tags
        if (channel := known_channel(str(tag))) is not None and channel.is_list
    }
    return Schema(
        [
            column.with_shape((None, int(column.value_count.max)))
            if column.is_list and column.name in lists
            else column
            for column in schema
        ]
    )


def _vocabularies(dataset: DatasetDirectory, columns: ServedColumns) -> list[Path]:
    """Name those that go along; each one's size is compared with the table that its ids look up."""
    found = []
    of_items = (*columns.targets, *columns.target_lists, *columns.histories)
    for column in (*columns.event_keys, *of_items):
        path = dataset.path / CATEGORIES / f"{column.domain}.parquet"
        if column.largest_id is None or path in found or not path.exists():
            continue
        if (keys := pq.read_metadata(path).num_rows) > column.largest_id:
            raise ServableError(
                f"{path}: has {keys:,} keys, more than the cardinality of {column.domain!r} in the "
                f"dataset's spec ({column.largest_id:,})."
            )
        found.append(path)
    return found


Say = Callable[[str], None]
METADATA = ("steps", "epoch", "step", "test_auc", "dataset", "optimizer", "amp")
"""What a servable's manifest says of its checkpoint."""


@dataclass(frozen=True)
class CheckpointExport:
    """A checkpoint to export, and how."""

    checkpoints: Path
    """A run's directory of checkpoints, or one of them."""
    dataset: Path
    """The dataset directory of the run; its vocabularies go along."""
    feature_spec: str = SPEC_FILE
    pad: bool = False
    """Whether signatures take histories as padded rows."""
    overwrite: bool = False
    step: str = BEST
    """Which checkpoint: see :func:`~.checkpoint_store.choose_checkpoint`."""

    def to_servable(self, output: Path, say: Say = lambda message: None) -> None:
        """Write a servable."""
        check_apart(output, [self.checkpoints, self.dataset])
        dataset = DatasetDirectory.open(self.dataset, feature_spec=self.feature_spec)
        checkpoint = choose_checkpoint(self.checkpoints, self.step, say, check_run_metadata)
        model = restore_model(checkpoint, dataset)
        metadata = {name: checkpoint.metadata.get(name) for name in METADATA}
        metadata = {
            "name": checkpoint.path.name,
            "sha256": sha256(checkpoint.path / SUMS),
            **metadata,
        }
        metadata["replayed_dataset"] = replayed_dataset(checkpoint.metadata)
        export_model(
            model,
            dataset,
            output,
            pad=self.pad,
            overwrite=self.overwrite,
            checkpoint=metadata,
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


def restore_model(checkpoint: SavedCheckpoint, dataset: DatasetDirectory) -> Any:
    """Build the model of a checkpoint with its weights, in the precision it was trained in."""
    metadata = checkpoint.metadata
    found = fingerprint(dataset)
    if metadata["dataset"] != found:
        raise CheckpointError(
            f"{checkpoint.path} is of another dataset: its fingerprint is {metadata['dataset']}, "
            f"that of {dataset.path} is {found}."
        )
    return restored_model(checkpoint, model_class(metadata["model_type"]))
