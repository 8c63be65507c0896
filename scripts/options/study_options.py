"""Checks what a study's file says against the options of its command, and its datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ...foundation.exceptions import MerlinSimError, Problem, SpecError, describe
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import VALIDATION
from ...training.runs.opened_dataset import open_dataset
from ...training.studies.search import require_optuna
from ...training.studies.study_file import RANKS, Range, StudyFile
from ...training.studies.trial import SettledStudy, grid_of
from .run_options import readable, run_options, to_run_config

OF_THE_STUDY = {
    "config": "the study writes one for each run",
    "dataset_dir": "datasets name them",
    "seed": "seeds name them",
    "results_dir": "each run has its own, in the study's results_dir",
    "save_checkpoint_path": "checkpoints: true or false says whether runs save",
    "save_scores": "they are saved where a dataset has users",
    "log_filename": "the study reads log.json",
    "log_format": "the study reads log.json",
    "mode": "command says it",
}
"""Options that a study's file does not have, and why."""
USERS = "user_features"
"""The channel by which test rows are grouped."""


def settle_study(file: StudyFile, root: Path) -> SettledStudy:
    """Check a study before anything runs; refuse it with everything that is wrong."""
    command = _command(file.command)
    problems = [
        *_problems_of_options(file, command),
        *_problems_of_datasets(file),
    ]
    if problems:
        raise SpecError(file.path, problems)
    if file.search is not None:
        require_optuna()
    with_users, with_validation = set(), set()
    for name in file.datasets:
        for values in _settings_to_try(file):
            dataset = _try(file, command, name, values)
        if dataset.spec.channel_spec.get(USERS):
            with_users.add(name)
        if VALIDATION in dataset.spec.source_spec:
            with_validation.add(name)
    study = SettledStudy(file, root, frozenset(with_users), frozenset(with_validation))
    study.check_search()
    return study


def _command(name: str) -> click.Command:
    @click.command(name)
    @run_options(name)
    def command(**values: Any) -> None:
        """Take the options of a run."""

    return command


def _problems_of_options(file: StudyFile, command: click.Command) -> Iterator[Problem]:
    own = dict(OF_THE_STUDY)
    if file.command == "train":
        own["load_checkpoint_path"] = "runs go on from their own"
    known = {str(param.name): param for param in command.params if param.name not in own}
    for key_path, name, values in _named_values(file):
        if name in own:
            expected = f"no option that the study sets itself ({own[name]})"
            yield Problem(file.path.name, key_path, expected, "one")
        elif name == RANKS:
            for value in values:
                if not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
                    yield Problem(file.path.name, key_path, "a positive integer", describe(value))
        elif name not in known:
            expected = f"an option of `merlin-sim {file.command}`, or {RANKS}"
            yield Problem(file.path.name, key_path, expected, "an unknown name")
        else:
            for value in values:
                wrong = _what_is_wrong(known[name], value, command)
                if wrong is not None:
                    yield Problem(file.path.name, key_path, wrong, describe(value))


def _named_values(file: StudyFile) -> Iterator[tuple[tuple[str, ...], str, tuple[Any, ...]]]:
    for name, value in file.options.items():
        yield ("options", name), name, (value,)
    for name, values in file.grid.items():
        yield ("grid", name), name, values
    for name, entry in file.search.space.items() if file.search is not None else ():
        yield ("search", "space", name), name, _ends(entry)


def _ends(entry: Range | tuple[Any, ...]) -> tuple[Any, ...]:
    return (entry.low, entry.high) if isinstance(entry, Range) else entry


def _what_is_wrong(param: click.Parameter, value: Any, command: click.Command) -> str | None:
    """Say what a value should be; None where it is right."""
    if value is None or param.multiple:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    kind = param.type
    if kind is click.BOOL or isinstance(kind, click.types.BoolParamType):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(kind, click.types.IntParamType):
        return None if is_number and isinstance(value, int) else "a whole number"
    if isinstance(kind, click.types.FloatParamType):
        return None if is_number else "a number"
    try:
        kind.convert(value, param, click.Context(command))
    except click.ClickException as error:
        if isinstance(kind, click.Choice):
            return "one of " + ", ".join(map(str, kind.choices))
        return f"what the option takes ({error.message.rstrip('.')})"
    return None


def _problems_of_datasets(file: StudyFile) -> Iterator[Problem]:
    spec = str(file.options.get("feature_spec") or "feature_spec.yaml")
    for name, path in file.datasets.items():
        if not (path / spec).is_file():
            expected = f"a dataset directory, with {spec}"
            received = f"{path}, which has none" if path.is_dir() else f"{path}, which is not there"
            yield Problem(file.path.name, ("datasets", name), expected, received)


def _settings_to_try(file: StudyFile) -> Iterator[Mapping[str, Any]]:
    """Give the settings of a grid; of a search, each value and each end of a range once."""
    if file.search is None:
        yield from grid_of(file)
        return
    ends = {name: _ends(entry) for name, entry in file.search.space.items()}
    first = {name: values[0] for name, values in ends.items()}
    yield first
    for name, values in ends.items():
        for value in values[1:]:
            yield {**first, name: value}


def _try(
    file: StudyFile, command: click.Command, dataset: str, values: Mapping[str, Any]
) -> DatasetDirectory:
    """Let the command configure a run of the study and open its dataset."""
    options = {**file.options, **values, "dataset_dir": str(file.datasets[dataset])}
    given = {n: v for n, v in options.items() if v is not None and n != RANKS}
    try:
        context = command.make_context(file.command, [], default_map=given)
        return open_dataset(readable(to_run_config(context, dict(context.params))))
    except click.ClickException as error:
        message = error.format_message()
    except MerlinSimError as error:
        message = str(error)
    shown = ", ".join(f"{name} {value}" for name, value in values.items()) or "its options"
    raise MerlinSimError(f"{file.path}: with {shown} on {dataset}: {message}")
