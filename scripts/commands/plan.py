"""``merlin-sim plan``: where the tables of a model would be, and what that costs."""

from __future__ import annotations

from typing import Any

import click
import numpy as np

from ...foundation.exceptions import MerlinSimError
from ...parallel.placement.plan import Cut, Plan, PlanOptions, TableShards, shown_size
from ...parallel.placement.planner import (
    Costs,
    bytes_between,
    bytes_to_host,
    part_costs,
    rank_bytes,
)
from ...training.runs.run_config import SPREAD, RunConfig
from ...training.runs.table_plan import plan_of, plan_options
from ..options.run_options import MODEL, settle, take_model_options
from ..options.shared_options import option, setting_options, with_options
from ..options.short_help import ShortHelp
from ..text_table import print_table

OF_TRAIN = with_options(
    *setting_options(RunConfig, ["dataset_dir", "feature_spec"]),
    *MODEL,
    *setting_options(RunConfig, ["optimizer", "global_batch_size", "cut", "memory", "host_memory"]),
)
"""What ``train`` has too, with its defaults."""


@click.command(
    cls=ShortHelp,
    common=(
        "dataset_dir", "model_type", "ranks", "nodes", "embedding_dim", "optimizer",
        "global_batch_size", "cut", "memory", "host_memory",
    ),
)  # fmt: skip
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="Processes of the run.")
@option(
    "--nodes",
    type=click.IntRange(min=1),
    default=1,
    help="Machines that share the ranks evenly; shows what travels between them.",
)
@OF_TRAIN
def command(ranks: int, nodes: int, **values: Any) -> None:
    """Show where `train --tables spread` puts a model's tables, table by table and rank by rank.

    Of the dataset only its feature spec has to be there.
    """
    from ...schemas.dataset import DatasetDirectory

    if ranks % nodes:
        raise MerlinSimError(f"`ranks` should be divisible by `nodes` ({nodes}). Received: {ranks}")
    settled = settle(values)
    options = take_model_options(settled)
    config = RunConfig(model_options=options, tables=SPREAD, **settled)
    dataset = DatasetDirectory.open(
        config.dataset_dir, feature_spec=config.feature_spec, check_files=False
    )
    plan = plan_of(config, dataset, options, ranks)
    chosen = plan_options(config, ranks)
    _print_tables(plan, chosen)
    _print_ranks(plan, chosen)
    _print_sums(plan, chosen, nodes)


def _print_tables(plan: Plan, options: PlanOptions) -> None:
    rows = []
    for placed in plan.tables:
        table, costs = placed.table, _costs(placed, options)
        sizes = map(shown_size, (table.weights, costs.slots, costs.gradient))
        rows.append([table.name, f"{table.rows:,}", str(table.width), *sizes, _where(placed)])
    head = ["table", "rows", "width", "weights", options.optimizer, "gradient", "where"]
    print("Tables")
    print_table(head, rows)


def _costs(placed: TableShards, options: PlanOptions) -> Costs:
    """Add up the parts of a table; of one that is on every rank, count one."""
    ranks = {0} if placed.cut is Cut.REPLICATED else {shard.rank for shard in placed.shards}
    parts = [part_costs(placed, rank, options) for rank in ranks]
    return Costs(*(sum(sizes) for sizes in zip(*parts)))  # noqa: B905


def _where(placed: TableShards) -> str:
    """Say where a table is.

    >>> from ...parallel.placement.plan import Table
    >>> _where(TableShards(Table("item", 10, 4)))
    'every rank'
    >>> _where(TableShards(Table("item", 10, 4), on_host=frozenset({0, 1})))
    'every rank, in host memory'
    """
    in_host = ", in host memory"
    if placed.cut is Cut.REPLICATED:
        return "every rank" + in_host * bool(placed.on_host)
    ranks = [shard.rank for shard in placed.shards]
    if placed.on_host and placed.on_host != set(ranks):
        in_host += " on " + ", ".join(map(str, sorted(placed.on_host)))
    on = ", ".join(map(str, ranks)) + in_host * bool(placed.on_host)
    if placed.cut is Cut.WHOLE:
        return f"rank {on}"
    return f"{placed.cut.value} in {len(placed.shards)}: ranks {on}"


def _print_ranks(plan: Plan, options: PlanOptions) -> None:
    sent = bytes_between(plan, options.samples)
    rows = []
    for rank in range(plan.ranks):
        costs = (part_costs(placed, rank, options) for placed in plan.tables)
        parts = [sum(part) for part in zip(*costs)]  # noqa: B905
        totals = [rank_bytes(plan, rank, options, on_host) for on_host in (False, True)]
        travel = (sent[rank].sum(), sent[:, rank].sum())
        sizes = (*parts, *totals[: 2 if options.host_memory else 1], *travel)
        rows.append([str(rank), *map(shown_size, sizes)])
    memories = ["device", "host"] if options.host_memory else ["in all"]
    head = ["rank", "weights", options.optimizer, "gradients", *memories, "sends", "receives"]
    print(f"Ranks, per step of {options.samples:,} samples")
    print_table(head, rows)


def _print_sums(plan: Plan, options: PlanOptions, nodes: int) -> None:
    totals = [rank_bytes(plan, rank, options) for rank in range(plan.ranks)]
    sent = bytes_between(plan, options.samples)
    weights = sum(placed.table.weights for placed in plan.tables)
    click.echo(f"{len(plan.tables)} tables, {shown_size(weights)} of weights.")
    click.echo(
        f"Balance, the fullest rank over the mean: device memory {_ratio(totals)}, "
        f"received per step {_ratio(sent.sum(0))}."
    )
    if nodes > 1:
        node = np.arange(plan.ranks) // (plan.ranks // nodes)
        between = sent[node[:, None] != node[None, :]].sum()
        click.echo(f"Between nodes: {shown_size(between)} of {shown_size(sent.sum())} per step.")
    if options.host_memory:
        own = [rank_bytes(plan, rank, options, on_host=True) for rank in range(plan.ranks)]
        crossing = [
            sum(bytes_to_host(p, rank, options.samples) for p in plan.tables if rank in p.on_host)
            for rank in range(plan.ranks)
        ]
        click.echo(
            f"In host memory: {shown_size(sum(own))}; a rank's device exchanges at most "
            f"{shown_size(max(crossing))} per step with it."
        )
    click.echo(
        "Ids and vectors are counted as if all of a batch differed, rows as if they were asked for "
        "evenly; layers other than tables are on every rank and not counted."
    )


def _ratio(values: Any) -> str:
    mean = float(np.mean(values))
    return f"{float(np.max(values)) / mean:.2f}" if mean else "nothing"
