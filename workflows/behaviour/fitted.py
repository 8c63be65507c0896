"""What a fitted workflow is on disk: workflow.json and categories/*.parquet, nothing to execute.

The JSON file holds names, numbers and hashes, its own among them. Loading it builds the graph from
this package's code; a file that was changed, or written by a version that this one does not know,
is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nvtabular as nvt
import pandas as pd
import pyarrow as pa
from merlin.io import Dataset

from ... import __version__
from ...foundation.atomic_write import copy_directory, write_text_atomically
from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.json_file import read_json
from ...foundation.own_digest import DIGEST, require_own_digest, with_own_digest
from ...schemas.dataset import DatasetDirectory, write_documents
from ...schemas.item_table import COUNT
from ..continuation.earlier_histories import EarlierHistories
from ..engine.backend import frame_from_arrow, frame_to_arrow
from ..engine.schedulers import SingleProcess
from ..engine.workflow import TemporaryFiles, Workflow
from ..features.event_counts import refuse_counted
from ..features.feature import INTERACTION, ITEM, UNITS, USER, Number
from ..features.feature_file import features_from_plain
from ..features.feature_set import FeatureSet
from ..features.fitted_numbers import FittedNumbers, learned_from_plain
from ..logs.table_columns import check_types, clean_columns
from ..logs.time_range import TimeRange, known_times
from ..logs.times import (
    DATE,
    DECIMAL,
    NANOSECONDS,
    TEXT_DATES,
    count_of_date,
    kind_of_column,
    time_from_text,
    timestamps_of,
)
from ..vocabularies.item_columns import check_item_columns
from ..vocabularies.vocabulary import CATEGORIES, Vocabularies
from .behaviour_columns import ROLE, SECONDS, BehaviourColumns
from .behaviour_graph import encode_histories, fitted_workflow
from .dataset_spec import users_layout_of, users_spec
from .equal_times import exclude_own_time
from .histories import Histories
from .interaction_roles import TAKEN
from .roles import with_roles
from .rules import ALL_ROWS, ITEM_ORDER, LATEST, SPLIT_RULES, SampleRules
from .split import Split
from .write_users import user_parts, write_users

WORKFLOW_FILE = "workflow.json"
FORMAT = 6
FORMER = (2, 3, 4, 5)
"""Formats that are read too: 2 is of logs without labels, in which equal times went by the item; 3
knows no features beside ids; 4 knows no behaviours; 5 counts items in all rows, and gives every
sample the latest values of features."""
BEHAVIOURS: dict[str, Any] = {
    "behaviour": None,
    "history_behaviours": [],
    "target_behaviours": [],
}
"""What format 5 says beside format 4."""
ADDED: dict[str, dict[str, Any]] = {
    "columns": {"label": None},
    "rules": {
        "negatives_per_positive": 1,
        "equal_times": ITEM_ORDER,
        **dict.fromkeys(SPLIT_RULES),
    },
}
"""What format 3 says beside format 2."""
NOTHING: dict[str, Any] = {"stated": None, "learned": {}, "prior": 0.0, "counted_until": None}
FOUND = ("features", "continued", "own_time_excluded", "steady", "dated")
"""Of the columns what stands elsewhere, or is found in each log anew."""
OBJECTS = ("columns", "rules", "features", "categories")
LATER = ("history", "grown_from")
"""Sections that former formats lack."""
SECTIONS = ("format", "merlin_sim", "nvtabular", *OBJECTS, *LATER, DIGEST)


@dataclass(frozen=True)
class FittedWorkflow:
    """A workflow that was fitted before, perhaps elsewhere; gives the ids that it gave then.

    >>> FittedWorkflow.load("no such directory")
    Traceback (most recent call last):
    ...
    merlin_sim.foundation.exceptions.MerlinSimError: no such directory/workflow.json: ...
    """

    columns: BehaviourColumns
    rules: SampleRules
    vocabularies: Vocabularies
    numbers: FittedNumbers = field(default_factory=FittedNumbers)
    """What the operators of numbers have learned."""
    kept: EarlierHistories | None = None
    """What the dataset keeps of its users' histories; datasets of format 4 and before keep none."""
    fingerprint: str = ""
    """The digest of its workflow.json."""

    @classmethod
    def load(cls, directory: Path | str) -> FittedWorkflow:
        """Load the workflow of a dataset directory.

        Raises:
            MerlinSimError: Where a file is missing, changed or of an unknown version.
        """
        path = Path(directory) / WORKFLOW_FILE
        document = _read_document(path)
        features, numbers = _features(path, document["features"])
        stated = _checked(path, document, "columns", BehaviourColumns, leave_out=FOUND)
        try:
            columns = BehaviourColumns(**stated, features=features)
        except MerlinSimError as error:
            raise MerlinSimError(f"{path}: columns: {error}") from error
        rules = _rules(path, document)
        workflow = cls(
            exclude_own_time(columns, rules),
            rules,
            Vocabularies(Path(directory) / CATEGORIES),
            numbers,
            EarlierHistories.of_plain(Path(directory), document["history"]),
            document[DIGEST],
        )
        workflow._check_vocabularies(path, document["categories"])
        return workflow

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of the vocabularies."""
        return self.columns.domains

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many ids each domain has."""
        return {name: self.vocabularies.size(name) for name in self.domains}

    @cached_property
    def _encodings(self) -> TemporaryFiles:
        return TemporaryFiles("merlin-sim-encodings-")

    @property
    def counted_until(self) -> float:
        """The time of the newest row that `encodings` count, in seconds.

        Raises:
            MerlinSimError: Where the dataset does not say it.
        """
        if self.numbers.counted_until is None:
            raise MerlinSimError(
                f"{self.vocabularies.directory.parent}: workflow.json does not say until when its "
                "`encodings` were counted: an earlier version wrote it. A row that they count "
                "would see its own label. `merlin-sim preprocess` makes the dataset anew."
            )
        return self.numbers.counted_until

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

    def histories(self) -> Workflow:
        """The NVTabular workflow from raw interactions to one row of ids a user."""
        columns = replace(self.columns, steady=self.columns.stored_of_users)  # the latest of each
        return self._finish(self._encode(None, columns))

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

        workflow = self._finish(self._encode(self._split, self.columns))
        table = frame_to_arrow(workflow.transform(Dataset(self.rows(log), cpu=None)).compute())
        with TemporaryDirectory(prefix="merlin-sim-users-") as directory:
            users = AllUsers(self._write_users(Path(directory), table, mapping))
            made = SamplesOfUsers(users, mapping, self.rules.pad)
            return frame_from_arrow(pa.concat_tables(map(made.table, range(len(made.files)))))

    def _write_users(self, directory: Path, table: pa.Table, mapping: str) -> DatasetDirectory:
        """Write encoded histories as a dataset of users."""
        columns, rules = self.columns, self.rules
        histories = Histories(directory / "histories", columns)
        histories.fill([table], self._split)
        least = rules.shortest_sequence_for_training
        histories.choose_positions(least, self._split, rules.validates_last)
        if columns.features.encodings:
            _, places = histories.places_of_samples(mapping)
            refuse_counted("the log", histories.numbers(SECONDS)[places], self.counted_until)
        copy_directory(self.vocabularies.directory, directory / CATEGORIES)
        layout, items = users_layout_of(columns, rules), self.sizes[columns.item]
        for _ in write_users(histories, layout, items, directory, SingleProcess()):
            pass
        files = [part.file for part in user_parts(histories)]
        write_documents(directory, users_spec(columns, self.sizes, rules, files))
        return DatasetDirectory.open(directory)

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

    def _encode(self, split: Split | None, columns: BehaviourColumns) -> nvt.WorkflowNode:
        numbers = self.numbers if columns.features else None
        return encode_histories(
            columns, self.vocabularies, self._encodings, self.rules, split, numbers
        )

    def _finish(self, node: nvt.WorkflowNode) -> Workflow:
        names = (*self.columns.users, self.columns.item)
        first = {name: self.vocabularies.keys(name).iloc[:1].repeat(4).array for name in names}
        # Four interactions, so that train, validation and test have a row to look at.
        first |= {self.columns.timestamp: self._example_times()}
        first |= {name: [1, 1, 1, 1] for name in self.columns.labels}
        first |= {name: [TAKEN] * 4 for name in self.columns.roles if name == ROLE}
        features = self.columns.features
        bucketed = (n.name for of in (USER, INTERACTION) for n in features.bucketed(of))
        numbers = (*self.columns.of_users, *self.columns.of_interactions, *bucketed)
        first |= {name: [1.0, 1.0, 1.0, 1.0] for name in numbers}
        if SECONDS in first:  # later than all that was counted
            first[SECONDS] = [(self.numbers.counted_until or 0.0) + step for step in (1, 2, 3, 4)]
        return fitted_workflow(node, pd.DataFrame(first))

    def _example_times(self) -> Any:
        """Four times that the split can be compared with."""
        split = self._split
        if split is None or split.test_from is None or _is_number(split.test_from):
            return [1, 2, 3, 4]
        return pd.to_datetime([1, 2, 3, 4], unit="s")

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
            self.vocabularies.check(name, _cardinality(path, name, stated[name]), beside)
        self._check_items()

    def _check_items(self) -> None:
        columns, features = self.columns, self.columns.features
        check_item_columns(
            self.vocabularies.path(columns.item),
            {name: self.sizes[name] for name in columns.item_features},
            (*features.numbers(ITEM), *features.encoded),
            {f.name: (self.sizes[f.name], f.longest) for f in features.lists},
            {f.name: f.size for f in features.vectors},
        )


def _count(text: str | None, unit: str) -> str | None:
    """A time of a split as a number of a unit, where it is a date."""
    if text is None or unit not in UNITS or _is_number(text):
        return text
    count = count_of_date(text, unit)
    return text if count is None else str(count)


def _is_number(text: str) -> bool:
    return time_from_text(text, DECIMAL)[0] is not None


def _cardinality(path: Path, name: str, stated: Mapping[str, Any]) -> int:
    size = stated.get("cardinality")
    if type(size) is not int or size < 1:
        raise MerlinSimError(
            f"{path}: categories.{name}.cardinality: expected a whole number above 0, "
            f"found {size!r:.60}."
        )
    return size


def _read_document(path: Path) -> dict[str, Any]:
    document = read_json(path, "JSON, a fitted workflow")
    version = document.get("format") if isinstance(document, dict) else None
    if version not in (FORMAT, *FORMER):
        known = f"{', '.join(map(str, FORMER))} or {FORMAT}"
        raise MerlinSimError(
            f"{path}: format: expected {known}, those that merlin-sim {__version__} "
            f"knows. Found {version!r}. `merlin-sim preprocess` writes it anew."
        )
    require_own_digest(path)
    if version in FORMER:
        document["features"] = {**NOTHING, **_object(document.get("features", {}))}
    if version in FORMER:
        document |= {name: document.get(name) for name in LATER}
    if sorted(document) != sorted(SECTIONS):
        raise MerlinSimError(
            f"{path}: expected the keys {', '.join(SECTIONS)}, found {', '.join(document)}."
        )
    if not all(isinstance(document[name], dict) for name in OBJECTS):
        names = ", ".join(OBJECTS)
        raise MerlinSimError(f"{path}: expected an object under each of {names}.")
    if not all(isinstance(entry, dict) for entry in document["categories"].values()):
        raise MerlinSimError(f"{path}: categories: expected an object per domain.")
    found: dict[str, Any] = document
    if version in FORMER:
        more: dict[str, Any] = dict.fromkeys(("test_files", "validation_files"))
        more |= {"negatives_not_in_history": False, "feature_values": LATEST}
        more |= {"popularity_of": ALL_ROWS, "validation": None}
        found["rules"] = {**more, **found["rules"]}
        found["columns"] = {**BEHAVIOURS, **found["columns"]}
    if version == 2:
        found |= {name: {**added, **found[name]} for name, added in ADDED.items()}
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read_fitted_features(path: Path) -> tuple[FeatureSet, FittedNumbers, str]:
    """Read, of a workflow.json, what it says of features beside ids, and the timestamp's column."""
    document = _read_document(path)
    return (*_features(path, document["features"]), str(document["columns"].get("timestamp")))


def _features(path: Path, section: Mapping[str, Any]) -> tuple[FeatureSet, FittedNumbers]:
    where = f"{path}: features"
    if set(section) != set(NOTHING):
        raise MerlinSimError(f"{where}: expected {', '.join(NOTHING)}, found {', '.join(section)}.")
    stated = section["stated"]
    features = FeatureSet() if stated is None else features_from_plain(stated, where)
    numbers = [feature for feature in features if isinstance(feature, Number)]
    learned = learned_from_plain(section["learned"], numbers, f"{where}.learned")
    prior = section["prior"]
    if not isinstance(prior, float) or not 0 <= prior <= 1:
        raise MerlinSimError(f"{where}.prior: expected a share of 0.0 to 1.0, found {prior!r:.60}.")
    until = section["counted_until"]
    if until is not None and not isinstance(until, float):
        raise MerlinSimError(f"{where}.counted_until: expected seconds, found {until!r:.60}.")
    return features, FittedNumbers(learned, prior, until)


def _rules(path: Path, document: dict[str, Any]) -> SampleRules:
    stated = _checked(path, document, "rules", SampleRules)
    try:
        return SampleRules(**stated)
    except MerlinSimError as error:
        raise MerlinSimError(f"{path}: rules: {error}") from error


def _checked(
    path: Path, document: dict[str, Any], section: str, kind: Any, leave_out: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The arguments of a dataclass of str, int, bool, tuples of str and None."""
    values = document[section]
    names = [entry.name for entry in fields(kind) if entry.name not in leave_out]
    if sorted(values) != sorted(names):
        raise MerlinSimError(
            f"{path}: {section}: expected the keys {', '.join(names)}, found {', '.join(values)}."
        )
    arguments: dict[str, Any] = {}
    for name, kind_of in ((entry.name, str(entry.type)) for entry in fields(kind)):
        if name in leave_out:
            continue
        value = values[name]
        of, _, optional = kind_of.partition(" | ")
        wanted: Any = {"str": str, "int": int, "bool": bool, "float": float}.get(of, list)
        if optional and value is None:
            arguments[name] = None
            continue
        fits = type(value) is wanted and (
            wanted is not list or all(isinstance(entry, str) for entry in value)
        )
        if not fits:
            raise MerlinSimError(
                f"{path}: {section}.{name}: expected {wanted.__name__}, found {value!r:.60}."
            )
        arguments[name] = tuple(value) if wanted is list else value
    return arguments


def write_fitted(
    directory: Path,
    columns: BehaviourColumns,
    rules: SampleRules,
    sizes: Mapping[str, int],
    numbers: FittedNumbers,
    kept: EarlierHistories,
    grown_from: FittedWorkflow | None,
) -> None:
    """Write ``workflow.json`` beside finished vocabularies.

    Args:
        directory: The dataset directory.
        columns: The log's columns.
        rules: The rules of the samples.
        sizes: How many ids each domain has.
        numbers: What the operators of numbers have learned.
        kept: What the dataset keeps of its users' histories.
        grown_from: Whose vocabularies these grew from, if they did.
    """
    vocabularies = Vocabularies(directory / CATEGORIES)
    document = {
        "format": FORMAT,
        "merlin_sim": __version__,
        "nvtabular": nvt.__version__,
        "columns": {
            "user": columns.user,
            "item": columns.item,
            "timestamp": columns.timestamp,
            "user_features": list(columns.user_features),
            "item_features": list(columns.item_features),
            "label": columns.label,
            "behaviour": columns.behaviour,
            "history_behaviours": list(columns.history_behaviours),
            "target_behaviours": list(columns.target_behaviours),
        },
        "rules": rules.to_dict(),
        "features": {
            "stated": None if columns.features == FeatureSet() else columns.features.to_plain(),
            "learned": dict(numbers.learned),
            "prior": numbers.prior,
            "counted_until": numbers.counted_until,
        },
        "categories": {
            name: {
                "file": f"{CATEGORIES}/{name}.parquet",
                "cardinality": size,
                "sha256": sha256(vocabularies.path(name)),
                "grown_from": None
                if grown_from is None
                else {
                    "fingerprint": sha256(grown_from.vocabularies.path(name)),
                    "cardinality": grown_from.sizes[name],
                },
            }
            for name, size in sizes.items()
        },
        "history": kept.to_plain(),
        "grown_from": None if grown_from is None else grown_from.fingerprint,
    }
    write_text_atomically(directory / WORKFLOW_FILE, with_own_digest(document))
