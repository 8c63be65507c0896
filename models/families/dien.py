"""DIEN."""

from __future__ import annotations

from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.options import DIENOptions
from .din import HELP as DIN_HELP
from .din import LOOKED_UP, LOSSES, SERVED
from .family import Family, Request

HELP = {
    **DIN_HELP,
    "aux_mlp_dims": "Hidden sizes of the auxiliary network.",
    "auxiliary_loss": "Whether the auxiliary loss is trained; false for a dataset without negative "
    "histories.",
    "one_pass": "One pass of the GRU over all short histories of a user's samples in a row of a "
    "batch, of a dataset of users; as published it starts from zero at each.",
    "long_seq_length": "Positions of the history that are the long one; none: all but the newest "
    "10 (published: 90 of 100).",
}

FAMILY = Family(
    name="dien",
    contract=BEHAVIOUR.of("dien"),
    options=DIENOptions,
    model="merlin_sim.models.interest.dien:DIENModel",
    served=SERVED,
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help=HELP,
)
