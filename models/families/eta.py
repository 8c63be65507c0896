"""ETA."""

from __future__ import annotations

from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.long_options import ETAOptions
from .din import LOOKED_UP, LOSSES, SERVED
from .family import Family, Request
from .sim import HELP

FAMILY = Family(
    name="eta",
    contract=BEHAVIOUR.of("eta"),
    options=ETAOptions,
    model="merlin_sim.models.interest.eta:ETAModel",
    served=SERVED,
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help={
        **HELP,
        "hash_bits": "Signs of a position's code in ETA's search.",
    },
)
