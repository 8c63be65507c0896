"""A family of models: all that training, serving and the command line know of one."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any

from ..parallel.placement.plan import Table
from ..schemas.channels import LABEL, POSITIVE_HISTORY, TARGET_ITEM_FEATURES, ChannelContract


def tables_of(schema: Any, options: Any, names: Sequence[str]) -> list[Table]:
    """Return one table for each domain of some categorical columns."""
    columns = [schema[name] for name in names]
    widths = options.widths([column.name for column in columns])
    found: dict[str, Table] = {}
    for column, width in zip(columns, widths, strict=True):
        domain = column.int_domain
        name = str(domain.name or column.name)
        before = found[name].lookups if name in found else 0
        longest = int(column.value_count.max) if column.is_list else 1
        found[name] = Table(name, int(domain.max) + 1, width, before + longest)
    return list(found.values())


ATTENTION = "_attention"
"""After a table's name: the one by which items are searched and attended to, where that is not the
one that says what is taken of them."""

METRICS = ("auc", "exact_auc", "log_loss", "gauc", "calibration_error")
"""What is known of every family's test data, where the dataset identifies users."""


def described_by(options: type[Any]) -> dict[str, str]:
    """Return the docstrings under the fields of an options class, for the command line.

    >>> from .options import DINOptions
    >>> described_by(DINOptions)["attention"]
    'How a position is scored: "dot" or "activation_unit".'
    """
    found = {}
    for kind in reversed(options.__mro__):
        lines = _body(kind) if is_dataclass(kind) else []
        for field_, below in zip(lines, lines[1:], strict=False):
            if isinstance(field_, ast.AnnAssign) and isinstance(below, ast.Expr):
                text = " ".join(str(ast.literal_eval(below.value)).split())
                plain = re.sub(r":? see :\w+:`[^`]*`| \(:\w+:`[^`]*`\)", "", text)
                found[ast.unparse(field_.target)] = plain.replace("`", "")
    return found


def _body(kind: type[Any]) -> list[ast.stmt]:
    for node in _module(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node.body
    return []


@cache
def _module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[name]))


class Request(Enum):
    """Form of a served request."""

    EVENTS = "events"
    """A user with a history, and many candidates."""
    ROWS = "rows"
    """Plain rows, one value for each column."""


@dataclass(frozen=True)
class Preset:
    """A named set of settings and options, for what the published defaults are not made for."""

    values: Mapping[str, Any]
    """By name, as a config file has them; what is given besides a preset wins."""
    help: str
    """Its text on the command line."""
    with_validation: Mapping[str, Any] = field(default_factory=dict)
    """Further ones, for training on a dataset that has validation data."""


@dataclass(frozen=True)
class Family:
    """One family of models.

    The model class is a Keras model with ``from_schema(schema, **options)``, ``options`` (of the
    options class), ``compute_step(columns, labels, sample_weight, training)``, which gives the
    losses in the order of ``losses`` and the logits, ``forward(columns)``, whose ``logits`` are
    those of inference, ``get_config`` and ``from_config``. Where it takes batches of users x
    candidates, with ``history_end``, it has the class attribute ``takes_candidates = True``.
    """

    name: str
    """The name, as ``--model_type`` takes it."""
    contract: ChannelContract
    """The channels that its datasets have."""
    options: type[Any]
    """Frozen dataclass of the model's options, with ``parse`` and ``to_dict``."""
    model: str
    """The model's class, ``package.module:Class``; imported when a model is built."""
    served: tuple[str, ...]
    """The channels that inference reads."""
    request: Request
    """Form of a served request."""
    losses: tuple[str, ...] = ("total_loss",)
    """Names of the losses; the first is what is minimised."""
    metrics: tuple[str, ...] = METRICS
    """The metrics of test data that are logged, under these names after ``test_``."""
    looked_up: tuple[str, ...] = ()
    """The channels whose ids are looked up in tables that a plan may spread over ranks; all else
    that is trained is on every rank. Its options then give ``widths`` of vectors, and its model
    looks ids up with :class:`..blocks.embeddings.feature_embedding.FeatureEmbedding`."""
    large_operations: bool = False
    """Whether a step is a chain of large products: they are shared out among threads even where
    cores are few, as little else can be computed beside one."""
    compiles_after_lookups: bool = False
    """Whether XLA can compile what follows the lookups by itself, as spread tables need it."""
    counts_targets: bool = False
    """Whether training begins with counting how often each item is a sample's: the model then has
    ``take_target_counts(counts)``, by item id."""
    help: Mapping[str, str] = field(default_factory=dict)
    """An option's text on the command line."""
    presets: Mapping[str, Preset] = field(default_factory=dict)
    """Its presets by name."""

    def model_class(self) -> Any:
        """Import the model's class."""
        module, _, name = self.model.partition(":")
        return getattr(importlib.import_module(module), name)

    @property
    def takes_candidates(self) -> bool:
        """Whether the model takes batches of users x candidates; its class says so."""
        return bool(getattr(self.model_class(), "takes_candidates", False))

    @property
    def has_search(self) -> bool:
        """Whether the model searches a long history; its class says so."""
        return bool(getattr(self.model_class(), "has_search", False))

    @property
    def has_vectors(self) -> bool:
        """Whether the model makes vectors of users and items, for an index; its class says so."""
        return bool(getattr(self.model_class(), "has_vectors", False))

    def tables(self, schema: Any, options: Any) -> list[Table]:
        """Return the tables that a plan may spread over ranks."""
        if not self.looked_up:
            return []
        found = self.contract.require(schema, "The dataset")
        names = [name for channel in self.looked_up for name in found.get(channel, ())]
        tables = tables_of(schema, options, names)
        if getattr(options, "separate_attention", False):
            items = [*found[TARGET_ITEM_FEATURES], *found[POSITIVE_HISTORY]]
            own = tables_of(schema, options, items)
            tables += [replace(table, name=table.name + ATTENTION) for table in own]
        return tables

    def served_columns(self, channels: Mapping[str, list[str]], model: Any = None) -> list[str]:
        """Name the columns that inference reads, of a dataset's columns by channel.

        Those that a model's options leave out are left out where it says what it reads, by its
        attribute ``served_columns``.
        """
        found = [name for channel in self.served for name in channels.get(channel, ())]
        read = getattr(model, "served_columns", None)
        return [name for name in found if name in read] if read else found

    def label(self, channels: Mapping[str, list[str]]) -> str:
        """Name the label's column."""
        return channels[LABEL][0]
