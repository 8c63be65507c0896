"""``merlin-sim score``: raw events become scores."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ....serving.limits import Limits
from ....workflows.text_lines import FAIL, POLICIES
from ...options.shared_options import option, options_of
from ...options.store_options import store_option


@click.command()
@click.argument("servable", type=Path)
@click.option(
    "--input",
    "source",
    type=Path,
    help="Events: .jsonl, .csv or .parquet, with the user's keys, `history` and `candidates`.",
)
@click.option("--output", type=Path, help="Scores to write: .jsonl or .parquet.")
@option(
    "--on_bad_rows",
    type=click.Choice(POLICIES),
    default=FAIL,
    help="Stop at a row that cannot be scored, or leave it out and count it.",
)
@store_option("Store of histories, for events that bring none: see `merlin-sim histories`.")
@options_of(Limits, "limits")
@click.option("--overwrite", is_flag=True, help="Replace the output file.")
@click.option(
    "--example",
    is_flag=True,
    help="Print an event of this model's own keys, as a line of .jsonl, and score nothing.",
)
def command(
    servable: Path,
    source: Path | None,
    output: Path | None,
    on_bad_rows: str,
    histories: str | None,
    limits: Limits,
    overwrite: bool,
    example: bool,
) -> None:
    """Score raw events with an exported model.

    One event a row: a user, the user's history (oldest first) and the candidates to score. Keys
    are raw, as in the logs; unseen keys are treated as by the fitted workflow. docs/serving.md
    describes all three file formats.
    """
    if example:
        if source is not None or output is not None:
            raise click.UsageError("expected --example without --input and --output.")
        _print_example(servable)
        return
    if source is None or output is None:
        raise click.UsageError("expected --input and --output (or --example alone).")
    from ....foundation.progress import Terminal
    from ....serving.appends import open_served_store
    from ....serving.encoder import open_encoder
    from ....serving.score_file import EventFile, check_output
    from ....serving.servable import Servable

    check_output(output, source, overwrite)
    opened = Servable.open(servable)
    store = None if histories is None else open_served_store(histories, opened)
    encoder = open_encoder(opened, limits, store)
    EventFile(source, encoder)

    from ....serving.score_file import score_file
    from ....serving.scorer import Scorer

    scorer = Scorer(opened)
    started = time.monotonic()
    summary = score_file(
        scorer,
        encoder,
        source,
        output,
        on_bad_rows=on_bad_rows,
        overwrite=overwrite,
        reporter=Terminal(),
    )
    seconds = time.monotonic() - started
    if summary.bad_rows.count:
        click.echo(summary.bad_rows.describe())
    unseen = f"{summary.unseen_users:,} users and {summary.unseen_candidates:,} candidates"
    if summary.unseen_users or summary.unseen_candidates:
        click.echo(f"{source}: {unseen} were not there in training (id 0)")
    rate = summary.candidates / max(seconds, 1e-9)
    click.echo(
        f"{output}: {summary.events:,} events, {summary.candidates:,} candidates scored in "
        f"{seconds:.1f} s ({rate:,.0f} candidates/s)"
    )


def _print_example(servable: Path) -> None:
    """Print an event that the model scores."""
    import json

    from ....serving.encoder import open_encoder
    from ....serving.servable import Servable
    from ....serving.texts import example_event

    encoder = open_encoder(Servable.open(servable))
    click.echo(json.dumps(example_event(encoder), ensure_ascii=False))
