"""``merlin-sim data spec``: validate, show, convert and adopt dataset specifications."""

from __future__ import annotations

from pathlib import Path

import click

from ....models.known_families import families, find_family
from ....schemas.dataset import convert as convert_file
from ....schemas.dataset import load_spec, read_shape
from ....schemas.feature_spec import FeatureSpec
from ....schemas.layout_names import LayoutNames
from ....schemas.users_layout import UsersLayout, users_layout, users_problems
from ...options.shared_options import layout_names
from ...text_table import print_table

PATH = click.Path(path_type=Path)
FEATURE_HEAD = ("channel", "feature", "dtype", "table", "ids", "longest")
FILE_HEAD = ("mapping", "type", "files", "first file", "features")


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
    from ....schemas.natural_translation import shared_domains

    spec = load_spec(path, check_files=False) if path.is_dir() else read_shape(path)
    print("Features")
    print_table(FEATURE_HEAD, _features(spec, shared_domains(spec)))
    print("\nFiles")
    print_table(FILE_HEAD, _sources(spec))
    if not users_problems(spec, None) and (layout := users_layout(spec)) is not None:
        print("\nUsers: one a row, samples are made while they are read")
        print_table(("what", "where or how"), _users(layout))
    if spec.metadata:
        print("\nmetadata: " + ", ".join(spec.metadata))


def _features(spec: FeatureSpec, domains: dict[str, str]) -> list[tuple[str, ...]]:
    in_channels = [(c, name) for c, names in spec.channel_spec.items() for name in names]
    used = {name for _, name in in_channels}
    rest = [("(none)", name) for name in spec.feature_spec if name not in used]
    rows: list[tuple[str, ...]] = []
    last = ""
    for channel, name in in_channels + rest:
        shown = channel if channel != last else ""
        feature = spec.feature_spec.get(name)
        if feature is None:
            rows.append((shown, f"{name}: not in feature_spec", "", "", "", ""))
            continue
        table = "-" if feature.cardinality is None else domains[name]
        ids = f"{feature.cardinality:,}" if isinstance(feature.cardinality, int) else "-"
        ids = "auto" if feature.cardinality == "auto" else ids
        longest = " x ".join(map(str, feature.dimensions or ())) or "-"
        rows.append((shown, name, feature.dtype, table, ids, longest))
        last = channel
    return rows


def _sources(spec: FeatureSpec) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for mapping, chunks in spec.source_spec.items():
        for index, chunk in enumerate(chunks):
            is_all = set(chunk.features) == set(spec.feature_spec)
            features = f"all {len(chunk.features)}" if is_all else ", ".join(chunk.features)
            first = chunk.files[0] if chunk.files else "-"
            shown = mapping if index == 0 else ""
            rows.append((shown, chunk.type, str(len(chunk.files)), first, features))
    return rows


def _users(layout: UsersLayout) -> list[tuple[str, str]]:
    features = ", ".join(layout.item_features) or "none but the item"
    rows = [("history", f"column {layout.history}, oldest first")]
    if layout.times is not None:
        how = f"column {layout.times}, in seconds; intervals in {layout.time_unit}"
        rows.append(("times", how))
    if layout.same_time is not None:
        rows.append(("own time", f"not seen; column {layout.same_time}"))
    for mapping, (begin, end) in layout.positions.items():
        how = f"positions from column {begin} to before column {end}"
        rows.append((f"samples of {mapping}", how))
    rows.append(("item features", f"{features}, in {layout.item_table}"))
    rows.append(("negatives", f"drawn by {layout.negatives}, seed {layout.seed}"))
    return rows


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
