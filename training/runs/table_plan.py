"""The plan by which a run spreads its tables over ranks."""

from __future__ import annotations

from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from ...models.families.registry import find_family
from ...placement.plan import Plan
from ...placement.planner import FOR_TABLES, Wanted, make_plan
from ...placement.sizes import parse_size
from ...schemas.dataset import DatasetDirectory
from .run_config import RunConfig


def plan_of(
    config: RunConfig, dataset: DatasetDirectory, options: dict[str, Any], ranks: Ranks
) -> Plan:
    """Make the plan that ``merlin-sim plan`` shows.

    Args:
        config: of the run.
        dataset: opened.
        options: of the model, by name.
        ranks: the run.

    Raises:
        MerlinSimError: where the family has no tables that can be spread, or they do not fit.
    """
    family = find_family(str(config.model_type))
    tables = family.tables(dataset.schema, family.options.parse(options))
    if not tables:
        raise MerlinSimError(
            f"{family.name} has no tables that can be spread over ranks: `tables` should be "
            f"replicated. Received: {config.tables}"
        )
    memory = None if config.memory is None else FOR_TABLES * parse_size(config.memory)
    wanted = Wanted(ranks.size, config.global_batch_size, config.optimizer, memory, config.cut)
    return make_plan(tables, wanted)
