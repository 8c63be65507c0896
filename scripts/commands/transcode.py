"""``merlin-sim transcode``: any dataset with a feature spec becomes a dataset directory."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ...schemas import SPEC_FILE
from ...schemas.specs.spec_file import read_spec
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
    """
    from ...foundation.progress import Terminal
    from ...workflows.transcoding.transcode import Transcoder

    started = time.monotonic()
    spec = read_spec(source / feature_spec)
    transcoder = Transcoder(spec, (source / feature_spec).parent, Terminal(), form)
    transcoder.transcode(output, overwrite=overwrite)
    rows = ", ".join(f"{mapping} {count:,}" for mapping, count in transcoder.rows.items())
    click.echo(f"{output}: {rows} rows in {time.monotonic() - started:.1f} s")
