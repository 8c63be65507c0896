"""A fitted workflow of a behaviour log on disk: JSON and parquet files, nothing to execute.

The JSON file holds the graph, what its operators learned, names, numbers and hashes, its own among
them. A file that was changed, or written by a version that this one does not know, is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask
import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
from merlin.dag import iter_nodes
from merlin.dag.ops.stat_operator import StatOperator
from merlin.io import Dataset
from merlin.schema import Schema

from ...foundation.digest import DIGEST
from ...foundation.exceptions import DatasetWarning, MerlinSimError
from ...foundation.files import copy_directory, read_json, staged_directory
from ...schemas.fitted_record import (
    HISTORIES,
    OF_HISTORIES,
    SAVED,
    histories_record,
    number_operators,
    require_shape,
)
from ...schemas.item_table import KEY
from ...schemas.layout_names import CATEGORIES, TRAIN, WORKFLOW_FILE
from ...schemas.parquet import read_footer, type_in_words
from ..behaviour_columns import BehaviourColumns
from ..feature import FeatureSet
from ..fitted_numbers import FittedNumbers
from ..frames import frame_from_arrow
from ..interactions import exclude_own_time, with_roles
from ..known_values import ordered_times
from ..ops.categorify import Categorify
from ..ops.group_histories import GroupHistories
from ..ops.registry import operators_with
from ..ops.saving import (
    check_files,
    load_workflow,
    make_operator,
    read_workflow_document,
    require_digest,
    save_workflow,
)
from ..ops.workflow import Workflow
from ..rules import ALL_ROWS, SampleRules, Split, newest_tenth
from ..schedulers import Scheduler, SingleProcess
from ..table_columns import check_types, clean_columns
from ..times import NANOSECONDS, TimeRange, kind_of_column, known_times, timestamps_of
from ..vocabularies import Vocabularies
from .dataset_writer import DatasetWriter, WrittenUsers, group_of
from .earlier_histories import EarlierHistories
from .graph import behaviour_graph


@dataclass(frozen=True)
class FittedWorkflow:
    """A workflow that was fitted before, perhaps elsewhere; gives the ids that it gave then."""

    directory: Path
    """The dataset directory."""
    columns: BehaviourColumns
    rules: SampleRules
    sizes: Mapping[str, int]
    """How many ids each domain has."""
    numbers: FittedNumbers = field(default_factory=FittedNumbers)
    """The fitted operators of numbers."""
    kept: EarlierHistories | None = None
    """What the dataset keeps of its users' histories, where it keeps them."""
    fingerprint: str = ""
    """The digest of its workflow.json."""

    @classmethod
    def load(cls, directory: Path | str) -> FittedWorkflow:
        """Load the workflow of a dataset directory."""
        path = Path(directory) / WORKFLOW_FILE
        record, document = _histories(path)
        columns, rules, numbers = _learned(path, record, document)
        for name in columns.domains:
            require_digest(path, document, f"{CATEGORIES}/{name}.parquet")
        check_files(path, document["files"])
        history = document["history"]
        fitted = cls(
            Path(directory),
            columns,
            rules,
            record["learned"]["sizes"],
            numbers,
            None if history is None else EarlierHistories(Path(directory), **history),
            read_json(path, "JSON, a fitted workflow")[DIGEST],
        )
        fitted.vocabularies.check(columns, fitted.sizes)
        return fitted

    @property
    def vocabularies(self) -> Vocabularies:
        """The keys and their ids."""
        return Vocabularies(self.directory / CATEGORIES)

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the vocabularies."""
        return self.columns.domains

    @cached_property
    def workflow(self) -> nvt.Workflow:
        """The NVTabular workflow, as it was saved."""
        return load_workflow(self.directory)

    def check_types_of_keys(self, files: str, types: Mapping[str, pa.DataType]) -> None:
        """Refuse keys of other ``types``, by column of ``files``: none would be known."""
        for name in (name for name in self.domains if name in types):
            expected = read_footer(self.vocabularies.path(name))[1].field(KEY).type
            received = types[name]
            if pa.types.is_dictionary(received):
                received = received.value_type
            if pa.types.is_integer(expected) != pa.types.is_integer(received):
                raise MerlinSimError(
                    f"{files}: column {name!r}: expected {type_in_words(expected)}, as the "
                    f"workflow was fitted on, found {type_in_words(received)}."
                )

    def teach(self, workflow: nvt.Workflow, schema: Schema, grow: bool = False) -> None:
        """Have another graph of the same log know what this one learned.

        Where it is to ``grow``, it will be fitted on more rows, whose new keys get the next ids.
        """
        workflow.fit_schema(schema)
        known = {name: op for op in _categorifies(self.workflow) for name in op.categories}
        for node in iter_nodes([workflow.output_node]):
            if isinstance(node.op, Categorify):
                for name in node.input_columns.names:
                    node.op.take_keys(known[name], name, grow)
            elif isinstance(node.op, GroupHistories):
                node.op.learn_from(group_of(self.workflow), grow)
            elif isinstance(node.op, StatOperator):
                for fitted in self.numbers.operators[node.input_columns.names[0]]:
                    if type(fitted) is type(node.op):
                        vars(node.op).update(vars(fitted))
            if isinstance(node.op, StatOperator):
                node.op.fitted = not (grow and isinstance(node.op, Categorify | GroupHistories))
        workflow.fit_schema(schema)

    def rows(self, log: pd.DataFrame) -> Any:
        """Read rows of a log as files are read: what :meth:`histories` takes.

        With ids alone, and without behaviours, it takes a log's frame as it is, too.
        Such a log needs no columns of item features: they are known of each item. A graph that was
        composed by hand takes a log's frame as it is, with all columns that it reads.
        """
        if not group_of(self.workflow).reads_raw:  # its own graph reads what the log has
            _refuse_missing_columns(self.workflow, Dataset(log.iloc[:1], cpu=True))
            return log.reset_index(drop=True)
        table, name = pa.Table.from_pandas(log, preserve_index=False), self.columns.timestamp
        read = self.columns
        if not read.features:
            there = tuple(feature for feature in read.item_features if feature in log)
            read = replace(read, item_features=there)
        check_types([(Path("the log"), table.schema)], read)
        kind = kind_of_column(table[name].combine_chunks())
        rows, bad = clean_columns(table, read, kind, self.numbers)
        if bad:
            raise MerlinSimError(f"the log, row {bad[0].line}: {bad[0].reason}.")
        times = rows[name].combine_chunks()
        ends = TimeRange.of(times, Path("the log"))
        if ends is not None:
            columns = self.columns
            known_times(ends, kind, columns.features.timestamp_unit, columns.needs_unit, name)
        dates = timestamps_of(times, kind)
        rows = rows.set_column(rows.schema.get_field_index(name), name, dates)
        return frame_from_arrow(with_roles(rows, self.columns)[0])

    def histories(self) -> nvt.Workflow:
        """The NVTabular workflow from raw interactions to one row of ids a user."""
        return self._workflow_of(None)

    def _workflow_of(self, split: Split | None) -> nvt.Workflow:
        """The same, with the positions of a split."""
        group = group_of(self.workflow)
        if not group.reads_raw:  # composed by hand: only its own graph knows its operators
            return self.workflow
        columns = replace(
            exclude_own_time(self.columns, self.rules), item_values=False,
            steady=tuple(name for name in group.columns.steady if name in self.columns.log),
        )  # fmt: skip
        workflow = Workflow(behaviour_graph(columns, self.rules, split))
        self.teach(workflow, self.workflow.input_schema)
        return workflow

    def samples(self, log: pd.DataFrame, mapping: str) -> pd.DataFrame:
        """Make the rows of a mapping of a log, as ``preprocess --fitted`` writes them.

        Items have the values of their features that were fitted, whatever the log says of them.
        """
        if self.rules.test_files is not None:
            raise MerlinSimError(
                "The dataset was split by given files, which rows of a frame do not show: expected "
                "a workflow with another split, or none. `histories` makes one row a user."
            )
        if mapping not in self.rules.mappings:
            expected = " or ".join(map(repr, self.rules.mappings))
            raise ValueError(f"`mapping` should be {expected}. Received: {mapping!r}.")
        from .write_samples import AllUsers, SamplesOfUsers  # TensorFlow, which fitting leaves out

        rows = Dataset(self.rows(log), cpu=None)
        # As times of `rows` are: dates, or numbers as the log had them.
        has_dates = self.kept is None or self.kept.times in NANOSECONDS
        split = self.rules.split if has_dates else group_of(self.workflow).split
        workflow = self._workflow_of(split)
        with TemporaryDirectory(prefix="merlin-sim-users-") as directory:
            writer = DatasetWriter(workflow, rows, Path(directory), SingleProcess())
            writer.write_users().refuse_counted(writer.group, "the log", [mapping])
            copy_directory(self.vocabularies.directory, Path(directory) / CATEGORIES)
            made = SamplesOfUsers(AllUsers(writer.users), mapping, self.rules.pad)
            return frame_from_arrow(pa.concat_tables(map(made.table, range(len(made.files)))))


def _categorifies(workflow: nvt.Workflow) -> list[Categorify]:
    nodes = iter_nodes([workflow.output_node])
    return [node.op for node in nodes if isinstance(node.op, Categorify)]


def _histories(path: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a workflow's JSON says of the operator that makes histories, and all that it says."""
    document = read_workflow_document(path.parent)
    record = histories_record(document)
    if record is None or not set(OF_HISTORIES) <= set(document):
        raise MerlinSimError(
            f"{path}: expected a workflow of a behaviour log (`preprocess log`, `preprocess "
            "amazon-books`, `write_dataset`), found another."
        )
    sections = {name: found for name, found in document.items() if name not in SAVED}
    require_shape(path, sections, OF_HISTORIES)
    return record, document


def _learned(
    path: Path, record: Mapping[str, Any], document: Mapping[str, Any]
) -> tuple[BehaviourColumns, SampleRules, FittedNumbers]:
    known = operators_with(())
    try:
        group, learned = GroupHistories.from_config(record["config"]), record["learned"]
        columns = replace(
            group.columns, continued=False, own_time_excluded=False, steady=(), item_values=True
        )
    except (MerlinSimError, AttributeError, OverflowError, TypeError, ValueError) as error:
        raise MerlinSimError(f"{path}: {HISTORIES}: config: {error}") from error
    operators = {
        name: [make_operator(path, document, number, known) for number in chain]
        for name, chain in number_operators(document).items()
    }
    numbers = FittedNumbers(operators, learned["prior"], learned["counted_until"])
    numbers.refuse_others(str(path))
    return columns, group.rules, numbers


def read_fitted_features(path: Path) -> tuple[FeatureSet, FittedNumbers, str]:
    """Read a workflow.json's features other than keys, and the name of the timestamp's column."""
    columns, _, numbers = _learned(path, *_histories(path))
    return columns.features, numbers, columns.timestamp


def write_fitted(
    directory: Path,
    workflow: nvt.Workflow,
    kept: EarlierHistories | None = None,
    grown_from: FittedWorkflow | None = None,
) -> None:
    """Save a workflow that ends in GroupHistories, beside finished vocabularies."""
    sections = {
        "history": None
        if kept is None
        else {"longest": kept.longest, "times": kept.times, "files": kept.files},
        "grown_from": None
        if grown_from is None
        else {"fingerprint": grown_from.fingerprint, "sizes": grown_from.sizes},
    }
    categories, operators = directory / CATEGORIES, _categorifies(workflow)
    before = [dict(operator.categories) for operator in operators]
    for operator in operators:
        for name in operator.categories:  # these are not saved twice
            if (categories / f"{name}.parquet").is_file():
                operator.categories[name] = str(categories / f"{name}.parquet")
    try:
        save_workflow(workflow, directory, **sections)
    finally:
        for operator, own in zip(operators, before, strict=True):
            operator.categories = own


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
    ``dataset`` has all rows, those that train and those that test, all rows of a user in one
    partition. Without a scheduler this process works.
    """
    group = group_of(workflow)
    if group.items.table is None:
        raise MerlinSimError(
            "The workflow should be fitted before it writes a dataset: "
            "`workflow.fit(ms.rows_that_train(workflow, log))`."
        )
    _refuse_missing_columns(workflow, dataset)
    group.refuse_features_of_label(workflow.output_node)
    group.refuse_split_users(dataset)
    with staged_directory(Path(output), overwrite=overwrite) as directory:
        writer = DatasetWriter(workflow, dataset, directory, scheduler or SingleProcess())
        written = writer.write_users()
        writer.write_vocabularies()
        writer.write_documents()
        write_fitted(directory, workflow)
    _warn_of_held_out_rows(group, written)
    return written


def rows_that_train(workflow: nvt.Workflow, dataset: Dataset) -> Dataset:
    """The rows of a log that train, by the split of the workflow's ``GroupHistories``.

    ``workflow.fit`` learns from the rows that it is given: ids and numbers that are fitted on
    these know nothing of the rows that validate or test. Where ``fit_on`` is ``all``, it is the
    whole log. A split by time that names no part that validates gets the newest tenth of them.
    All rows of a user stand in one partition.
    """
    group = group_of(workflow)
    _refuse_missing_columns(workflow, dataset)
    if _choose_validation(group, dataset) or not workflow.output_schema:
        preserves = bool(workflow.output_schema)
        workflow.graph.construct_schema(dataset.schema, preserve_dtypes=preserves)
    group.refuse_features_of_label(workflow.output_node)
    if group.rules.fit_on == ALL_ROWS:
        return dataset
    frames = dataset.to_ddf()
    chosen = frames.map_partitions(_training_rows, group, meta=frames)
    return Dataset(chosen, schema=dataset.schema, cpu=dataset.cpu)


def _choose_validation(group: GroupHistories, dataset: Dataset) -> bool:
    """Have the newest tenth of what would train validate, where a split by time names no part."""
    rules, split = group.rules, group.split
    if rules.validation is None or split is None or split.test_from is None:
        return False
    if split.validation_from is not None:
        return False
    frames = dataset.to_ddf().to_delayed()
    found = dask.compute(*(dask.delayed(group.times_that_train)(frame) for frame in frames))
    times = pa.chunked_array(found).combine_chunks()
    order = ordered_times(times)
    first = newest_tenth(order)
    if first is None:
        return False
    time = times[int(np.argmax(order == first))].as_py()
    group.validate_from(time.isoformat() if hasattr(time, "isoformat") else str(time))
    return True


def _warn_of_held_out_rows(group: GroupHistories, written: WrittenUsers) -> None:
    """Warn where rows that validate or test were fitted on, and no one asked for that."""
    held_out = sum(n for mapping, n in written.positions.items() if mapping != TRAIN)
    beyond = group.fitted_beyond(written.read, written.read - held_out)
    if beyond:
        warnings.warn(
            f"The workflow was fitted on {beyond:,} rows that validate or test: ids, counts and "
            "numbers know them, and a test says too much. Expected "
            "`workflow.fit(ms.rows_that_train(workflow, log))`, or `fit_on` = "
            f"{ALL_ROWS!r} of GroupHistories.",
            DatasetWarning,
            stacklevel=3,
        )


def _refuse_missing_columns(workflow: nvt.Workflow, dataset: Dataset) -> None:
    selectors = [node.selector or node.op.selector for node in workflow.graph.leaf_nodes]
    there = dataset.schema.column_names
    reads = dict.fromkeys(name for selector in selectors for name in selector.names)
    missing = [name for name in reads if name not in there]
    if missing:
        raise MerlinSimError(
            f"The log lacks columns that the workflow reads: {', '.join(missing)}. It has "
            f"{', '.join(there)}."
        )


def _training_rows(frame: Any, group: GroupHistories) -> Any:
    if not len(frame):
        return frame
    return frame[group.trains(frame)].reset_index(drop=True)
