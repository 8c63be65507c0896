"""``merlin-sim score``: raw events become scores."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ..workflows.bad_rows import FAIL, POLICIES


@click.command()
@click.argument("servable", type=Path)
@click.option(
    "--input",
    "source",
    type=Path,
    required=True,
    help="Events: .jsonl, .csv or .parquet, with the user's keys, `history` and `candidates`.",
)
@click.option("--output", type=Path, required=True, help="Scores to write: .jsonl or .parquet.")
@click.option(
    "--on_bad_rows",
    type=click.Choice(POLICIES),
    default=FAIL,
    show_default=True,
    help="Stop at a row that cannot be scored, or leave it out and count it.",
)
@click.option("--max_candidates", default=10_000, show_default=True, help="Candidates per event.")
@click.option(
    "--max_history",
    default=10_000,
    show_default=True,
    help="Positions of a history as given; of those the model reads the newest.",
)
@click.option("--overwrite", is_flag=True, help="Replace the output file.")
def command(
    servable: Path,
    source: Path,
    output: Path,
    on_bad_rows: str,
    max_candidates: int,
    max_history: int,
    overwrite: bool,
) -> None:
    """Score raw events with an exported model.

    One event a row: a user, the user's history (oldest first) and the candidates to score. Keys
    are raw, as in the logs; unseen keys are treated as by the fitted workflow. docs/serving.md
    describes all three file formats.
    """
    from ..serving.event_encoder import EventEncoder
    from ..serving.event_reader import READERS, EventFile, check_ending
    from ..serving.limits import Limits
    from ..serving.score_writer import WRITERS
    from ..serving.servable import Servable
    from ..workflows.progress import Terminal

    check_ending("--input", source, READERS)
    check_ending("--output", output, WRITERS)
    opened = Servable.open(servable)
    encoder = EventEncoder(opened, Limits(max_candidates, max_history))
    EventFile(source, encoder)

    from ..serving.score_file import score_file
    from ..serving.scorer import Scorer

    scorer = Scorer(opened)
    started = time.monotonic()
    summary = score_file(
        scorer,
        encoder,
        source,
        output,
        on_bad_rows=on_bad_rows,
        overwrite=overwrite,
        narrator=Terminal(),
    )
    seconds = time.monotonic() - started
    if summary.bad_rows.count:
        click.echo(summary.bad_rows.describe())
    rate = summary.candidates / max(seconds, 1e-9)
    click.echo(
        f"{output}: {summary.events:,} events, {summary.candidates:,} candidates scored in "
        f"{seconds:.1f} s ({rate:,.0f} candidates/s)"
    )
