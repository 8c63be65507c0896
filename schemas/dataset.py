"""A dataset directory, opened: its descriptions read, derived where missing, held together."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .atomic_write import write_text_atomically
from .channels import (
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    USER_FEATURES,
    require_channels,
)
from .exceptions import MerlinSimError, SpecError
from .feature_spec import SPEC_FILE, Chunk, FeatureSpec
from .problem import Problem

if TYPE_CHECKING:
    from .merlin_import import Schema

METADATA_FILE = "metadata.json"
SCHEMA_FILE = "schema.pbtxt"


@dataclass(frozen=True)
class Dataset:
    """An opened dataset directory.

    Use :meth:`open`; what it returns has passed every check that needs no data to be read.
    """

    path: Path
    """The directory."""

    spec: FeatureSpec
    """What the dataset is; read from feature_spec.yaml, or derived from schema.pbtxt."""

    schema: Schema
    """The same as a Merlin schema."""

    @classmethod
    def open(
        cls, path: Path | str, *, feature_spec: str = SPEC_FILE, check_files: bool = True
    ) -> Dataset:
        """Open a dataset directory.

        Args:
            path: The directory. It holds a feature spec, or a schema.pbtxt whose tags tell the
                channels beside parquet files (as any NVTabular workflow leaves it, in one
                directory or in train/ and test/).
            feature_spec: The spec's name in that directory.
            check_files: Whether the data files must exist.

        Raises:
            MerlinSimError: Where it cannot be opened, or its descriptions contradict each other.
        """
        directory = Path(path)
        if not directory.is_dir():
            what = "is a file" if directory.exists() else "does not exist"
            raise MerlinSimError(f"{directory}: expected a dataset directory; it {what}")
        if (directory / feature_spec).exists():
            return cls._from_spec(directory, directory / feature_spec, check_files)
        if feature_spec != SPEC_FILE:
            raise MerlinSimError(f"{directory / feature_spec}: no such feature spec")
        return cls._from_schema(directory)

    @classmethod
    def _from_spec(cls, directory: Path, spec_file: Path, check_files: bool) -> Dataset:
        from .merlin_schema import to_merlin_schema
        from .schema_file import read_schema

        spec = FeatureSpec.read(spec_file, check_files=check_files)
        _check_metadata(directory, spec)
        derived = to_merlin_schema(spec)
        if not (directory / SCHEMA_FILE).exists():
            return cls(directory, spec, derived)
        schema = read_schema(directory / SCHEMA_FILE)
        _check_agreement(directory / SCHEMA_FILE, spec, derived, schema)
        return cls(directory, spec, schema)

    @classmethod
    def _from_schema(cls, directory: Path) -> Dataset:
        from .merlin_schema import to_feature_spec
        from .schema_file import read_schema

        schema_files = [directory / SCHEMA_FILE, directory / "train" / SCHEMA_FILE]
        schema_file = next((file for file in schema_files if file.exists()), None)
        if schema_file is None:
            raise MerlinSimError(
                f"{directory}: expected {SPEC_FILE} or {SCHEMA_FILE}, found neither. For "
                f"parquet in train/ and test/ with {METADATA_FILE}: `merlin-sim spec adopt`."
            )
        schema = read_schema(schema_file)
        require_channels(schema, str(schema_file))
        sources = _find_parquet(directory, tuple(schema.column_names))
        if not sources:
            raise MerlinSimError(f"{directory}: expected parquet files beside {SCHEMA_FILE}")
        spec = replace(to_feature_spec(schema), source_spec=sources)
        return cls(directory, spec, schema)

    @property
    def channels(self) -> dict[str, list[str]]:
        """Channel name -> the names of its columns, in order."""
        return {name: list(names) for name, names in self.spec.channel_spec.items()}

    def files(self, mapping: str) -> list[Path]:
        """Return the parquet files of a mapping (`train`, `test`), in row order.

        Raises:
            MerlinSimError: Where there is no such mapping, or it is not in parquet whole.
        """
        chunks = self.spec.source_spec.get(mapping)
        if chunks is None:
            found = ", ".join(self.spec.source_spec)
            raise MerlinSimError(f"{self.path}: no mapping {mapping!r} in source_spec ({found})")
        if len(chunks) != 1 or chunks[0].type != "parquet":
            types = " + ".join(chunk.type for chunk in chunks)
            raise MerlinSimError(
                f"{self.path}: {mapping} is in {types}; expected one chunk of parquet files "
                "(`merlin-sim transcode` makes them)"
            )
        return [self.path / file for file in chunks[0].files]


def write_documents(directory: Path | str, spec: FeatureSpec) -> None:
    """Write feature_spec.yaml, schema.pbtxt and metadata.json beside finished parquet files.

    Args:
        directory: The dataset directory.
        spec: Its spec; every categorical feature's cardinality must be known.
    """
    from .merlin_schema import to_merlin_schema
    from .schema_file import write_schema

    directory = Path(directory)
    metadata = json.dumps({"cardinalities": cardinalities(spec)}, indent=2, ensure_ascii=False)
    write_schema(to_merlin_schema(spec), directory / SCHEMA_FILE)
    write_text_atomically(directory / METADATA_FILE, metadata + "\n")
    spec.write(directory / SPEC_FILE)


def cardinalities(spec: FeatureSpec) -> list[dict[str, Any]]:
    """Return the published metadata's list: a name and a value for each embedding table.

    In the published order: user features, then item features; other families' follow.
    """
    from .natural_translation import shared_domains

    domains = shared_domains(spec)
    first = [
        name
        for channel in (USER_FEATURES, TARGET_ITEM_FEATURES, POSITIVE_HISTORY)
        for name in spec.channel_spec.get(channel, ())
    ]
    found: dict[str, int] = {}
    for name in (*first, *spec.feature_spec):
        cardinality = spec.feature_spec[name].cardinality
        if isinstance(cardinality, int):
            found.setdefault(domains[name], cardinality)
    return [{"name": name, "value": value} for name, value in found.items()]


def read_cardinalities(file: Path) -> list[tuple[str, int]]:
    """Read metadata.json: the published list of names and cardinalities.

    Raises:
        MerlinSimError: Where the file is not of the published form.
    """
    form = 'expected {"cardinalities": [{"name": ..., "value": ...}, ...]}'
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MerlinSimError(f"{file}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MerlinSimError(f"{file}: {form}: {' '.join(str(error).split())}") from error
    entries = content.get("cardinalities") if isinstance(content, Mapping) else None
    if not isinstance(entries, list):
        raise MerlinSimError(f"{file}: {form}, got no such list")
    for place, entry in enumerate(entries):
        value = entry.get("value") if isinstance(entry, Mapping) else None
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if not is_whole or not isinstance(entry.get("name"), str):
            raise MerlinSimError(f"{file}: cardinalities[{place}]: {form}, got {entry!r:.80}")
    return [(entry["name"], entry["value"]) for entry in entries]


def natural_order(path: Path) -> list[Any]:
    """Sort key by which part.2.parquet comes before part.10.parquet."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _find_parquet(directory: Path, columns: tuple[str, ...]) -> dict[str, tuple[Chunk, ...]]:
    places = [("train", directory / "train"), ("test", directory / "test")]
    if not any(place.is_dir() for _, place in places):
        places = [("train", directory)]
    found: dict[str, tuple[Chunk, ...]] = {}
    for mapping, place in places:
        files = sorted(place.glob("*.parquet"), key=natural_order)
        if files:
            names = tuple(str(file.relative_to(directory)) for file in files)
            found[mapping] = (Chunk("parquet", columns, names),)
    return found


def _check_metadata(directory: Path, spec: FeatureSpec) -> None:
    file = directory / METADATA_FILE
    if not file.exists():
        return
    stated = dict(read_cardinalities(file))
    problems = [
        Problem(str(file), (entry["name"],), f"{entry['value']}, as in the spec", str(value))
        for entry in cardinalities(spec)
        if (value := stated.get(entry["name"], entry["value"])) != entry["value"]
    ]
    if problems:
        raise SpecError(file, problems)


def _check_agreement(file: Path, spec: FeatureSpec, derived: Schema, schema: Schema) -> None:
    from .natural_translation import facts

    wanted, found = facts(derived), facts(schema)
    if set(wanted) != set(found):
        missing, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        received = f"columns missing: {missing}, columns unknown: {more}"
        raise SpecError(file, [Problem(str(file), (), "the spec's features", received)])
    problems = []
    for name, facts_wanted in wanted.items():
        for fact, value in facts_wanted.items():
            theirs = found[name][fact]
            # A schema without tags or domains contradicts nothing; one with others does.
            if theirs is not None and theirs != value:
                expected = f"{fact} {value}, as in {spec.path}"
                problems.append(Problem(str(file), (name,), expected, str(theirs)))
    if problems:
        raise SpecError(file, problems)
