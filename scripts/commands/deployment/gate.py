"""``merlin-sim gate``: may a model replace the one that is served."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ....serving.deployment.gate_rules import GateRules
from ...options.devices import settle_for_model
from ...options.readable_dataset import readable_dataset
from ...options.shared_options import option, options_of, spec_option
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
@spec_option
@option("--mapping", default="test", help="Mapping whose rows are scored.")
@options_of(GateRules, "rules")
@click.option(
    "--long_history",
    type=click.IntRange(min=1),
    help="Interactions from which a history is long. [default: half of the dataset's longest]",
)
@option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("gate"),
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
    rules: GateRules,
    long_history: int | None,
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
    readable = readable_dataset(dataset_dir, feature_spec)
    from ....schemas.dataset import DatasetDirectory

    dataset = DatasetDirectory.open(readable[0], feature_spec=readable[1])
    dataset.stored_files(mapping)
    settle_for_model()

    from ....foundation.progress import Terminal
    from ....schemas.fingerprint import fingerprint
    from ....serving.deployment.gate import judge, score_twice
    from ....serving.deployment.gate_page import HEAD, rows_of, write_gate
    from ....serving.deployment.judged import open_judged, refuse_trained_rows

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    terminal = Terminal()
    models = open_judged(challenger, say), open_judged(current, say)
    origins = refuse_trained_rows(*models, dataset, mapping, force, say)
    scored = score_twice(*models, dataset, mapping, long_history, terminal)
    if not scored.has_users:
        say(f"{dataset.path} has no column that identifies users: rows are drawn instead.")
    gate = judge(scored, rules, terminal)
    metadata = {
        **origins,
        "dataset": {
            "path": str(dataset.path), "fingerprint": fingerprint(dataset), "mapping": mapping
        },
    }  # fmt: skip
    page = write_gate(output, gate, metadata, scored.long_from)
    click.echo(text_table(HEAD, rows_of(gate)))
    for reason in gate.reasons:
        click.echo(reason)
    click.echo("passed" if gate.passed else "not passed")
    click.echo(page)
    sys.exit(0 if gate.passed else NOT_PASSED)
