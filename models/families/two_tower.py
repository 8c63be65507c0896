"""Two towers, for retrieval."""

from __future__ import annotations

from ...schemas.contracts.behaviour import BEHAVIOUR
from ..towers.options import TwoTowerOptions
from .din import HELP as DIN_HELP
from .din import SERVED, SERVED_IDS
from .family import Family, Request

FAMILY = Family(
    name="two_tower",
    contract=BEHAVIOUR.of("two_tower"),
    options=TwoTowerOptions,
    model="merlin_sim.models.towers.two_tower_model:TwoTowerModel",
    served=SERVED,
    looked_up=SERVED_IDS,
    request=Request.EVENTS,
    metrics=("auc", "exact_auc", "gauc"),
    counts_targets=True,
    help={
        "embedding_dim": DIN_HELP["embedding_dim"],
        "tower_dim": "Length of a user's and of an item's vector, of two towers.",
        "tower_mlp_dims": "Hidden sizes of each of two towers.",
        "history_weightings": "Weighted means of the history that the user's tower reads.",
        "temperature": "What the cosine of two towers' vectors is divided by.",
    },
)
