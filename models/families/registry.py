"""The families by name: the package's own, and those of one's own. No TensorFlow is loaded."""

from __future__ import annotations

import importlib
from dataclasses import fields, replace
from functools import cache
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...schemas.channels import (
    CATEGORICAL,
    CONTEXT_FEATURES,
    HISTORY_TIME_INTERVALS,
    NEGATIVE_HISTORY,
    NUMERICAL,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
)
from ...schemas.contracts.behaviour import BEHAVIOUR
from ...schemas.contracts.known_contracts import register_contract
from ...schemas.contracts.plain_rows import PLAIN_ROWS
from ..options import (
    DCNv2Options,
    DIENOptions,
    DINOptions,
    DLRMOptions,
    ETAOptions,
    SDIMOptions,
    SIMOptions,
    TWINOptions,
    TwoTowerOptions,
)
from .family import Family, Preset, Request

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

EMBEDDING_DIM = {"embedding_dim": "Length of the vector of one feature."}
SUMS = {
    "attention_sums": "Whether the classifier reads attention without a softmax, too: sums beside "
    "means."
}
OF_ALL = {
    **EMBEDDING_DIM,
    "stage_two_mlp_dims": "Hidden sizes of the classifier.",
    "dropout_rate": "Dropout of the classifiers, and of SIM's auxiliary network.",
    "history_counts": "Whether the classifier reads how often, how recently and at what share the "
    "target's features occur in the history.",
}
OF_DIEN = {
    **OF_ALL,
    "aux_mlp_dims": "Hidden sizes of the auxiliary network.",
    "auxiliary_loss": "Whether the auxiliary loss is trained; false for a dataset without negative "
    "histories.",
    "one_pass": "One pass of the GRU over all short histories of a user's samples in a row of a "
    "batch, of a dataset of users; as published it starts from zero at each.",
    "long_seq_length": "Positions of the history that are the long one; none: all but the newest "
    "10 (published: 90 of 100).",
}
OF_SEARCHED = {
    **OF_DIEN,
    "stage_one": "Whether a first stage over the whole long history is trained too. ETA, SDIM and "
    "TWIN: false.",
    "stage_one_mlp_dims": "Hidden sizes of the first stage's classifier.",
    "short_history": "How the short history is read: dien, attention or none. ETA, SDIM and TWIN: "
    "attention.",
    **SUMS,
    "top_k": "Positions that a search keeps. ETA: 48, TWIN: 100.",
    "search": "SIM's search: soft (learned) or hard (same category).",
    "category_feature": "Target feature by which a hard search goes.",
    "heads": "Heads of the attention to what was found; none: SIM's by the dot product. ETA, SDIM "
    "and TWIN: 4, of the short history's too.",
    "time_buckets": "Buckets of the time intervals, if the data has any.",
}
OF_RANKING = {
    **EMBEDDING_DIM,
    "bottom_mlp_dims": "Sizes of the layers over the numerical features.",
    "top_mlp_dims": "Sizes of the layers over everything; the last is 1, the logit.",
}
LIFELONG = Preset(
    {
        "history_counts": True,
        "dropout_rate": 0.4,
        "lr": 0.008,
        "table_weight_decay": 0.004,
    },
    "SIM that reads how often and how recently, with dropout, and a batch and a learning rate for "
    "the dataset's size; it stops early where data validate. The default of datasets that "
    "`preprocess log` made.",
    with_validation={"early_stopping": 1, "epochs": 10},
)


def _of_interest(name: str, options: type[Any], place: str, **kwargs: Any) -> Family:
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
        model=f"merlin_sim.models.interest.{place}",
        looked_up=(*SERVED_IDS, NEGATIVE_HISTORY),
        request=Request.EVENTS,
        **kept,
    )


def _of_ranking(name: str, options: type[Any], model: str, help: dict[str, str]) -> Family:
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
        help=help,
    )


OWN = (
    _of_interest(
        "din",
        DINOptions,
        "din:DINModel",
        help={**OF_ALL, "attention": "DIN's attention: dot or activation_unit.", **SUMS},
    ),
    _of_interest("dien", DIENOptions, "dien:DIENModel", help=OF_DIEN),
    _of_interest(
        "sim",
        SIMOptions,
        "sim:SIMModel",
        served=SERVED_WITH_TIMES,
        help=OF_SEARCHED,
        presets={"lifelong": LIFELONG},
    ),
    _of_interest(
        "eta",
        ETAOptions,
        "long_models:ETAModel",
        help={**OF_SEARCHED, "hash_bits": "Signs of a position's code in ETA's search."},
    ),
    _of_interest(
        "sdim",
        SDIMOptions,
        "long_models:SDIMModel",
        help={
            **OF_SEARCHED,
            "hashes": "Hashes of a position in SDIM.",
            "bits_per_hash": "Signs of one hash in SDIM.",
            "collision_counts": "Whether SDIM's classifier reads how much collides.",
        },
    ),
    _of_interest(
        "twin", TWINOptions, "long_models:TWINModel", served=SERVED_WITH_TIMES, help=OF_SEARCHED
    ),
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
        help={
            **EMBEDDING_DIM,
            "tower_dim": "Length of a user's and of an item's vector, of two towers.",
            "tower_mlp_dims": "Hidden sizes of each of two towers.",
            "history_weightings": "Weighted means of the history that the user's tower reads.",
            "temperature": "What the cosine of two towers' vectors is divided by.",
        },
    ),
    _of_ranking("dlrm", DLRMOptions, "DLRMModel", OF_RANKING),
    _of_ranking(
        "dcnv2",
        DCNv2Options,
        "DCNv2Model",
        {
            **OF_RANKING,
            "embedding_dims": "Lengths of the vectors, feature by feature.",
            "cross_layers": "How many cross layers.",
            "cross_rank": "Length to which a cross layer brings its inputs in between.",
        },
    ),
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

    Raises:
        MerlinSimError: where there is none.
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
            f"`model_type` = {name}: should be a merlin_sim.models.families.family.Family. "
            f"Received: {type(family).__name__}"
        )
    register_contract(family.name, family.contract)
    return family
