"""A fitted workflow of a behaviour log on disk: JSON and parquet files, nothing to execute.

The JSON file holds the graph, what its operators learned, names, numbers and hashes, its own among
them. A file that was changed, or written by a version that this one does not know, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nvtabular as nvt
import pandas as pd
import pyarrow as pa
from merlin.dag import iter_nodes
from merlin.dag.ops.stat_operator import StatOperator
from merlin.io import Dataset
from merlin.schema import Schema

from ...foundation.digest import DIGEST, sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import copy_directory, read_json, staged_directory
from ...schemas.dataset import DatasetDirectory
from ...schemas.item_table import COUNT
from ..behaviour_columns import (
    BehaviourColumns,
    checked_arguments,
    columns_from_plain,
    columns_to_plain,
)
from ..feature import ITEM, UNITS, FeatureSet
from ..feature_file import features_from_plain
from ..fitted_numbers import FittedNumbers
from ..frames import frame_from_arrow
from ..interactions import exclude_own_time, with_roles
from ..ops.categorify import Categorify
from ..ops.group_histories import GroupHistories
from ..ops.saving import SECTIONS as GRAPH_SECTIONS
from ..ops.saving import (
    load_workflow,
    operators_from_plain,
    operators_to_plain,
    read_workflow_document,
    save_workflow,
)
from ..ops.workflow import Workflow
from ..rules import SampleRules, Split
from ..schedulers import Scheduler, SingleProcess
from ..table_columns import check_types, clean_columns
from ..times import (
    DATE,
    DECIMAL,
    NANOSECONDS,
    TEXT_DATES,
    TimeRange,
    count_of_date,
    kind_of_column,
    known_times,
    time_from_text,
    timestamps_of,
)
from ..vocabularies import CATEGORIES, Vocabularies, check_item_columns
from .dataset_writer import DatasetWriter, WrittenUsers, fitted_numbers, group_of
from .earlier_histories import EarlierHistories
from .graph import behaviour_graph

WORKFLOW_FILE = "workflow.json"


@dataclass(frozen=True)
class FittedWorkflow:
    """A workflow that was fitted before, perhaps elsewhere; gives the ids that it gave then.

    >>> FittedWorkflow.load("no such directory")
    Traceback (most recent call last):
    ...
    merlin_sim.foundation.exceptions.MerlinSimError: no such directory/workflow.json: ...
    """

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
        """Load the workflow of a dataset directory.

        Raises:
            MerlinSimError: Where a file is missing, changed or of an unknown version.
        """
        path = Path(directory) / WORKFLOW_FILE
        document = read_workflow_document(Path(directory))
        section = _sections(path, document)
        features, numbers = _features(path, section)
        fitted = cls(
            Path(directory),
            columns_from_plain(section["columns"], features, f"{path}: columns"),
            _rules(path, section["rules"]),
            {name: _cardinality(path, name, of) for name, of in section["categories"].items()},
            numbers,
            EarlierHistories.of_plain(Path(directory), section["history"]),
            read_json(path, "JSON, a fitted workflow")[DIGEST],
        )
        fitted._check_vocabularies(path, section["categories"])
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

    @property
    def counted_until(self) -> float:
        """The time of the newest row that `encodings` count, in seconds."""
        return self.numbers.counted_until or 0.0

    def teach(self, workflow: nvt.Workflow, schema: Schema, grow: bool = False) -> None:
        """Have another graph of the same log know what this one learned.

        Args:
            workflow: It ends in GroupHistories.
            schema: Of the columns that it is given.
            grow: Whether it will be fitted on more rows, in which new keys get the next ids.
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
                self._teach_number(node.op, node.input_columns.names[0])
            if isinstance(node.op, StatOperator):
                node.op.fitted = not (grow and isinstance(node.op, Categorify | GroupHistories))
        workflow.fit_schema(schema)

    def _teach_number(self, operator: Any, name: str) -> None:
        """Have an operator of a number know what the one of its kind learned."""
        for known in self.numbers.operators[name]:
            if type(known) is type(operator):
                vars(operator).update(vars(known))

    def rows(self, log: pd.DataFrame) -> Any:
        """Read rows of a log as files are read: what :meth:`histories` takes.

        Without features beside ids, and without behaviours, it takes a log's frame as it is, too.
        Such a log needs no columns of item features: they are known of each item.

        Raises:
            MerlinSimError: With the columns that are not there, or the first row that cannot be
                read, from 1; or where times cannot be in the unit that the workflow was fitted
                with.
        """
        table, name = pa.Table.from_pandas(log, preserve_index=False), self.columns.timestamp
        read = self.columns
        if not read.features:
            there = tuple(feature for feature in read.item_features if feature in log)
            read = replace(read, item_features=there)
        check_types([(Path("the log"), table.schema)], read)
        kind = kind_of_column(table[name].combine_chunks())
        of_text = DATE if kind == TEXT_DATES else kind
        rows, bad = clean_columns(table, read, of_text, self.numbers)
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

    @property
    def _split(self) -> Split | None:
        """The split of the rules; a date that splits numbers as the number it stands for."""
        split, unit = self.rules.split, self.columns.features.timestamp_unit
        if split is None or self.kept is None or self.kept.times in NANOSECONDS or unit is None:
            return split
        test_from, validation_from = split.test_from, split.validation_from
        return replace(
            split,
            test_from=_count(test_from, unit),
            validation_from=_count(validation_from, unit),
        )

    def with_rules(self, rules: SampleRules, split: Split | None) -> nvt.Workflow:
        """The workflow as it was saved, with the rules of another log."""
        group = group_of(self.workflow)
        group.rules, group.split = rules, split
        return self.workflow

    def samples(self, log: pd.DataFrame, mapping: str) -> pd.DataFrame:
        """Make the rows of train or test of a log, as ``preprocess --layout samples`` writes them.

        Raises:
            MerlinSimError: Where given files were the split: a frame does not say whose it is. Or
                where `encodings` counted an interaction that is to become a sample.
        """
        if self.rules.test_files is not None:
            raise MerlinSimError(
                "The dataset was split by given files, which rows of a frame do not tell: expected "
                "a workflow with another split, or none. `histories` makes one row a user."
            )
        if mapping not in self.rules.mappings:
            expected = " or ".join(map(repr, self.rules.mappings))
            raise ValueError(f"`mapping` should be {expected}. Received: {mapping!r}.")
        from .write_samples import AllUsers, SamplesOfUsers  # TensorFlow, which fitting leaves out

        rows = Dataset(self.rows(log), cpu=None)
        workflow = self._workflow_of(self._split)
        with TemporaryDirectory(prefix="merlin-sim-users-") as directory:
            writer = DatasetWriter(workflow, rows, Path(directory), SingleProcess())
            writer.write_users().refuse_counted(writer.group, "the log", [mapping])
            copy_directory(self.vocabularies.directory, Path(directory) / CATEGORIES)
            writer.write_documents()
            made = SamplesOfUsers(
                AllUsers(DatasetDirectory.open(directory)), mapping, self.rules.pad
            )
            return frame_from_arrow(pa.concat_tables(map(made.table, range(len(made.files)))))

    def _check_vocabularies(self, path: Path, stated: Mapping[str, Any]) -> None:
        if set(stated) != set(self.domains):
            raise MerlinSimError(
                f"{path}: categories: expected {', '.join(self.domains)}, "
                f"found {', '.join(stated)}."
            )
        for name in self.domains:
            file = self.vocabularies.path(name)
            if not file.is_file():
                raise MerlinSimError(f"{file}: missing; {path} names it.")
            if sha256(file) != stated[name].get("sha256"):
                raise MerlinSimError(
                    f"{file}: not the file that {path} was written with (its SHA-256 differs). "
                    "Ids would not be those of the fitted workflow."
                )
            of_items = (COUNT, *self.columns.item_features, *self.columns.of_items)
            beside = (*of_items, *self.columns.features.encoded) * (name == self.columns.item)
            self.vocabularies.check(name, self.sizes[name], beside)
        columns, features = self.columns, self.columns.features
        check_item_columns(
            self.vocabularies.path(columns.item),
            {name: self.sizes[name] for name in columns.item_features},
            (*features.numbers(ITEM), *features.encoded),
            {f.name: (self.sizes[f.name], f.longest) for f in features.lists},
            {f.name: f.size for f in features.vectors},
        )


def _categorifies(workflow: nvt.Workflow) -> list[Categorify]:
    nodes = iter_nodes([workflow.output_node])
    return [node.op for node in nodes if isinstance(node.op, Categorify)]


def _count(text: str | None, unit: str) -> str | None:
    """A time of a split as a number of a unit, where it is a date."""
    if text is None or unit not in UNITS or time_from_text(text, DECIMAL)[0] is not None:
        return text
    count = count_of_date(text, unit)
    return text if count is None else str(count)


def _cardinality(path: Path, name: str, stated: Any) -> int:
    if not isinstance(stated, dict):
        raise MerlinSimError(f"{path}: categories: expected an object per domain.")
    size = stated.get("cardinality")
    if type(size) is not int or size < 1:
        raise MerlinSimError(
            f"{path}: categories.{name}.cardinality: expected a whole number above 0, "
            f"found {size!r:.60}."
        )
    return size


LEARNED_NUMBERS = ("medians", "means", "stds", "mins", "maxs")
OBJECTS = ("columns", "rules", "features", "categories")
SECTIONS = (*OBJECTS, "history", "grown_from")


def _sections(path: Path, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document, if it has the sections of behaviour logs."""
    missing = [name for name in SECTIONS if name not in document]
    if missing:
        raise MerlinSimError(
            f"{path}: expected a workflow of a behaviour log (`preprocess log`, `preprocess "
            f"amazon-books`, `write_dataset`), found one without {', '.join(missing)}."
        )
    more = [name for name in document if name not in (*GRAPH_SECTIONS, *SECTIONS)]
    if more:
        raise MerlinSimError(
            f"{path}: expected the sections {', '.join((*GRAPH_SECTIONS, *SECTIONS))}, found "
            f"{', '.join(more)} too."
        )
    wrong = [name for name in OBJECTS if not isinstance(document[name], dict)]
    if wrong:
        raise MerlinSimError(f"{path}: expected an object under each of {', '.join(wrong)}.")
    return document


def read_fitted_features(path: Path) -> tuple[FeatureSet, FittedNumbers, str]:
    """Read, of a workflow.json, what it says of features beside ids, and the timestamp's column."""
    section = _sections(path, read_workflow_document(path.parent))
    return (*_features(path, section), str(section["columns"].get("timestamp")))


def _features(path: Path, section: Mapping[str, Any]) -> tuple[FeatureSet, FittedNumbers]:
    """The features beside ids, and the fitted operators of numbers."""
    where, plain = f"{path}: features", section["features"]
    expected = ("stated", "operators", "prior", "counted_until")
    if sorted(plain) != sorted(expected):
        raise MerlinSimError(f"{where}: expected {', '.join(expected)}, found {', '.join(plain)}.")
    stated = plain["stated"]
    features = FeatureSet() if stated is None else features_from_plain(stated, where)
    operators = {
        name: operators_from_plain(chain, f"{where}.operators.{name}")
        for name, chain in plain["operators"].items()
    }
    for name, chain in operators.items():
        if not all(_has_learned(operator, name) for operator in chain):
            raise MerlinSimError(
                f"{where}.operators.{name}: expected what its operators learned: numbers."
            )
    prior, until = plain["prior"], plain["counted_until"]
    if not isinstance(prior, float) or not 0 <= prior <= 1:
        raise MerlinSimError(f"{where}.prior: expected a share of 0.0 to 1.0, found {prior!r:.60}.")
    if until is not None and not isinstance(until, float):
        raise MerlinSimError(f"{where}.counted_until: expected seconds, found {until!r:.60}.")
    return features, FittedNumbers(operators, prior, until)


def _has_learned(operator: Any, name: str) -> bool:
    """Whether what an operator of a number learned is numbers of its column."""
    learned = (getattr(operator, attribute, None) for attribute in LEARNED_NUMBERS)
    return all(
        isinstance(found, dict) and isinstance(found.get(name), float) and isfinite(found[name])
        for found in learned
        if found is not None
    )


def _rules(path: Path, plain: Mapping[str, Any]) -> SampleRules:
    where = f"{path}: rules"
    try:
        return SampleRules(**checked_arguments(plain, SampleRules, where))
    except MerlinSimError as error:
        raise MerlinSimError(f"{where}: {error}") from error


def write_fitted(
    directory: Path,
    workflow: nvt.Workflow,
    kept: EarlierHistories | None = None,
    grown_from: FittedWorkflow | None = None,
) -> None:
    """Save the workflow beside finished vocabularies.

    Args:
        directory: The dataset directory.
        workflow: It ends in GroupHistories.
        kept: What the dataset keeps of its users' histories.
        grown_from: Whose vocabularies these grew from, if they did.
    """
    group, numbers = group_of(workflow), fitted_numbers(workflow)
    vocabularies, features = Vocabularies(directory / CATEGORIES), group.columns.features
    sections = {
        "columns": columns_to_plain(group.columns),
        "rules": group.rules.to_dict(),
        "features": {
            "stated": None if features == FeatureSet() else features.to_plain(),
            "operators": {
                name: operators_to_plain(chain) for name, chain in numbers.operators.items()
            },
            "prior": numbers.prior,
            "counted_until": numbers.counted_until,
        },
        "categories": {
            name: {
                "file": f"{CATEGORIES}/{name}.parquet",
                "cardinality": group.sizes[name],
                "sha256": sha256(vocabularies.path(name)),
                "grown_from": None
                if grown_from is None
                else {
                    "fingerprint": sha256(grown_from.vocabularies.path(name)),
                    "cardinality": grown_from.sizes[name],
                },
            }
            for name in group.columns.domains
        },
        "history": None if kept is None else kept.to_plain(),
        "grown_from": None if grown_from is None else grown_from.fingerprint,
    }
    with kept_in_vocabularies(workflow, directory / CATEGORIES):
        save_workflow(workflow, directory, **sections)


@contextmanager
def kept_in_vocabularies(workflow: nvt.Workflow, categories: Path) -> Iterator[None]:
    """Have operators look keys up in the vocabularies of a dataset, which are not saved twice."""
    operators = _categorifies(workflow)
    before = [dict(operator.categories) for operator in operators]
    for operator in operators:
        for name in operator.categories:
            if (categories / f"{name}.parquet").is_file():
                operator.categories[name] = str(categories / f"{name}.parquet")
    try:
        yield
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
    _refuse_missing_columns(workflow, dataset)
    group.refuse_split_users(dataset)
    with staged_directory(Path(output), overwrite=overwrite) as directory:
        writer = DatasetWriter(workflow, dataset, directory, scheduler or SingleProcess())
        written = writer.write_users()
        writer.write_vocabularies()
        writer.write_documents()
        write_fitted(directory, workflow)
    return written


def rows_that_train(workflow: nvt.Workflow, dataset: Dataset) -> Dataset:
    """The rows of a log that train, by the split of the workflow's ``GroupHistories``.

    ``workflow.fit`` learns from the rows that it is given: ids and numbers that are fitted on
    these know nothing of the rows that test.

    Args:
        workflow: It ends in ``GroupHistories``.
        dataset: The log; all rows of a user stand in one partition.
    """
    group = group_of(workflow)
    _refuse_missing_columns(workflow, dataset)
    frames = dataset.to_ddf()
    chosen = frames.map_partitions(_training_rows, group, meta=frames._meta)
    return Dataset(chosen, schema=dataset.schema, cpu=dataset.cpu)


def _refuse_missing_columns(workflow: nvt.Workflow, dataset: Dataset) -> None:
    """Raise a MerlinSimError where a log lacks columns that a workflow reads."""
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
