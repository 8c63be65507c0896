"""``merlin-sim spec``: validate, show, convert and adopt dataset specifications."""

from __future__ import annotations

from pathlib import Path

import click

from ..schemas.channels import CONTRACTS
from ..schemas.dataset import Dataset
from ..schemas.exceptions import MerlinSimError
from ..schemas.feature_spec import FeatureSpec

PATH = click.Path(path_type=Path)


@click.group()
def command() -> None:
    """Validate, show, convert and adopt dataset specifications.

    A specification is a feature_spec.yaml, a schema.pbtxt, or a dataset directory with either.
    """


@command.command()
@click.argument("path", type=PATH)
@click.option(
    "--model",
    type=click.Choice(list(CONTRACTS)),
    help="Hold the channels against what this model needs.",
)
@click.option("--skip_files", is_flag=True, help="Do not ask whether the data files exist.")
def validate(path: Path, model: str | None, skip_files: bool) -> None:
    """Say everything that is wrong with the specification at PATH; exit 2 if anything is."""
    spec = load(path, check_files=not skip_files)
    if model is not None:
        CONTRACTS[model].check(spec)
    channels = ", ".join(f"{name} ({len(names)})" for name, names in spec.channel_spec.items())
    fit = "" if model is None else f"; fits {model}"
    click.echo(f"{path}: valid: {len(spec.feature_spec)} features; channels {channels}{fit}")


@command.command()
@click.argument("path", type=PATH)
def show(path: Path) -> None:
    """Show the specification at PATH as tables."""
    from .spec_tables import print_spec

    print_spec(load(path, check_files=False))


@command.command()
@click.argument("source", metavar="SRC", type=PATH)
@click.argument("destination", metavar="DST", type=PATH)
def convert(source: Path, destination: Path) -> None:
    """Translate SRC to DST without loss: a .yaml is a feature spec, a .pbtxt a Merlin schema."""
    from ..schemas.feature_spec_reader import read_feature_spec
    from ..schemas.merlin_schema import to_feature_spec, to_merlin_schema
    from ..schemas.schema_file import read_schema, write_schema

    kinds = (_kind(source), _kind(destination))
    if kinds[0] == "pbtxt":
        schema = read_schema(source)
        spec = to_feature_spec(schema)
    else:
        # What a schema has no place for (files, mappings) may be missing here: read the shape.
        shape, problems = read_feature_spec(source)
        if problems or shape is None:
            from ..schemas.exceptions import SpecError

            raise SpecError(source, problems)
        spec, schema = shape, to_merlin_schema(shape)
    if kinds[1] == "pbtxt":
        write_schema(schema, destination)
    else:
        spec.write(destination)
    click.echo(f"{destination}: {len(spec.feature_spec)} features, from {source}")


@command.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--number_of_user_features",
    type=click.IntRange(min=0),
    required=True,
    help="How many columns after the label describe the user.",
)
def adopt(directory: Path, number_of_user_features: int) -> None:
    """Describe a dataset in the published parquet layout where it stands.

    DIR holds train/*.parquet, test/*.parquet and metadata.json. Every row is checked against
    metadata.json; then feature_spec.yaml and schema.pbtxt are written beside the data.
    """
    from rich.console import Console
    from rich.progress import Progress

    from ..schemas.adopt import adopt as adopt_directory
    from ..schemas.adopt import count_rows

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("checking rows", total=count_rows(directory))
        spec = adopt_directory(
            directory,
            number_of_user_features,
            on_rows=lambda rows: progress.advance(task, rows),
        )
    length = spec.feature_spec[spec.channel_spec["positive_history"][0]].dimensions
    click.echo(
        f"{directory}: adopted: {len(spec.feature_spec)} columns, histories of up to "
        f"{length[0] if length else 0}; wrote feature_spec.yaml and schema.pbtxt"
    )


def load(path: Path, *, check_files: bool) -> FeatureSpec:
    """Read the specification at ``path``: a directory, a .yaml or a .pbtxt."""
    if path.is_dir():
        return Dataset.open(path, check_files=check_files).spec
    if path.suffix == ".pbtxt":
        from ..schemas.channels import require_channels
        from ..schemas.merlin_schema import to_feature_spec
        from ..schemas.schema_file import read_schema

        schema = read_schema(path)
        require_channels(schema, str(path))
        return to_feature_spec(schema)
    return FeatureSpec.read(path, check_files=check_files)


def _kind(path: Path) -> str:
    kind = {".pbtxt": "pbtxt", ".yaml": "yaml", ".yml": "yaml"}.get(path.suffix)
    if kind is None:
        raise MerlinSimError(f"{path}: expected a name that ends in .yaml or .pbtxt")
    return kind
