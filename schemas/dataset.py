"""A dataset directory, opened: its descriptions read, derived where missing, held together.

And files of one of the two kinds: a .yaml is a feature spec, a .pbtxt a Merlin schema.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..foundation.exceptions import MerlinSimError, SpecError
from ..foundation.files import write_text_atomically
from . import METADATA_FILE, SCHEMA_FILE, SPEC_FILE
from .channels import contract_named, require_channels
from .feature_spec import Chunk, FeatureSpec
from .layout_names import TEST, TRAIN
from .metadata_file import cardinalities, check_metadata
from .source_files import repeated_files, warn_of_likely_mistakes, warn_of_other_vocabularies
from .spec_file import check_feature_spec, read_feature_spec, read_spec
from .users_layout import UsersLayout, users_layout, users_problems

if TYPE_CHECKING:
    from .merlin_import import Schema


@dataclass(frozen=True)
class DatasetDirectory:
    """An opened dataset directory.

    Use :meth:`open`; what it returns has passed every check that needs no data to be read.
    """

    path: Path

    spec: FeatureSpec
    """What the dataset is; read from feature_spec.yaml, or derived from schema.pbtxt."""

    schema: Schema
    """The same as a Merlin schema."""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        feature_spec: str = SPEC_FILE,
        check_files: bool = True,
        model: str | None = None,
    ) -> DatasetDirectory:
        """Open a dataset directory.

        Args:
            path: The directory. It holds a feature spec, or a schema.pbtxt whose tags name the
                channels beside parquet files (as any NVTabular workflow leaves it, in one
                directory or in train/ and test/).
            feature_spec: The spec's name in that directory.
            check_files: Whether the data files must exist and have the spec's columns.
            model: The family of models (``sim``, ``dlrm``, ...) whose channels it must have.

        Raises:
            MerlinSimError: Where it cannot be opened, or its descriptions contradict each other.
        """
        directory = Path(path)
        if not directory.is_dir():
            what = "is a file" if directory.exists() else "does not exist"
            raise MerlinSimError(f"{directory}: expected a dataset directory; it {what}")
        if os.path.lexists(directory / feature_spec):
            dataset = cls._from_spec(directory, directory / feature_spec, check_files, model)
        elif feature_spec != SPEC_FILE:
            raise MerlinSimError(f"{directory / feature_spec}: no such feature spec")
        else:
            dataset = cls._from_schema(directory, model)
        if check_files:
            from .dataset_files import check_parquet_columns

            check_parquet_columns(directory, dataset.spec, dataset.schema)
            warn_of_other_vocabularies(dataset.schema, directory)
            if dataset.users is not None:
                from .dataset_files import check_users_files

                check_users_files(directory, dataset.spec, dataset.users)
        return dataset

    @classmethod
    def _from_spec(
        cls, directory: Path, spec_file: Path, check_files: bool, model: str | None
    ) -> DatasetDirectory:
        from .merlin_schema import (
            check_agreement,
            free_as_in_spec,
            in_line_with_spec,
            to_merlin_schema,
        )
        from .schema_file import read_schema

        spec = read_spec(spec_file, check_files=check_files, model=model)
        problems = check_metadata(directory, spec)
        schema = derived = to_merlin_schema(spec)
        if (directory / SCHEMA_FILE).exists():
            schema = free_as_in_spec(read_schema(directory / SCHEMA_FILE), spec)
            problems += check_agreement(directory / SCHEMA_FILE, spec, derived, schema)
        if problems:
            raise SpecError(directory, problems)
        return cls(directory, spec, in_line_with_spec(schema, derived))

    @classmethod
    def _from_schema(cls, directory: Path, model: str | None) -> DatasetDirectory:
        from .merlin_schema import carried_spec, to_feature_spec
        from .schema_file import read_schema

        schema_files = [directory / SCHEMA_FILE, directory / TRAIN / SCHEMA_FILE]
        schema_file = next((file for file in schema_files if file.exists()), None)
        if schema_file is None:
            raise MerlinSimError(
                f"{directory}: expected {SPEC_FILE} or {SCHEMA_FILE}, found neither. For "
                f"parquet in train/ and test/ with {METADATA_FILE}: `merlin-sim data spec adopt`."
            )
        schema = read_schema(schema_file)
        if carried_spec(schema)[0] is None:
            require_channels(schema, str(schema_file), model)
        sources = _find_parquet(directory, tuple(schema.column_names))
        if not sources:
            raise MerlinSimError(f"{directory}: expected parquet files beside {SCHEMA_FILE}")
        spec = replace(to_feature_spec(schema), source_spec=sources, path=schema_file)
        problems = check_metadata(directory, spec) + repeated_files(spec, directory)
        if model is not None:
            problems += contract_named(model).problems(spec)
        if problems:
            raise SpecError(directory, problems)
        warn_of_likely_mistakes(spec, directory)
        return cls(directory, spec, schema)

    @property
    def channels(self) -> dict[str, list[str]]:
        """Channel name -> the names of its columns, in order."""
        return {name: list(names) for name, names in self.spec.channel_spec.items()}

    @property
    def users(self) -> UsersLayout | None:
        """How samples are made, where the files have one row per user; None where one per sample.

        Its files are those of :meth:`stored_files`.
        """
        return users_layout(self.spec)

    def stored_files(self, mapping: str) -> list[Path]:
        """Return the files of a mapping, whichever of the two layouts they have.

        Raises:
            MerlinSimError: Where there is no such mapping, or it is in no parquet files.
        """
        if self.users is None or mapping not in self.spec.source_spec:
            return self.files(mapping)
        return [self.path / file for file in self.spec.source_spec[mapping][0].files]

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
                "(`merlin-sim data transcode` makes them)"
            )
        return [self.path / file for file in chunks[0].files]


def write_documents(directory: Path | str, spec: FeatureSpec) -> None:
    """Write feature_spec.yaml, schema.pbtxt and metadata.json beside finished parquet files."""
    from .merlin_schema import to_merlin_schema
    from .schema_file import write_schema

    directory = Path(directory)
    metadata = json.dumps({"cardinalities": cardinalities(spec)}, indent=2, ensure_ascii=False)
    write_schema(to_merlin_schema(spec), directory / SCHEMA_FILE)
    write_text_atomically(directory / METADATA_FILE, metadata + "\n")
    spec.write(directory / SPEC_FILE)


def natural_order(path: Path) -> list[Any]:
    """Sort key by which part.2.parquet comes before part.10.parquet."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]


def _find_parquet(directory: Path, columns: tuple[str, ...]) -> dict[str, tuple[Chunk, ...]]:
    directories = [(name, directory / name) for name in (TRAIN, TEST)]
    if not any(folder.is_dir() for _, folder in directories):
        directories = [(TRAIN, directory)]
    found: dict[str, tuple[Chunk, ...]] = {}
    for mapping, folder in directories:
        files = sorted(folder.glob("*.parquet"), key=natural_order)
        if files:
            names = tuple(str(file.relative_to(directory)) for file in files)
            found[mapping] = (Chunk("parquet", columns, names),)
    return found


def load_spec(path: Path, *, check_files: bool = True, model: str | None = None) -> FeatureSpec:
    """Read and check the specification at ``path``: a directory, a .yaml or a .pbtxt.

    It should have the channels of the family ``model``; None for any.
    """
    if path.is_dir():
        return DatasetDirectory.open(path, check_files=check_files, model=model).spec
    if path.suffix != ".pbtxt":
        return read_spec(path, check_files=check_files, model=model)
    from .merlin_schema import carried_spec, to_feature_spec
    from .schema_file import read_schema

    schema = read_schema(path)
    spec = to_feature_spec(schema)
    problems = []
    if carried_spec(schema)[0] is None:
        require_channels(schema, str(path), model)
    elif spec.source_spec:
        directory = path.parent if check_files else None
        problems += check_feature_spec(spec, directory) + users_problems(spec, directory)
    if model is not None:
        problems += contract_named(model).problems(spec)
    if problems:
        raise SpecError(path, list(dict.fromkeys(problems)))
    return spec


def read_shape(path: Path) -> FeatureSpec:
    """Read a specification of the right shape; what a schema has no place for may be missing."""
    if _kind(path) == "pbtxt":
        from .merlin_schema import to_feature_spec
        from .schema_file import read_schema

        return to_feature_spec(read_schema(path))
    reading = read_feature_spec(path)
    if reading.problems or reading.spec is None:
        raise SpecError(path, reading.problems)
    return reading.spec


def convert(source: Path, destination: Path) -> FeatureSpec:
    """Translate a specification file to the kind that the destination's name says."""
    kind = _kind(destination)
    spec = read_shape(source)
    if kind == "yaml":
        spec.write(destination)
        return spec
    from .merlin_schema import to_merlin_schema
    from .schema_file import write_schema

    write_schema(to_merlin_schema(spec), destination)
    return spec


def _kind(path: Path) -> str:
    kind = {".pbtxt": "pbtxt", ".yaml": "yaml", ".yml": "yaml"}.get(path.suffix)
    if kind is None:
        raise MerlinSimError(f"{path}: expected a name that ends in .yaml or .pbtxt")
    return kind
