"""A log becomes a dataset directory by a workflow of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import numpy as np
import nvtabular as nvt
from merlin.io import Dataset

from ...foundation.exceptions import MerlinSimError
from ...foundation.staging import staged_directory
from ..engine.schedulers import Scheduler, SingleProcess
from ..ops.group_histories import GroupHistories
from .dataset_writer import DatasetWriter, WrittenUsers, group_of
from .fitted import write_fitted


def write_dataset(
    workflow: nvt.Workflow,
    dataset: Dataset,
    output: Path | str,
    *,
    overwrite: bool = False,
    scheduler: Scheduler | None = None,
) -> WrittenUsers:
    """Write a log as a dataset directory, by a fitted workflow that ends in ``GroupHistories``.

    The directory has ``users/*.parquet``, ``schema.pbtxt``, ``feature_spec.yaml``, the
    vocabularies in ``categories/`` and the workflow itself; it appears whole or not at all.

    Args:
        workflow: The fitted workflow.
        dataset: The log: all rows, those that train and those that test.
        output: The dataset directory.
        overwrite: Replace a directory that holds something.
        scheduler: Where to work; this process if None.

    Raises:
        MerlinSimError: Where the workflow ends in something else or was not fitted, or a user
            stands in several partitions.
    """
    group = group_of(workflow)
    if group.items.table is None:
        raise MerlinSimError(
            "The workflow should be fitted before it writes a dataset: "
            "`workflow.fit(ms.rows_that_train(workflow, log))`."
        )
    _refuse_split_users(group, dataset)
    with staged_directory(Path(output), overwrite=overwrite) as directory:
        writer = DatasetWriter(workflow, dataset, directory, scheduler or SingleProcess())
        written = writer.write_users()
        writer.write_vocabularies()
        writer.write_documents()
        write_fitted(directory, workflow)
    return written


def _refuse_split_users(group: GroupHistories, dataset: Dataset) -> None:
    frames = dataset.to_ddf().to_delayed()
    if len(frames) < 2:
        return
    hashes = dask.compute(*[dask.delayed(group.user_hashes)(frame) for frame in frames])
    group.refuse_split(np.concatenate(hashes))


def rows_that_train(workflow: nvt.Workflow, dataset: Dataset) -> Dataset:
    """The rows of a log that train, by the split of the workflow's ``GroupHistories``.

    ``workflow.fit`` learns from the rows that it is given: ids and numbers that are fitted on
    these know nothing of the rows that test.

    Args:
        workflow: It ends in ``GroupHistories``.
        dataset: The log; all rows of a user stand in one partition.
    """
    group = group_of(workflow)
    frames = dataset.to_ddf()
    chosen = frames.map_partitions(_training_rows, group, meta=frames._meta)
    return Dataset(chosen, schema=dataset.schema, cpu=dataset.cpu)


def _training_rows(frame: Any, group: GroupHistories) -> Any:
    if not len(frame):
        return frame
    return frame[group.trains(frame)].reset_index(drop=True)
