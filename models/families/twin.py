"""TWIN."""

from __future__ import annotations

from ...schemas.channels import HISTORY_TIME_INTERVALS
from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.long_options import TWINOptions
from .din import LOOKED_UP, LOSSES, SERVED
from .family import Family, Request
from .sim import HELP

FAMILY = Family(
    name="twin",
    contract=BEHAVIOUR.of("twin"),
    options=TWINOptions,
    model="merlin_sim.models.interest.twin:TWINModel",
    served=(*SERVED, HISTORY_TIME_INTERVALS),
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help=HELP,
)
