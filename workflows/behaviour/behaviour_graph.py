"""The NVTabular graph: raw interactions -> histories of ids -> samples.

Each function returns a node of the graph; a workflow of one's own may begin, end or branch at
any of them. Put together they are one ``nvtabular.Workflow`` from a log to samples. Large runs
cut it at the histories, to scatter the rows of all users over all files (see ``write_samples``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nvtabular as nvt
import pandas as pd
from merlin.io import Dataset
from merlin.schema import Schema

from ...foundation.exceptions import MerlinSimError
from ...foundation.process_wide import quiet_merlin
from ..engine.workflow import TemporaryFiles, Workflow
from ..features.fitted_numbers import FittedNumbers
from ..features.item_values import ItemValues
from ..operators.contract_ids import ContractIds
from ..operators.draw_negatives import DrawNegatives
from ..operators.emit_dataset import EmitDataset
from ..operators.encode_by_time import EncodeByTime
from ..operators.explode_histories import ExplodeHistories
from ..operators.fill_users_features import FillUsersFeatures
from ..operators.fitted_features import FittedFeatures
from ..operators.group_histories import GroupHistories
from ..operators.hash_crosses import HashCrosses
from ..operators.look_up_item_features import LookUpItemFeatures
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


def explode_histories(
    histories: Any, columns: BehaviourColumns, rules: SampleRules, mapping: str
) -> nvt.WorkflowNode:
    """Histories -> one row for each interaction to predict, in ``"train"`` or ``"test"``."""
    return histories >> ExplodeHistories(
        columns,
        mapping,
        longest=rules.max_sequence_length,
        least_before=rules.shortest_sequence_for_training,
        split=rules.split,
        validates=rules.validates_last,
        feature_values=rules.feature_values,
    )


def make_samples(
    prefixes: Any,
    columns: BehaviourColumns,
    rules: SampleRules,
    vocabularies: Vocabularies,
    schema: Schema,
    events: tuple[Path, FittedNumbers] | None = None,
    values: ItemValues | None = None,
    *,
    follows_log: bool = False,
) -> nvt.WorkflowNode:
    """Interactions to predict -> positives and negative twins, as the dataset has them.

    ``values`` are those of items' features that change: each sample gets what was known at its
    time. Without them it gets what the vocabulary of items says, the last known ones.
    ``events`` are what counts and shares before each sample are counted in. Without them they are
    the totals of the log that was fitted on, and ``follows_log`` says that all interactions are
    later than that log.

    Raises:
        MerlinSimError: Where there is neither: totals would tell samples their own label.
    """
    if columns.features.encodings and events is None and not follows_log:
        raise MerlinSimError(
            "`encodings` of what came before each sample need `events`; the totals of a whole log "
            "hold each sample's own label. Received: `events` = None. For interactions that are "
            "later than the log that was fitted on, use `FittedWorkflow.samples`, which looks at "
            "their times, or say `follows_log=True`."
        )
    items = vocabularies.items(columns.item)
    by_time = events is not None
    drawing = DrawNegatives(
        columns, items, rules.seed, rules.drawn_by, rules.twins, moments=by_time
    )
    node = prefixes >> drawing >> LookUpItemFeatures(columns, items, values)
    if events is not None:
        node = node >> EncodeByTime(columns, items, *events)
    if columns.features.crosses:
        node = node >> HashCrosses(columns)
    return node >> EmitDataset(schema, rules.pad)


def fitted_workflow(node: nvt.WorkflowNode, example: pd.DataFrame) -> Workflow:
    """Make a workflow whose Categorify has its vocabularies from the start.

    NVTabular still asks for a ``fit``; one row of ``example`` is enough for it.
    """
    workflow = Workflow(node)
    with quiet_merlin():
        workflow.fit(Dataset(example, cpu=True if isinstance(example, pd.DataFrame) else None))
    return workflow
