"""SIM."""

from __future__ import annotations

from ...schemas.channels import CONTRACTS, HISTORY_TIME_INTERVALS
from ..interest.options import SIMOptions
from .dien import HELP
from .din import LOSSES, SERVED
from .family import Family, Request

FAMILY = Family(
    name="sim",
    contract=CONTRACTS["sim"],
    options=SIMOptions,
    model="merlin_sim.models.interest.sim:SIMModel",
    served=(*SERVED, HISTORY_TIME_INTERVALS),
    request=Request.EVENTS,
    takes_candidates=True,
    losses=LOSSES,
    help={
        **HELP,
        "stage_one_mlp_dims": "Hidden sizes of SIM's first classifier.",
        "top_k": "Positions that SIM's search keeps.",
        "search": "SIM's search: soft (learned) or hard (same category).",
        "category_feature": "Target feature by which a hard search goes.",
        "heads": "Heads of SIM's second attention; none: DIN's attention.",
        "time_buckets": "Buckets of the time intervals, if the data has any.",
    },
)
