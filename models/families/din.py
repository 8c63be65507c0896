"""DIN."""

from __future__ import annotations

from ...schemas.channels import (
    CONTEXT_FEATURES,
    NEGATIVE_HISTORY,
    POSITIVE_HISTORY,
    TARGET_ITEM_FEATURES,
    TARGET_ITEM_LISTS,
    TARGET_ITEM_NUMERICAL,
    USER_FEATURES,
    USER_NUMERICAL,
)
from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.options import DINOptions
from .family import Family, Request

LOSSES = ("total_loss", "classification_loss", "dien_aux_loss")
SERVED_IDS = (
    USER_FEATURES,
    CONTEXT_FEATURES,
    TARGET_ITEM_FEATURES,
    POSITIVE_HISTORY,
    TARGET_ITEM_LISTS,
)
SERVED = (*SERVED_IDS, USER_NUMERICAL, TARGET_ITEM_NUMERICAL)
LOOKED_UP = (*SERVED_IDS, NEGATIVE_HISTORY)
HELP = {
    "embedding_dim": "Length of the vector of one feature.",
    "stage_two_mlp_dims": "Hidden sizes of the classifier.",
    "dropout_rate": "Dropout of the classifiers, and of SIM's auxiliary network.",
    "history_counts": "Whether the classifier reads how often, how recently and at what share the "
    "target's features occur in the history.",
}
SUMS = "Whether the classifier reads attention without a softmax, too: sums beside means."

FAMILY = Family(
    name="din",
    contract=BEHAVIOUR.of("din"),
    options=DINOptions,
    model="merlin_sim.models.interest.din:DINModel",
    served=SERVED,
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help={
        **HELP,
        "attention": "DIN's attention: dot or activation_unit.",
        "attention_sums": SUMS,
    },
)
