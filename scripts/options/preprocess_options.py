"""The options that the kinds of logs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...schemas.users_layout import NEGATIVES, POPULARITY
from ...workflows.rules import (
    ALL_ROWS,
    AS_OF_SAMPLE,
    DRAWS,
    FEATURE_VALUES,
    TRAIN_ROWS,
)
from ...workflows.text_lines import FAIL, POLICIES
from .shared_options import option, overwrite_directory, with_options

bad_rows_option = option(
    "--on_bad_rows",
    type=click.Choice(POLICIES),
    default=FAIL,
    help="Stop at a row that cannot be read, or leave it out and count it.",
)
output_path_option = click.option(
    "--output",
    "--output_path",
    "output_path",
    type=Path,
    required=True,
    help="Dataset directory to make.",
)
rule_options = with_options(
    option(
        "--max_sequence_length",
        default=100,
        help="Interactions of a history to keep, the newest.",
    ),
    option(
        "--shortest_sequence_for_user",
        default=20,
        help="Users with fewer interactions are dropped.",
    ),
    option(
        "--shortest_sequence_for_training",
        default=1,
        help="Interactions that a sample has before it, at least; where each user's last one "
        "tests, that one needs none.",
    ),
    option("--seed", default=12345, help="Decides negatives and the rows' order."),
    click.option("--pad", is_flag=True, help="Write histories left-padded with 0."),
    option(
        "--negatives_per_positive",
        default=1,
        help="Negative samples to draw for each positive one.",
    ),
    click.option(
        "--negatives_not_in_history",
        is_flag=True,
        help="Draw no negative sample that its user has taken, before or after. [default: whatever "
        "is drawn]",
    ),
)
feature_values_option = option(
    "--feature_values",
    type=click.Choice(FEATURE_VALUES),
    default=AS_OF_SAMPLE,
    help="Which values of users' and items' features a sample has: as_of_sample: the last ones "
    "that the log knows at the sample's own time; latest: the last ones of the log, of items "
    "those in the rows of --fit_on. The latest leak: training sees values that came after its "
    "samples.",
)


def fit_on(default: str) -> Any:
    """The option that says which rows the workflow is fitted on."""
    return option(
        "--fit_on",
        type=click.Choice((TRAIN_ROWS, ALL_ROWS)),
        default=default,
        help="The rows that ids, counts, popularity and numbers are fitted on: those that train, "
        "or all. What stands in other rows alone has no id. All rows are the published rule: "
        "training then knows which items the test period brings.",
    )


split_options = with_options(
    click.option(
        "--test_from",
        metavar="TIME",
        help="Interactions of this time and later test, those before it train: a number or a date "
        "(2024-06-01, in UTC), as the log has them. [default: each user's last one tests]",
    ),
    click.option(
        "--validation_from",
        metavar="TIME",
        help="Interactions from this time on, before --test_from, validate.",
    ),
    click.option(
        "--test_users",
        type=click.FloatRange(0, 1),
        help="Share of users who test, with all that they did; 0 for the default.",
    ),
    click.option(
        "--validation_users", type=click.FloatRange(0, 1), help="Share of users who validate."
    ),
)
equal_times_option = option(
    "--order_of_equal_times",
    "equal_times",
    type=click.Choice(("unknown", "log", "hash")),
    default="unknown",
    help="Interactions of one user and one time. unknown: a sample's history holds only what "
    "came before the sample's own time. log: the order of their rows is true, and those "
    "before a sample are its history. hash: a hash orders them, and those before a sample are "
    "its history. (With --label_column a history never holds what has the sample's own time.)",
)
validation_option = option(
    "--validation",
    type=click.Choice(("newest", "none")),
    default="newest",
    help="What validates where no other option says so. newest: of what would train, each "
    "user's last interaction; with --test_from the newest tenth; with --test_users as many "
    "users as test. none: nothing, also where the split of --fitted has such a part.",
)
files_of_split = with_options(
    click.option(
        "--test_path",
        "test_files",
        type=Path,
        multiple=True,
        help="A file of the log, or a directory, whose interactions test, beside FILES; may be "
        "given several times.",
    ),
    click.option(
        "--validation_path",
        "validation_files",
        type=Path,
        multiple=True,
        help="A file, or a directory, whose interactions validate.",
    ),
)
HOW = "Draw negatives as often as they were taken, or each item as often as any other"
negatives_option = option(
    "--negatives",
    type=click.Choice(NEGATIVES),
    default=POPULARITY,
    help=f"{HOW}.",
)
negatives_or_none_option = click.option(
    "--negatives",
    type=click.Choice(DRAWS),
    help=f"{HOW}, or none: the log has them. Negative histories are drawn in any case. "
    "[default: popularity; none with --label_column]",
)
layout_option = option(
    "--layout",
    type=click.Choice(("samples", "users")),
    default="samples",
    help="One row per sample, each with a copy of its history; or one row per user, of which "
    "training and inference make the same samples, and which is written sooner.",
)
next_day_options = with_options(
    click.option(
        "--grow",
        is_flag=True,
        help="With --fitted: users, items and values that the earlier dataset does not know get "
        "ids behind its own, instead of id 0 or of being left out.",
    ),
    click.option(
        "--history",
        type=Path,
        help="An earlier dataset whose histories go on in this log, with --fitted: samples are of "
        "this log alone, and users count with their interactions of both.",
    ),
)
common_options = with_options(
    click.option(
        "--fitted",
        type=Path,
        help="An earlier dataset whose ids to use instead of fitting: for the next day's data. "
        "Rules that are not given are those of that dataset.",
    ),
    bad_rows_option,
    option(
        "--scheduler",
        default="auto",
        help="single: this process, with threads, and one task at a time on a GPU; local: a Dask "
        "cluster on this machine, with GPUs one worker for each; an address (tcp://...) of a "
        "running Dask or Dask-CUDA cluster that sees the same files; auto: local if more than one "
        "worker is asked for or there are several GPUs, else single.",
    ),
    overwrite_directory,
)
workers_option = click.option(
    "--workers",
    type=int,
    help="Worker processes, or threads of --scheduler single. [default: threads, one per core]",
)


def names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...] | None:
    """Names between commas."""
    if value is None:
        return None
    return tuple(name.strip() for name in value.split(",") if name.strip())
