"""Options that several commands have, written once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...parallel.checkpoints.asked_step import BEST, WANTED, is_choice
from ...schemas.layout_names import PUBLISHED, LayoutNames
from ...serving.limits import Limits
from ...serving.settings import LogSettings

overwrite_directory = click.option(
    "--overwrite", is_flag=True, help="Replace the output directory."
)


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the limits of a request; the command gets them as ``limits``."""

    @functools.wraps(function)
    def with_limits(*, max_candidates: int, max_history: int, **values: Any) -> Any:
        return function(limits=Limits(max_candidates, max_history), **values)

    history = click.option(
        "--max_history",
        default=Limits.max_history,
        show_default=True,
        help="Positions of a history as it is given, of which the model reads the newest; "
        "longer ones are refused.",
    )
    candidates = click.option(
        "--max_candidates",
        default=Limits.max_candidates,
        show_default=True,
        help="Candidates per event, rows per request of ids; more are refused.",
    )
    return candidates(history(with_limits))


def request_log_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what is kept of requests; the command gets it as ``request_log``, None for nothing."""

    @functools.wraps(function)
    def with_log(
        *,
        log_requests: Path | None,
        log_share: float,
        log_mib: int,
        hash_users: bool,
        **values: Any,
    ) -> Any:
        log = None
        if log_requests is not None:
            log = LogSettings(log_requests, log_share, log_mib, hash_users)
        elif (log_share, log_mib, hash_users) != (LogSettings.share, LogSettings.most_mib, False):
            raise click.UsageError(
                "expected --log_share, --log_mib and --hash_users with --log_requests only."
            )
        return function(request_log=log, **values)

    options = (
        click.option(
            "--log_requests",
            type=click.Path(path_type=Path, file_okay=False),
            help="Directory in which a share of the events is kept, with ids, scores and version, "
            "for `merlin-sim drift`. [default: nothing is kept]",
        ),
        click.option(
            "--log_share",
            default=LogSettings.share,
            show_default=True,
            help="Share of the events that is kept.",
        ),
        click.option(
            "--log_mib",
            default=LogSettings.most_mib,
            show_default=True,
            help="MiB that are kept at most; the oldest go.",
        ),
        click.option(
            "--hash_users",
            is_flag=True,
            help="Keep a hash in place of what the user's columns have.",
        ),
    )
    return functools.reduce(lambda found, add: add(found), reversed(options), with_log)


def layout_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the names of the published parquet layout; the command gets them as ``names``."""

    @functools.wraps(function)
    def with_names(
        *, train_split_dir: str, test_split_dir: str, metadata_file: str, **values: Any
    ) -> Any:
        names = LayoutNames(train_split_dir, test_split_dir, metadata_file)
        return function(names=names, **values)

    options = (
        ("--train_split_dir", PUBLISHED.train, "Directory of train's parquet files."),
        ("--test_split_dir", PUBLISHED.test, "Directory of test's."),
        ("--metadata_file", PUBLISHED.metadata, "File of cardinalities."),
    )
    found: Callable[..., Any] = with_names
    for name, default, text in reversed(options):
        found = click.option(name, default=default, show_default=True, help=text)(found)
    return found


def _step(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_choice(value):
        raise click.BadParameter(f"expected {WANTED}. Received: {value!r}")
    return value


def checkpoint_options(required: bool) -> Callable[[Any], Any]:
    """Add what names a trained model: its checkpoint, and the dataset of its run."""
    options = (
        click.option(
            "--load_checkpoint_path",
            type=Path,
            required=required,
            help="Directory of checkpoints of a run, or one of them.",
        ),
        click.option(
            "--step",
            default=BEST,
            show_default=True,
            callback=_step,
            help="Which of them: best, by the AUC that the run chose by (validation data's as a "
            "rule), or the newest where it chose none; newest; or the number of a step.",
        ),
        click.option(
            "--dataset_dir", type=Path, required=required, help="The dataset directory of that run."
        ),
        click.option(
            "--feature_spec",
            default="feature_spec.yaml",
            show_default=True,
            help="Its spec's name.",
        ),
    )
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)
