"""``merlin-sim transcode``: any dataset with a feature spec becomes a dataset directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ...foundation.exceptions import MerlinSimError
from ...schemas import SPEC_FILE
from ...schemas.dataset import DatasetDirectory
from ...schemas.specs.spec_file import read_spec
from ...schemas.users_layout import users_layout
from ..options.devices import settle_for_tables
from ..options.shared_options import overwrite_directory


@click.command()
@click.option("--input", "source", type=Path, required=True, help="Directory with a feature spec.")
@click.option("--output", type=Path, required=True, help="Dataset directory to make.")
@click.option(
    "--feature_spec", default=SPEC_FILE, show_default=True, help="The spec's name in --input."
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["parquet", "split_binary"]),
    default="parquet",
    show_default=True,
    help="split_binary: the published form of DLRM's datasets, for those who read it; only parquet "
    "is trained on here.",
)
@overwrite_directory
def command(source: Path, output: Path, feature_spec: str, form: str, overwrite: bool) -> None:
    """Bring a dataset in csv, parquet, tfrecord or split_binary to a dataset directory.

    The rows keep their order. Cardinalities that are `auto` are counted. Chunks that do not
    line up, ids beyond the cardinality and histories whose features differ in length are
    refused, with file and row.

    Of a dataset with one row per user it makes the one with one row per sample: the files that
    `preprocess --layout samples` writes of the same log.
    """
    settle_for_tables()

    from ...foundation.progress import Terminal
    from ...workflows.transcoding.transcode import Transcoder
    from ...workflows.transcoding.users_to_samples import UsersTranscoder

    started = time.monotonic()
    spec = read_spec(source / feature_spec)
    if users_layout(spec) is not None:
        if form != "parquet":
            raise MerlinSimError(
                f"{source}: `--to {form}` needs a dataset with one row per sample; this one "
                "has one row per user. Bring it to parquet first."
            )
        dataset = DatasetDirectory.open(source, feature_spec=feature_spec)
        counts = UsersTranscoder(dataset, Terminal()).transcode(output, overwrite=overwrite)
    else:
        transcoder = Transcoder(spec, (source / feature_spec).parent, Terminal(), form)
        transcoder.transcode(output, overwrite=overwrite)
        counts = transcoder.rows
    rows = ", ".join(f"{mapping} {count:,}" for mapping, count in counts.items())
    click.echo(f"{output}: {rows} rows in {time.monotonic() - started:.1f} s")
