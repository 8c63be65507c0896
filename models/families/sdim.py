"""SDIM."""

from __future__ import annotations

from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.long_options import SDIMOptions
from .din import LOOKED_UP, LOSSES, SERVED
from .family import Family, Request
from .sim import HELP

FAMILY = Family(
    name="sdim",
    contract=BEHAVIOUR.of("sdim"),
    options=SDIMOptions,
    model="merlin_sim.models.interest.sdim:SDIMModel",
    served=SERVED,
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help={
        **HELP,
        "hashes": "Hashes of a position in SDIM.",
        "bits_per_hash": "Signs of one hash in SDIM.",
        "collision_counts": "Whether SDIM's classifier reads how much collides.",
    },
)
