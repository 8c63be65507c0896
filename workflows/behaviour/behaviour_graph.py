"""The NVTabular graph: raw interactions -> one row a user, of ids.

Its function returns a node of the graph; a workflow of one's own may begin or go on there. Samples
are made of users' rows by :class:`~merlin_sim.dataloader.behaviour_samples.BehaviourSamples`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvtabular as nvt
import pandas as pd
from merlin.io import Dataset

from ...foundation.process_wide import quiet_merlin
from ..engine.workflow import TemporaryFiles, Workflow
from ..features.fitted_numbers import FittedNumbers
from ..operators.contract_ids import ContractIds
from ..operators.fill_users_features import FillUsersFeatures
from ..operators.fitted_features import FittedFeatures
from ..operators.group_histories import GroupHistories
from ..vocabularies.vocabulary import Vocabularies
from .behaviour_columns import BehaviourColumns
from .rules import SampleRules
from .split import PART, Split


def encode_histories(
    columns: BehaviourColumns,
    vocabularies: Vocabularies,
    encodings: Path | TemporaryFiles,
    rules: SampleRules | None = None,
    split: Split | None = None,
    fitted: FittedNumbers | None = None,
) -> nvt.WorkflowNode:
    """Raw interactions -> one row a user, keys encoded by NVTabular's Categorify.

    Args:
        columns: The log's columns.
        vocabularies: The keys and their ids.
        encodings: A directory in which Categorify may keep the keys in its own form; every
            worker has to see it.
        rules: Say in which order interactions of one time stand.
        split: Says of each interaction whose it is.
        fitted: What the operators of numbers have learned, where there are any.
    """
    encoded = [*columns.users, columns.item]
    keys = {name: vocabularies.keys(name) for name in encoded}
    numbers = (*columns.of_users, *columns.of_interactions)
    parts = () if split is None else split.columns
    interactions: Any = [*encoded, columns.timestamp, *columns.roles, *parts, *numbers]
    categorify = nvt.ops.Categorify(vocabs=keys, out_path=str(encodings), cat_cache="host")
    categorify.encodings = encodings  # temporary files last as long as their reader
    if columns.stored_of_users:
        interactions = interactions >> FillUsersFeatures(columns)
    if fitted is not None:
        interactions = interactions >> FittedFeatures(columns, fitted)
    grouped = interactions >> GroupHistories(columns, rules, split)
    beside = (
        *columns.roles,
        *columns.moments,
        *columns.times,
        *([PART] if split else []),
        *columns.of_interactions,
    )
    more, keys_beside = [*beside, *columns.of_users], columns.beside_items
    to_ids = ContractIds({columns.item: (*keys_beside, *beside)}, numbers, keys_beside)
    if not more:
        return grouped >> categorify >> to_ids
    codes = grouped[encoded] >> categorify
    return codes + grouped[more] >> to_ids


def fitted_workflow(node: nvt.WorkflowNode, example: pd.DataFrame) -> Workflow:
    """Make a workflow whose Categorify has its vocabularies from the start.

    NVTabular still asks for a ``fit``; one row of ``example`` is enough for it.
    """
    workflow = Workflow(node)
    with quiet_merlin():
        workflow.fit(Dataset(example, cpu=True if isinstance(example, pd.DataFrame) else None))
    return workflow
