"""``merlin-sim data spec``: validate, show, convert and adopt dataset specifications."""

from __future__ import annotations

from pathlib import Path

import click

from ....models.known_families import families, find_family
from ....schemas.dataset import convert as convert_file
from ....schemas.dataset import load_spec, read_shape
from ....schemas.layout_names import LayoutNames
from ...options.shared_options import layout_names

PATH = click.Path(path_type=Path)


@click.group()
def command() -> None:
    """Validate, show, convert and adopt dataset specifications.

    A specification is a feature_spec.yaml, a schema.pbtxt, or a dataset directory with either.
    """


@command.command()
@click.argument("path", type=PATH)
@click.option(
    "--model_type",
    metavar="FAMILY",
    help="Check that the channels are what this model needs: "
    f"{', '.join(families())}, or your own package.module:FAMILY.",
)
@click.option("--skip_files", is_flag=True, help="Do not ask whether the data files exist.")
def validate(path: Path, model_type: str | None, skip_files: bool) -> None:
    """Say everything that is wrong with the specification at PATH; exit 2 if anything is."""
    family = None if model_type is None else find_family(model_type).name
    spec = load_spec(path, check_files=not skip_files, model=family)
    channels = ", ".join(f"{name} ({len(names)})" for name, names in spec.channel_spec.items())
    fit = "" if model_type is None else f"; fits {model_type}"
    click.echo(f"{path}: valid: {len(spec.feature_spec)} features; channels {channels}{fit}")


@command.command()
@click.argument("path", type=PATH)
def show(path: Path) -> None:
    """Show the specification at PATH as tables."""
    from .spec_tables import print_spec

    spec = load_spec(path, check_files=False) if path.is_dir() else read_shape(path)
    print_spec(spec)


@command.command()
@click.argument("source", metavar="SRC", type=PATH)
@click.argument("destination", metavar="DST", type=PATH)
def convert(source: Path, destination: Path) -> None:
    """Translate SRC to DST without loss: a .yaml is a feature spec, a .pbtxt a Merlin schema."""
    spec = convert_file(source, destination)
    click.echo(f"{destination}: {len(spec.feature_spec)} features, from {source}")


@command.command()
@click.argument("directory", metavar="DIR", type=PATH)
@click.option(
    "--number_of_user_features",
    type=click.IntRange(min=0),
    required=True,
    help="Columns after the label that describe the user.",
)
@layout_names
def adopt(directory: Path, number_of_user_features: int, names: LayoutNames) -> None:
    """Describe a dataset in the published parquet layout where it stands.

    DIR holds train/*.parquet, test/*.parquet and metadata.json. Every row is checked against
    metadata.json; then feature_spec.yaml and schema.pbtxt are written beside the data.
    """
    from ....foundation.progress import Terminal
    from ....schemas.adopt import adopt as adopt_directory
    from ....schemas.adopt import count_rows

    with Terminal().phase("checking rows", count_rows(directory, names)) as report:
        spec = adopt_directory(
            directory,
            number_of_user_features,
            names=names,
            on_rows=lambda rows: report(rows, rows),
        )
    length = spec.feature_spec[spec.channel_spec["positive_history"][0]].dimensions
    click.echo(
        f"{directory}: adopted: {len(spec.feature_spec)} columns, histories of up to "
        f"{length[0] if length else 0}; wrote feature_spec.yaml and schema.pbtxt"
    )
