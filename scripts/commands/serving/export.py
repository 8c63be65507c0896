"""``merlin-sim export``: a trained model becomes a directory that can be served."""

from __future__ import annotations

from pathlib import Path

import click

from ....foundation.exceptions import MerlinSimError
from ...options.devices import settle_for_model
from ...options.readable_dataset import readable_dataset
from ...options.shared_options import checkpoint_options, option, overwrite_directory

FORMATS = ("servable", "triton")


@click.command()
@checkpoint_options(required=False)
@click.option(
    "--servable",
    type=Path,
    default=None,
    help="With --format triton, instead of a checkpoint: a directory exported before.",
)
@click.option("--output", type=Path, required=True, help="Directory to make.")
@option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="servable",
    help="servable: for `merlin-sim score` and `serve`. triton: a model repository for the "
    "stock Triton Inference Server of the Merlin container.",
)
@click.option(
    "--pad",
    is_flag=True,
    help="Signatures take histories as padded rows instead of values and offsets.",
)
@overwrite_directory
def command(
    load_checkpoint_path: Path | None,
    step: str,
    dataset_dir: Path | None,
    feature_spec: str,
    servable: Path | None,
    output: Path,
    output_format: str,
    pad: bool,
    overwrite: bool,
) -> None:
    """Write a trained model with its vocabularies as one directory.

    The directory needs neither the dataset nor the checkpoint, holds a hash of every file, and no
    pickle. It appears whole or not at all.
    """
    from_servable = servable is not None
    if from_servable == (load_checkpoint_path is not None and dataset_dir is not None):
        raise MerlinSimError(
            "Name either --load_checkpoint_path and --dataset_dir, or (with --format triton) "
            "--servable."
        )
    if from_servable and (output_format != "triton" or pad or load_checkpoint_path or dataset_dir):
        raise MerlinSimError("`--servable` goes with --format triton, and with nothing to export.")
    if servable is not None:
        from ....serving.triton.repository import write_stock_repository

        write_stock_repository(servable, output, overwrite=overwrite, say=click.echo)
    else:
        assert load_checkpoint_path is not None and dataset_dir is not None
        dataset_dir, feature_spec = readable_dataset(dataset_dir, feature_spec)
        settle_for_model()

        from ....serving.triton.export import CheckpointExport

        export = CheckpointExport(
            load_checkpoint_path, dataset_dir, feature_spec, pad, overwrite, step
        )
        write = export.to_triton if output_format == "triton" else export.to_servable
        write(output, click.echo)
    click.echo(f"{output}: exported")
