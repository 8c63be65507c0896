"""A fitted workflow of click logs on disk: workflow.json and categories/, nothing to execute.

The JSON file ends with its own digest; one that was changed is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import nvtabular as nvt
import pyarrow.parquet as pq

from ... import __version__
from ...foundation.atomic_write import write_text_atomically
from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError
from ...foundation.json_file import read_json
from ...foundation.own_digest import require_own_digest, with_own_digest
from ..behaviour.fitted import WORKFLOW_FILE
from ..vocabularies.vocabulary import CATEGORIES
from .criteo_columns import KEY_COLUMNS
from .key_table import KeyTable, table_of_vocabulary

FORMAT = 2
LOG = "criteo"


@dataclass(frozen=True)
class CriteoRules:
    """What decides which keys have ids of their own."""

    thresholds: tuple[int, ...]
    """For each column of keys, how often a key must have been seen."""
    count_in: str
    """Whether the keys of all rows are counted, or of those that are trained on."""


@dataclass(frozen=True)
class FittedCriteo:
    """Ids that were given before, perhaps elsewhere."""

    directory: Path
    """The dataset directory that they were given in."""
    kept: dict[str, int]
    """How many keys of each column have one."""
    rules: CriteoRules

    @classmethod
    def load(cls, directory: Path | str) -> FittedCriteo:
        """Load the workflow of a dataset directory.

        Raises:
            MerlinSimError: Where a file is missing, changed, or of another kind of log.
        """
        path = Path(directory) / WORKFLOW_FILE
        document = read_json(path, "JSON, a fitted workflow")
        found = document.get("log") if isinstance(document, dict) else None
        if found != LOG or document.get("format") != FORMAT:
            raise MerlinSimError(
                f"{path}: expected a workflow of format {FORMAT} that `preprocess criteo` fitted, "
                "found another."
            )
        require_own_digest(path)
        fitted = cls(Path(directory), *_checked(path, document))
        for name in KEY_COLUMNS:
            fitted._check(path, name, document["categories"][name])
        return fitted

    def vocabulary(self, column: str) -> Path:
        """Where a column's keys and ids are."""
        return self.directory / CATEGORIES / f"{column}.parquet"

    def make_table(self, work: tuple[str, Path]) -> KeyTable:
        """Make the table of a column, given its name and the directory for it."""
        column, directory = work
        return table_of_vocabulary(directory, column, self.vocabulary(column))

    def _check(self, path: Path, name: str, stated: Mapping[str, object]) -> None:
        file = self.vocabulary(name)
        if not file.is_file():
            raise MerlinSimError(f"{file}: missing; {path} names it.")
        if sha256(file) != stated.get("sha256"):
            raise MerlinSimError(
                f"{file}: not the file that {path} was written with (its SHA-256 differs). "
                "Ids would not be those of the fitted workflow."
            )
        if pq.read_metadata(file).num_rows != self.kept[name]:
            raise MerlinSimError(
                f"{file}: expected {self.kept[name]:,} keys, as {path} says, found "
                f"{pq.read_metadata(file).num_rows:,}."
            )


def is_of_clicks(path: Path) -> bool:
    """Tell whether a workflow.json is of `preprocess criteo`; one that is not there is not."""
    if not path.exists():
        return False
    document = read_json(path, "JSON, a fitted workflow")
    return isinstance(document, dict) and document.get("log") == LOG


def _checked(path: Path, document: dict[str, object]) -> tuple[dict[str, int], CriteoRules]:
    rules, categories = document.get("rules"), document.get("categories")
    try:
        assert isinstance(rules, dict) and isinstance(categories, dict)
        kept = {name: categories[name]["keys"] for name in KEY_COLUMNS}
        thresholds, count_in = tuple(rules["thresholds"]), rules["count_in"]
        numbers = (*kept.values(), *thresholds)
        assert all(type(number) is int and number >= 0 for number in numbers)
        assert len(thresholds) == len(KEY_COLUMNS) and count_in in ("all", "train")
        assert all(isinstance(categories[name]["sha256"], str) for name in KEY_COLUMNS)
    except (AssertionError, KeyError, TypeError) as error:
        raise MerlinSimError(
            f"{path}: expected rules (thresholds, count_in) and, under categories, keys and sha256 "
            f"of {KEY_COLUMNS[0]} to {KEY_COLUMNS[-1]}; found something else."
        ) from error
    return kept, CriteoRules(thresholds, count_in)


def write_fitted(directory: Path, kept: Mapping[str, int], rules: CriteoRules) -> None:
    """Write ``workflow.json`` beside finished vocabularies."""
    document = {
        "format": FORMAT,
        "merlin_sim": __version__,
        "nvtabular": nvt.__version__,
        "log": LOG,
        "rules": asdict(rules),
        "categories": {
            name: {
                "file": f"{CATEGORIES}/{name}.parquet",
                "keys": kept[name],
                "sha256": sha256(directory / CATEGORIES / f"{name}.parquet"),
            }
            for name in KEY_COLUMNS
        },
    }
    write_text_atomically(directory / WORKFLOW_FILE, with_own_digest(document))
