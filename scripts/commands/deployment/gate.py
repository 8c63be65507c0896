"""``merlin-sim gate``: may a model take the place of the one that is served."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from ...options.devices import settle_for_model
from ...options.readable_dataset import readable_dataset
from ...text_table import text_table

NOT_PASSED = 1


@click.command()
@click.option(
    "--challenger",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="What may be promoted: an exported model, a run's results directory, or checkpoints "
    "(the best is taken).",
)
@click.option(
    "--current",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="What is served now, in the same forms.",
)
@click.option(
    "--dataset_dir",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="Dataset directory of rows that neither was trained on, in the ids of both: "
    "preprocessed with the challenger's vocabularies (--fitted), or with grown ones.",
)
@click.option(
    "--feature_spec", default="feature_spec.yaml", show_default=True, help="Its spec's name."
)
@click.option("--mapping", default="test", show_default=True, help="Its rows that are scored.")
@click.option(
    "--margin",
    type=click.FloatRange(min=0),
    default=0.005,
    show_default=True,
    help="By how much the challenger may be worse, in AUC, and in what follows unless given there.",
)
@click.option(
    "--log_loss_margin", type=click.FloatRange(min=0), help="In log loss. [default: the margin]"
)
@click.option(
    "--calibration_margin",
    type=click.FloatRange(min=0),
    help="In calibration error. [default: the margin]",
)
@click.option(
    "--long_history",
    type=click.IntRange(min=1),
    help="Interactions from which a history is long. [default: half of the dataset's longest]",
)
@click.option(
    "--least_users",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Users below which a segment is reported, and not judged.",
)
@click.option(
    "--strict_segments",
    is_flag=True,
    help="A segment has to be known to be not worse, as all rows have to; otherwise it must not "
    "be known to be worse.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draws."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("gate"),
    show_default=True,
    help="Directory of gate.json and the page.",
)
@click.option(
    "--force", is_flag=True, help="Compare even on rows that the challenger was trained on."
)
def command(
    challenger: Path,
    current: Path,
    dataset_dir: Path,
    feature_spec: str,
    mapping: str,
    margin: float,
    log_loss_margin: float | None,
    calibration_margin: float | None,
    long_history: int | None,
    least_users: int,
    strict_segments: bool,
    seed: int,
    output: Path,
    force: bool,
) -> None:
    """Decide whether CHALLENGER is not worse than CURRENT on the rows of DATASET.

    Both score the same rows as a server would: ids that one has no vector for are unknown to it.
    AUC, log loss and calibration error are compared over users drawn with replacement, of all rows
    and of new users, new items and long histories. It passes where it is not worse than the
    margins allow with 95% confidence.

    Exit code 0: passed. 1: not passed. 2: something could not be compared.
    """
    margins = (
        margin,
        margin if log_loss_margin is None else log_loss_margin,
        margin if calibration_margin is None else calibration_margin,
    )
    place = readable_dataset(dataset_dir, feature_spec)
    settings = {"least_users": least_users, "strict_segments": strict_segments, "seed": seed}
    models = (challenger, current)
    passed = _compare(models, place, mapping, long_history, margins, settings, output, force)
    sys.exit(0 if passed else NOT_PASSED)


def _compare(
    models: tuple[Path, Path],
    place: tuple[Path, str],
    mapping: str,
    long_history: int | None,
    margins: tuple[float, float, float],
    settings: dict[str, Any],
    output: Path,
    force: bool,
) -> bool:
    """Compare, write what came of it, and return whether the first model passes."""
    from ....schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(place[0], feature_spec=place[1])
    dataset.stored_files(mapping)
    settle_for_model()

    from ....foundation.progress import Terminal
    from ....schemas.fingerprint import fingerprint
    from ....serving.deployment.gate import GateRules, Margins, judge, score_twice
    from ....serving.deployment.gate_page import HEAD, rows_of, write_gate
    from ....serving.deployment.judged import open_judged, refuse_trained_rows

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    terminal = Terminal()
    challenger, current = (open_judged(path, say) for path in models)
    origins = refuse_trained_rows(challenger, current, dataset, mapping, force, say)
    scored = score_twice(challenger, current, dataset, mapping, long_history, terminal)
    if not scored.has_users:
        say(f"{dataset.path} has no column that identifies users: rows are drawn in their place.")
    gate = judge(scored, GateRules(Margins(*margins), **settings), terminal)
    facts = {
        **origins,
        "dataset": {
            "path": str(dataset.path), "fingerprint": fingerprint(dataset), "mapping": mapping
        },
    }  # fmt: skip
    page = write_gate(output, gate, facts, scored.long_from)
    click.echo(text_table(HEAD, rows_of(gate)))
    for reason in gate.reasons:
        click.echo(reason)
    click.echo("passed" if gate.passed else "not passed")
    click.echo(page)
    return gate.passed
