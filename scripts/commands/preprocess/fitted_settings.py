"""Settings of preprocessing: as the options say, else as of an earlier dataset."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ....foundation.exceptions import MerlinSimError
from ....schemas.users_layout import POPULARITY
from ....workflows.feature import FeatureSet
from ....workflows.rules import NONE, SPLIT_RULES, SampleRules

if TYPE_CHECKING:
    from ....workflows.behaviour_columns import BehaviourColumns
    from ....workflows.preprocess.earlier_histories import EarlierHistories
    from ....workflows.preprocess.fitted import FittedWorkflow
    from ....workflows.preprocess.summary import Summary

COLUMN_OPTIONS = {
    "user": "--user_column",
    "item": "--item_column",
    "timestamp": "--timestamp_column",
    "user_features": "--user_feature_columns",
    "item_features": "--item_feature_columns",
    "label": "--label_column",
    "behaviour": "--behaviour_column",
    "history_behaviours": "--history_behaviours",
    "target_behaviours": "--target_behaviours",
    "features": "--features",
}
VALIDATION_OPTIONS = {
    "validation_from": "--validation_from",
    "validation_users": "--validation_users",
    "validation_files": "--validation_path",
}
MOST_ROWS = 500_000
"""Of each mapping are checked; with more, the checks that need all of them are left out."""
LISTS = ("user_features", "item_features", "history_behaviours", "target_behaviours")


def columns_of(
    given: dict[str, Any],
    features_file: Path | None,
    directory: Path | None,
    fitted: FittedWorkflow | None,
) -> BehaviourColumns:
    """The columns as given; those that are not, as the fitted workflow has them."""
    from ....workflows.behaviour_columns import BehaviourColumns

    if fitted is None:
        for name in ("user", "item", "timestamp"):
            if given[name] is None:
                raise click.UsageError(f"Missing option '{COLUMN_OPTIONS[name]}'.")
        lists = {name: given[name] or () for name in LISTS}
        columns = BehaviourColumns(**{**given, **lists, "features": FeatureSet()})
        if given["features"] is None:
            return columns
        try:
            return replace(columns, features=given["features"])
        except MerlinSimError as error:  # without the file's features the columns can be
            raise MerlinSimError(f"{features_file}: {error}") from error
    for name, value in given.items():
        known = getattr(fitted.columns, name)
        if name in LISTS:  # those that buckets made ids of were not given there
            known = tuple(n for n in known if n not in fitted.columns.features.columns)
        if name == "features" and value is not None:
            value = replace(fitted.columns, features=value).features
        if value not in (None, known):
            raise MerlinSimError(
                f"{COLUMN_OPTIONS[name]}: expected {_in_words(known)}, as {directory} was fitted "
                f"on, got {_in_words(value)}. Leave the option out: workflow.json holds it."
            )
    return fitted.columns


def with_timestamp_unit(
    columns: BehaviourColumns, unit: str | None, source: Path | None
) -> BehaviourColumns:
    """The columns with the unit of ``--timestamp_unit``, where it is given.

    ``source`` is the file or the dataset that they have another unit from, if they have.
    """
    known = columns.features.timestamp_unit
    if unit is None or unit == known:
        return columns
    if known is not None:
        raise MerlinSimError(
            f"`--timestamp_unit`: expected {known}, as {source} says, got {unit}. Leave the option "
            "out."
        )
    return replace(columns, features=replace(columns.features, timestamp_unit=unit))


def _in_words(value: str | tuple[str, ...] | FeatureSet | None) -> str:
    if isinstance(value, FeatureSet):
        return f"those of {', '.join(value.columns) or 'no column'}"
    return (value if isinstance(value, str) else ", ".join(value or ())) or "none"


def features_of(path: Path | None) -> FeatureSet | None:
    """Read the file of ``--features``."""
    from ....workflows.feature_file import read_features

    return None if path is None else read_features(path)


def load_fitted(directory: Path | None, grow: bool) -> FittedWorkflow | None:
    """Load the workflow of ``--fitted``."""
    from ....workflows.preprocess.fitted import FittedWorkflow

    if grow and directory is None:
        raise click.UsageError("--grow needs --fitted: an earlier dataset whose ids to go on from.")
    return None if directory is None else FittedWorkflow.load(directory)


def earlier_of(directory: Path | None, fitted: FittedWorkflow | None) -> EarlierHistories | None:
    """Open the histories of ``--history``."""
    from ....workflows.preprocess.fitted import FittedWorkflow

    if directory is None:
        return None
    if fitted is None:
        raise click.UsageError(
            "--history needs --fitted: an earlier dataset whose ids to use, the same one as a rule."
        )
    workflow = FittedWorkflow.load(directory)
    if workflow.kept is None:
        raise MerlinSimError(
            f"{directory}: keeps no histories: its workflow.json was written by a version that "
            "kept none. `merlin-sim preprocess` makes it anew."
        )
    if workflow.columns != fitted.columns:
        raise MerlinSimError(
            f"{directory}: expected the columns of --fitted, as its workflow.json names them; "
            f"its own are {', '.join(workflow.columns.log)}."
        )
    return workflow.kept


def parts_of_files(
    train: tuple[Path, ...], validation: tuple[Path, ...], test: tuple[Path, ...]
) -> dict[Path, int] | None:
    """Say whose rows each file has, where files are a split: the index of its mapping."""
    if validation and not test:
        raise click.UsageError("--validation_path needs --test_path.")
    parts = [train, validation, test] if validation else [train, test]
    files = [path for paths in parts for path in paths]
    real_paths = [os.path.realpath(path) for path in files]  # a file may have several names
    twice = [
        str(path)
        for path, real_path in zip(files, real_paths, strict=True)
        if real_paths.count(real_path) > 1
    ]
    if twice:
        raise MerlinSimError(
            "Each file should be given once, as one of FILES, of --validation_path or of "
            f"--test_path. Received more than once: {', '.join(dict.fromkeys(twice))}."
        )
    return {path: part for part, paths in enumerate(parts) for path in paths} if test else None


def rules_of(
    given: dict[str, Any], fitted: FittedWorkflow | None, negatives: str = POPULARITY
) -> SampleRules:
    """The rules as given; those left at their defaults as the fitted workflow has them."""
    given = {**given, **{name: given.get(name) or None for name in SPLIT_RULES}}
    if given.get("validation") == NONE:
        given["validation"] = None
    source = click.get_current_context().get_parameter_source
    on_command_line = {
        name: value
        for name, value in given.items()
        if source(name) not in (None, ParameterSource.DEFAULT)
    }
    leaves_out = "validation" in on_command_line and given["validation"] is None
    validating = [option for name, option in VALIDATION_OPTIONS.items() if given[name]]
    if leaves_out and validating:
        raise click.UsageError(
            f"--validation none: expected no part that validates, got {', '.join(validating)}."
        )
    before = given["negatives"] or negatives if fitted is None else fitted.rules.negatives
    if on_command_line.get("negatives", before) == NONE:
        if "negatives_per_positive" in on_command_line:
            raise click.UsageError(
                "--negatives_per_positive needs --negatives popularity or uniform: none are drawn."
            )
        on_command_line["negatives_per_positive"] = 1
    if fitted is None:
        return SampleRules(**{**given, "negatives": before})
    if on_command_line.keys() & set(SPLIT_RULES):  # a split is given as a whole
        on_command_line |= {name: given[name] for name in SPLIT_RULES}
    if leaves_out:
        on_command_line |= dict.fromkeys(VALIDATION_OPTIONS)
    return replace(fitted.rules, **on_command_line)


def say_done(summary: Summary, output: Path, seconds: float) -> None:
    """Report what a run did, and how long it took."""
    for line in summary.lines():
        click.echo(line)
    say_findings(output)
    rate = summary.interactions / max(seconds, 1e-9)
    click.echo(f"{output}: done in {seconds:.1f} s ({rate:,.0f} interactions/s)")


def say_findings(directory: Path) -> None:
    """Report what `merlin-sim data check` would call a problem, a line each."""
    from ....schemas.dataset import DatasetDirectory
    from ....workflows.checks.check_dataset import DatasetCheck

    check = DatasetCheck(DatasetDirectory.open(directory), most_rows=MOST_ROWS)
    problems = [finding for finding in check.run() if finding.problem]
    for finding in problems:
        click.echo(f"look at this: {finding.where}: {finding.check}: {finding.says}")
    if problems or check.sampled:
        looked = "some rows were checked; " if check.sampled else ""
        click.echo(f"{looked}`merlin-sim data check --dataset_dir {directory}` reports all")
