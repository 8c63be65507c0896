"""Specification files of either kind: a .yaml is a feature spec, a .pbtxt a Merlin schema."""

from __future__ import annotations

from pathlib import Path

from ..foundation.exceptions import MerlinSimError, SpecError
from .channels import contract_named, require_channels
from .dataset import DatasetDirectory
from .feature_spec import FeatureSpec
from .spec_file import check_feature_spec, read_feature_spec, read_spec
from .users_layout import users_problems


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
