"""Options that several commands have, written once, and those made of a dataclass's settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from ...foundation.settings import kind_of, settings_of
from ...parallel.checkpoints import BEST, WANTED, is_choice
from ...schemas.layout_names import PUBLISHED, LayoutNames


def with_options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make one decorator of options, which are shown in their order."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


def option(*names: str, **known: Any) -> Callable[[Any], Any]:
    """Make an option whose help shows its default."""
    return click.option(*names, show_default=True, **known)


def setting_options(cls: type, names: Iterable[str]) -> list[Callable[[Any], Any]]:
    """Make the options of some settings, with their defaults and lines of help."""
    defaults = {entry.name: entry.default for entry in dataclasses.fields(cls)}
    return [setting_option(cls, name, defaults[name]) for name in names]


def setting_option(cls: type, name: str, default: Any) -> Callable[[Any], Any]:
    """Make the option of a setting, with a default of its own."""
    known, hint = settings_of(cls)[name]
    kind: Any = kind_of(hint)
    if kind is bool:
        flags = known.flags or f"--{name}/--no_{name}"
        return click.option(flags, name, is_flag=True, default=default, help=known.help)
    if default is dataclasses.MISSING:
        return click.option(f"--{name}", type=str, required=True, help=known.help)
    kind = str if kind is Path else click.Choice(known.choices) if known.choices else kind
    shown = known.off if default is None else str(default) if kind is str else default
    return option(f"--{name}", type=kind, default=shown, help=known.help)


def options_of(cls: type, into: str) -> Callable[[Any], Any]:
    """Add an option for each setting of a dataclass; the command gets one of these as ``into``."""
    names = list(settings_of(cls))

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def with_settings(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names}
            return function(**{into: cls(**own)}, **values)

        return with_options(*setting_options(cls, names))(with_settings)

    return decorate


overwrite_directory = click.option(
    "--overwrite", is_flag=True, help="Replace the output directory."
)
spec_option = option("--feature_spec", default="feature_spec.yaml", help="Its spec's name.")


def layout_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the names of the published parquet layout; the command gets them as ``names``."""

    @functools.wraps(function)
    def with_names(
        *, train_split_dir: str, test_split_dir: str, metadata_file: str, **values: Any
    ) -> Any:
        names = LayoutNames(train_split_dir, test_split_dir, metadata_file)
        return function(names=names, **values)

    defaults = (
        ("--train_split_dir", PUBLISHED.train, "Directory of train's parquet files."),
        ("--test_split_dir", PUBLISHED.test, "Directory of test's."),
        ("--metadata_file", PUBLISHED.metadata, "File of cardinalities."),
    )
    options = (option(n, default=d, help=text) for n, d, text in defaults)
    found: Callable[..., Any] = with_options(*options)(with_names)
    return found


def _step(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_choice(value):
        raise click.BadParameter(f"expected {WANTED}. Received: {value!r}")
    return value


def checkpoint_options(required: bool) -> Callable[[Any], Any]:
    """Add what names a trained model: its checkpoint, and the dataset of its run."""
    return with_options(
        click.option(
            "--load_checkpoint_path",
            type=Path,
            required=required,
            help="Directory of checkpoints of a run, or one of them.",
        ),
        option(
            "--step",
            default=BEST,
            callback=_step,
            help="Step of the checkpoint: best, by the AUC that the run chose by (validation "
            "data's as a rule), or the newest where it chose none; newest; or a step's number.",
        ),
        click.option(
            "--dataset_dir", type=Path, required=required, help="The dataset directory of that run."
        ),
        spec_option,
    )
