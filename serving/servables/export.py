"""From a trained model and its dataset directory to a servable that needs neither."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from merlin.schema import Schema

from ...foundation.staging import check_apart, staged_directory
from ...models.families.family import Request
from ...models.registry import family_of
from ...schemas import SCHEMA_FILE, SPEC_FILE
from ...schemas.channels import known_channel
from ...schemas.dataset import DatasetDirectory
from ...schemas.translation.schema_file import write_schema
from ...workflows.criteo.click_graph import is_of_clicks
from ...workflows.criteo.criteo_columns import LOGARITHMS
from .manifest import ServableError, write_manifest
from .servable import CATEGORIES, MODEL, WORKFLOW
from .served_columns import ServedColumns
from .served_model import explained_disk_errors, save_served_model


def export_model(
    model: Any,
    dataset: DatasetDirectory,
    output: Path | str,
    *,
    pad: bool = False,
    overwrite: bool = False,
    checkpoint: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda message: None,
) -> Path:
    """Write a servable; it appears whole or not at all.

    Args:
        model: A trained model.
        dataset: The dataset directory it was trained on; its vocabularies go along.
        output: The directory to make.
        pad: Whether the signatures take histories as padded rows; values and offsets otherwise
            (or as the dataset has them, if it has padded rows itself).
        overwrite: Replace a directory that holds something.
        checkpoint: What the manifest is to say of the checkpoint.
        say: Told, in a sentence, what was found of an earlier run.
    """
    output = Path(output)
    check_apart(output, [dataset.path])
    schema = served_schema(dataset.schema, pad)
    family = family_of(model)
    names = family.served_columns(dataset.channels)
    takes_rows = family.request is Request.ROWS
    columns = ServedColumns.of_rows(schema, names) if takes_rows else ServedColumns.read(schema)
    if takes_rows and pad:
        raise ServableError("`pad` is about histories, and this model reads none.")
    numbers = LOGARITHMS if is_of_clicks(dataset.path / WORKFLOW) else None
    facts = {
        "request": {"of": family.request.value, "columns": names, "numbers": numbers},
        "model": {
            "type": family.name,
            "options": model.options.to_dict(),
            "precision": model.dtype_policy.name,
        },
        "checkpoint": dict(checkpoint or {}),
        "histories": "ragged" if columns.is_ragged else "padded",
    }
    _check_vocabularies(dataset, columns)
    with (
        staged_directory(output, overwrite=overwrite, say=say) as directory,
        explained_disk_errors(output),
    ):
        served = Schema([schema[n] for n in names])
        save_served_model(model, served, directory / MODEL, takes_rows, family.has_vectors)
        dataset.spec.write(directory / SPEC_FILE)
        write_schema(schema, directory / SCHEMA_FILE)
        for source in (dataset.path / WORKFLOW, *_vocabularies(dataset, columns)):
            if source.exists():
                target = directory / source.relative_to(dataset.path)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(source, target)
        write_manifest(directory, facts)
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


def _domains(columns: ServedColumns) -> dict[str, int]:
    everything = (*columns.users, *columns.targets, *columns.target_lists, *columns.histories)
    return {c.domain: c.largest_id for c in everything if c.largest_id is not None}


def _vocabularies(dataset: DatasetDirectory, columns: ServedColumns) -> list[Path]:
    return [dataset.path / CATEGORIES / f"{domain}.parquet" for domain in _domains(columns)]


def _check_vocabularies(dataset: DatasetDirectory, columns: ServedColumns) -> None:
    """Compare each vocabulary's size with the table that its ids look up."""
    for domain, largest in _domains(columns).items():
        path = dataset.path / CATEGORIES / f"{domain}.parquet"
        if path.exists() and pq.read_metadata(path).num_rows > largest:
            raise ServableError(
                f"{path}: has {pq.read_metadata(path).num_rows:,} keys, more than the "
                f"cardinality of {domain!r} in the dataset's spec ({largest:,})."
            )
