"""``merlin-sim data transcode``: any dataset with a feature spec becomes a dataset directory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ....foundation.exceptions import MerlinSimError, SpecError
from ....schemas import SPEC_FILE
from ....schemas.channels import USER_FEATURES
from ....schemas.dataset import DatasetDirectory
from ....schemas.feature_spec import FeatureSpec
from ....schemas.layout_names import PUBLISHED, LayoutNames
from ....schemas.metadata_file import check_metadata
from ....schemas.spec_file import read_spec
from ....schemas.users_layout import USERS, is_of_users
from ...options.devices import settle_for_tables
from ...options.shared_options import layout_names, option, overwrite_directory

if TYPE_CHECKING:
    from ....workflows.transcoding.transcode import TfrecordForm


def _of_tfrecord(name: str, least: int, text: str, default: object) -> Callable[[Any], Any]:
    text = f"With --to tfrecord: {text[0].lower()}{text[1:]} [default: {default}]"
    return click.option(f"--{name}", type=click.IntRange(min=least), help=text)


@click.command()
@click.option("--input", "source", type=Path, required=True, help="Directory with a feature spec.")
@click.option("--output", type=Path, required=True, help="Dataset directory to make.")
@option("--feature_spec", default=SPEC_FILE, help="The spec's name in --input.")
@option(
    "--to",
    "form",
    type=click.Choice(["parquet", "users", "tfrecord", "split_binary"]),
    default="parquet",
    help="parquet: one row per sample. users: one row per user. tfrecord and split_binary: the "
    "published forms of SIM's and DLRM's datasets.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    help="With --to users: decides negatives. [default: the one of workflow.json in --input, or "
    "12345]",
)
@click.option(
    "--number_of_user_features",
    type=click.IntRange(min=0),
    help="With an --input in the published parquet layout, without a spec: how many columns after "
    "the label describe the user.",
)
@layout_names
@_of_tfrecord("train_parts", 1, "Files of train, at most.", 8)
@_of_tfrecord("test_parts", 1, "Files of test, at most.", 4)
@_of_tfrecord("prebatch_train_size", 0, "Samples in a record of train; 0: one.", 0)
@_of_tfrecord("prebatch_test_size", 0, "Samples in a record of test; 0: one.", 0)
@_of_tfrecord("max_seq_len", 1, "Length to which histories are padded.", "the spec's")
@overwrite_directory
def command(
    source: Path,
    output: Path,
    feature_spec: str,
    form: str,
    number_of_user_features: int | None,
    names: LayoutNames,
    overwrite: bool,
    seed: int | None,
    **of_tfrecord: int | None,
) -> None:
    """Bring a dataset in csv, parquet, tfrecord or split_binary to a dataset directory.

    The rows keep their order. Cardinalities that are `auto` are counted. Chunks that do not
    line up, ids beyond the cardinality and histories whose features differ in length are
    refused, with file and row.

    Of a dataset with one row per user it makes the one with one row per sample: the files that
    `preprocess --layout samples` writes of the same log.

    With --to users it is the other way around: of each user the whole history that the samples'
    histories are cut from. Samples that do not follow from such rows are refused. Negatives are
    drawn by a seed, and a message says whether they are the stored ones.

    With --to tfrecord histories are padded to their full length, labels are truth values, and the
    options after it say how many files there are and how many samples a record has.
    """
    if seed is not None and form != USERS:
        raise MerlinSimError(
            f"`seed` should be given with `--to {USERS}` only. Received: {seed} with `--to {form}`."
        )
    settle_for_tables()

    from ....foundation.progress import Terminal
    from ....workflows.transcoding.transcode import Transcoder

    layout = _layout(form, of_tfrecord)
    started = time.monotonic()
    spec = _spec_of(source, feature_spec, number_of_user_features, names)
    if is_of_users(spec):
        if form != "parquet":
            raise MerlinSimError(
                f"{source}: `--to {form}` needs a dataset with one row per sample; this one "
                "has one row per user. Bring it to parquet first."
            )
        from ....workflows.transcoding.users import users_to_samples  # NVTabular: seconds

        dataset = DatasetDirectory.open(source, feature_spec=feature_spec)
        counts = users_to_samples(dataset, output, Terminal(), overwrite=overwrite)
    elif form == USERS:
        from ....workflows.transcoding.users import SamplesTranscoder  # NVTabular too

        dataset = DatasetDirectory.open(source, feature_spec=feature_spec)
        counts = SamplesTranscoder(dataset, Terminal(), seed).transcode(output, overwrite=overwrite)
    else:
        folder = (source / feature_spec).parent
        transcoder = Transcoder(spec, folder, Terminal(), form, layout)
        transcoder.transcode(output, overwrite=overwrite)
        counts = transcoder.rows
    rows = ", ".join(f"{mapping} {count:,}" for mapping, count in counts.items())
    click.echo(f"{output}: {rows} rows in {time.monotonic() - started:.1f} s")


def _layout(form: str, of_tfrecord: dict[str, int | None]) -> TfrecordForm:
    from ....workflows.transcoding.transcode import TFRECORD, TfrecordForm

    given = {name: value for name, value in of_tfrecord.items() if value is not None}
    if given and form != TFRECORD:
        name, value = next(iter(given.items()))
        raise MerlinSimError(
            f"`{name}` should be given with `--to tfrecord` only. Received: {value} with "
            f"`--to {form}`."
        )
    mappings = ("train", "test")
    return TfrecordForm(
        {m: given[f"{m}_parts"] for m in mappings if f"{m}_parts" in given},
        {m: given[f"prebatch_{m}_size"] for m in mappings if f"prebatch_{m}_size" in given},
        given.get("max_seq_len"),
    )


def _check_cardinalities(directory: Path, spec: FeatureSpec) -> None:
    """Refuse a metadata.json that does not say what the spec says; `auto` says nothing yet."""
    if any(feature.cardinality == "auto" for feature in spec.feature_spec.values()):
        return
    problems = check_metadata(directory, spec)
    if problems:
        raise SpecError(directory, problems)


def _spec_of(
    source: Path, feature_spec: str, user_features: int | None, names: LayoutNames
) -> FeatureSpec:
    """Read the spec; where a directory in the published parquet layout has none, find it out."""
    if user_features is None and names != PUBLISHED:
        raise MerlinSimError(
            "--train_split_dir, --test_split_dir and --metadata_file are of an --input without a "
            "spec: give --number_of_user_features too."
        )
    if user_features is None or os.path.lexists(source / feature_spec):
        spec = read_spec(source / feature_spec)
        _check_cardinalities((source / feature_spec).parent, spec)
        found = len(spec.channel_spec.get(USER_FEATURES, ()))
        if user_features not in (None, found):
            raise MerlinSimError(
                f"`number_of_user_features` should be {found}, as in {source / feature_spec}, or "
                f"be left out. Received: {user_features}"
            )
        return spec
    from ....foundation.progress import Terminal
    from ....schemas.adopt import count_rows, describe

    with Terminal().phase("checking rows", count_rows(source, names)) as report:
        return describe(source, user_features, names=names, on_rows=lambda rows: report(rows, rows))
