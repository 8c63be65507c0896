"""SIM."""

from __future__ import annotations

from ...schemas.channels import HISTORY_TIME_INTERVALS
from ...schemas.contracts.behaviour import BEHAVIOUR
from ..interest.options import SIMOptions
from .dien import HELP as DIEN_HELP
from .din import LOOKED_UP, LOSSES, SERVED, SUMS
from .family import Family, Preset, Request

HELP = {
    **DIEN_HELP,
    "stage_one": "Whether a first stage over the whole long history is trained too. ETA, SDIM and "
    "TWIN: false.",
    "stage_one_mlp_dims": "Hidden sizes of the first stage's classifier.",
    "short_history": "How the short history is read: dien, attention or none. ETA, SDIM and TWIN: "
    "attention.",
    "attention_sums": SUMS,
    "top_k": "Positions that a search keeps. ETA: 48, TWIN: 100.",
    "search": "SIM's search: soft (learned) or hard (same category).",
    "category_feature": "Target feature by which a hard search goes.",
    "heads": "Heads of the attention to what was found; none: SIM's by the dot product. ETA, SDIM "
    "and TWIN: 4, of the short history's too.",
    "time_buckets": "Buckets of the time intervals, if the data has any.",
}

FAMILY = Family(
    name="sim",
    contract=BEHAVIOUR.of("sim"),
    options=SIMOptions,
    model="merlin_sim.models.interest.sim:SIMModel",
    served=(*SERVED, HISTORY_TIME_INTERVALS),
    looked_up=LOOKED_UP,
    request=Request.EVENTS,
    losses=LOSSES,
    help=HELP,
    presets={
        "lifelong": Preset(
            {
                "history_counts": True,
                "dropout_rate": 0.4,
                "lr": 0.008,
                "table_weight_decay": 0.004,
            },
            "SIM that reads how often and how recently, with dropout, and a batch and a learning "
            "rate for the dataset's size; it stops early where data validate. The default of "
            "datasets that `preprocess log` made.",
            with_validation={"early_stopping": 1, "epochs": 10},
        )
    },
)
