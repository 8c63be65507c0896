"""The families by name: the package's own, and those of one's own. No TensorFlow is loaded."""

from __future__ import annotations

import importlib
from dataclasses import fields, replace
from functools import cache
from typing import Any

from ..foundation.exceptions import MerlinSimError
from ..schemas.channels import (
    BEHAVIOUR,
    CATEGORICAL,
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    NEGATIVE_HISTORY,
    NUMERICAL,
    PLAIN_ROWS,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
    register_contract,
)
from .family import Family, Preset, Request, described_by
from .options import (
    DCNv2Options,
    DIENOptions,
    DINOptions,
    DLRMOptions,
    ETAOptions,
    SDIMOptions,
    SIMOptions,
    STCAOptions,
    TWINOptions,
    TwoTowerOptions,
)

DEFAULT = "sim"
"""The family of a run that names none."""

SERVED_IDS = (
    USER_FEATURES,
    CONTEXT_FEATURES,
    TARGET_ITEM_FEATURES,
    POSITIVE_HISTORY,
    TARGET_ITEM_LISTS,
)
SERVED = (*SERVED_IDS, USER_NUMERICAL, TARGET_ITEM_NUMERICAL)
SERVED_WITH_TIMES = (*SERVED, HISTORY_TIME_INTERVALS)

LIFELONG = Preset(
    {
        "history_counts": True,
        "attention_sums": True,
        "dropout_rate": 0.4,
        "lr": 0.004,
        "table_lr_scale": 0.2,
        "table_weight_decay": 0.0008,
    },
    "SIM that reads how often and how recently, with dropout, slow tables, and a batch and a rate "
    "for the dataset's size; it stops early where data validate. The default of datasets that "
    "`preprocess log` made.",
    with_validation={"early_stopping": 1, "epochs": 10},
)


def _of_interest(name: str, options: type[Any], module: str, **kwargs: Any) -> Family:
    """Make a family of DIN's kin: SIM's frame, with what it reads and what it is trained on."""
    kept: dict[str, Any] = {
        "served": SERVED,
        "losses": ("total_loss", "classification_loss", "dien_aux_loss"),
        **kwargs,
    }
    return Family(
        name=name,
        contract=BEHAVIOUR.of(name),
        options=options,
        model=f"merlin_sim.models.{module}",
        looked_up=(*SERVED_IDS, NEGATIVE_HISTORY),
        request=Request.EVENTS,
        help=described_by(options),
        **kept,
    )


def _of_ranking(name: str, options: type[Any], model: str) -> Family:
    return Family(
        name=name,
        contract=PLAIN_ROWS.of(name),
        options=options,
        model=f"merlin_sim.models.ranking:{model}",
        served=(CATEGORICAL, NUMERICAL),
        looked_up=(CATEGORICAL,),
        request=Request.ROWS,
        metrics=("auc", "exact_auc", "log_loss", "calibration_error"),
        large_operations=True,
        compiles_after_lookups=True,
        help=described_by(options),
    )


OWN = (
    _of_interest("din", DINOptions, "din:DINModel"),
    _of_interest("dien", DIENOptions, "dien:DIENModel"),
    _of_interest(
        "sim",
        SIMOptions,
        "sim:SIMModel",
        served=SERVED_WITH_TIMES,
        presets={"lifelong": LIFELONG},
    ),
    _of_interest("eta", ETAOptions, "long_models:ETAModel"),
    _of_interest("sdim", SDIMOptions, "long_models:SDIMModel"),
    _of_interest("twin", TWINOptions, "long_models:TWINModel", served=SERVED_WITH_TIMES),
    _of_interest("stca", STCAOptions, "stca:STCAModel", served=SERVED_WITH_TIMES),
    Family(
        name="two_tower",
        contract=BEHAVIOUR.of("two_tower"),
        options=TwoTowerOptions,
        model="merlin_sim.models.towers:TwoTowerModel",
        served=SERVED,
        looked_up=SERVED_IDS,
        request=Request.EVENTS,
        metrics=("auc", "exact_auc", "gauc"),
        counts_targets=True,
        help=described_by(TwoTowerOptions),
    ),
    _of_ranking("dlrm", DLRMOptions, "DLRMModel"),
    _of_ranking("dcnv2", DCNv2Options, "DCNv2Model"),
)
"""The package's own families; a further one is one more entry, or a family of one's own."""


@cache
def families() -> dict[str, Family]:
    """Return the package's own families, the plainest first: name -> family.

    Their channels are made known.
    """
    found = sorted(OWN, key=lambda family: (len(fields(family.options)), family.name))
    for family in found:
        register_contract(family.name, family.contract)
    return {family.name: family for family in found}


def presets() -> dict[str, Preset]:
    """Return the presets of all families; each one's values name its family too."""
    return {
        name: replace(preset, values={"model_type": family.name, **preset.values})
        for family in families().values()
        for name, preset in family.presets.items()
    }


def find_family(name: str) -> Family:
    """Return the family of this name.

    Args:
        name: of a registered family, or ``package.module:NAME`` of one's own: whatever stands
            there must be a :class:`~.family.Family`. Its channels are made known.
    """
    if ":" in name:
        return _own_family(name)
    if name not in families():
        known = ", ".join(families())
        raise MerlinSimError(
            f"`model_type` should be one of {known}, or package.module:FAMILY. Received: {name!r}"
        )
    return families()[name]


def _own_family(name: str) -> Family:
    module, _, attribute = name.partition(":")
    try:
        family = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise MerlinSimError(f"`model_type` = {name}: cannot be imported: {error}") from error
    if not isinstance(family, Family):
        raise MerlinSimError(
            f"`model_type` = {name}: should be a merlin_sim.models.family.Family. "
            f"Received: {type(family).__name__}"
        )
    register_contract(family.name, family.contract)
    return family
