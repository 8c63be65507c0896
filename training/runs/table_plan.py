"""The plan by which a run spreads its tables over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...models.known_families import find_family
from ...parallel.placement.plan import Plan, PlanOptions, parse_size
from ...parallel.placement.planner import make_plan
from ...schemas.dataset import DatasetDirectory
from .run_config import RunConfig


def plan_options(config: RunConfig, ranks: int) -> PlanOptions:
    """Say what a run of so many ranks wants of a plan."""
    memory = None if config.memory is None else parse_size(config.memory)
    host = 0 if config.host_memory is None else parse_size(config.host_memory)
    return PlanOptions(ranks, config.global_batch_size, config.optimizer, memory, config.cut, host)


def plan_of(
    config: RunConfig, dataset: DatasetDirectory, options: Mapping[str, Any], ranks: int
) -> Plan:
    """Make the plan of a run; ``merlin-sim plan`` shows it."""
    family = find_family(str(config.model_type))
    tables = family.tables(dataset.schema, family.options.parse(dict(options)))
    if not tables:
        raise MerlinSimError(
            f"{family.name} has no tables that can be spread over ranks: `tables` should be "
            f"replicated. Received: {config.tables}"
        )
    return make_plan(tables, plan_options(config, ranks))
