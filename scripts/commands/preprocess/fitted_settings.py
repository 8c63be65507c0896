"""What a log is preprocessed by: as the options say, else as an earlier dataset was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ....foundation.exceptions import MerlinSimError

if TYPE_CHECKING:
    from ....workflows.behaviour.behaviour_columns import BehaviourColumns
    from ....workflows.behaviour.build import Summary
    from ....workflows.behaviour.fitted import FittedWorkflow
    from ....workflows.behaviour.rules import SampleRules

COLUMN_OPTIONS = {
    "user": "--user_column",
    "item": "--item_column",
    "timestamp": "--timestamp_column",
    "user_features": "--user_feature_columns",
    "item_features": "--item_feature_columns",
}


def columns_of(
    given: dict[str, Any], directory: Path | None, fitted: FittedWorkflow | None
) -> BehaviourColumns:
    """The columns as given; those that are not, as the fitted workflow has them."""
    from ....workflows.behaviour.behaviour_columns import BehaviourColumns

    if fitted is None:
        for name in ("user", "item", "timestamp"):
            if given[name] is None:
                raise click.UsageError(f"Missing option '{COLUMN_OPTIONS[name]}'.")
        columns: dict[str, Any] = {name: value or () for name, value in given.items()}
        return BehaviourColumns(**columns)
    for name, value in given.items():
        wanted = getattr(fitted.columns, name)
        if value not in (None, wanted):
            raise MerlinSimError(
                f"{COLUMN_OPTIONS[name]}: expected {_in_words(wanted)}, as {directory} was fitted "
                f"on, got {_in_words(value)}. Leave the option out: workflow.json holds it."
            )
    return fitted.columns


def _in_words(names: str | tuple[str, ...]) -> str:
    return (names if isinstance(names, str) else ", ".join(names)) or "none"


def load_fitted(directory: Path | None) -> FittedWorkflow | None:
    """Load the workflow of ``--fitted``."""
    from ....workflows.behaviour.fitted import FittedWorkflow

    return None if directory is None else FittedWorkflow.load(directory)


def rules_of(given: dict[str, Any], fitted: FittedWorkflow | None) -> SampleRules:
    """The rules as given; those left at their defaults as the fitted workflow has them."""
    from ....workflows.behaviour.rules import SampleRules

    if fitted is not None:
        source = click.get_current_context().get_parameter_source
        left = [name for name in given if source(name) == ParameterSource.DEFAULT]
        given = {**given, **{name: getattr(fitted.rules, name) for name in left}}
    return SampleRules(**given)


def say_done(summary: Summary, output: Path, seconds: float) -> None:
    """Tell what a run did, and how long it took."""
    for line in summary.lines():
        click.echo(line)
    rate = summary.interactions / max(seconds, 1e-9)
    click.echo(f"{output}: done in {seconds:.1f} s ({rate:,.0f} interactions/s)")
