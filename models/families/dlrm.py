"""DLRM."""

from __future__ import annotations

from ...schemas.channels import CATEGORICAL, NUMERICAL
from ...schemas.contracts.plain_rows import PLAIN_ROWS
from ..ranking.options import DLRMOptions
from .family import Family, Request

SERVED = (CATEGORICAL, NUMERICAL)
HELP = {
    "embedding_dim": "Length of the vector of one feature.",
    "bottom_mlp_dims": "Sizes of the layers over the numerical features.",
    "top_mlp_dims": "Sizes of the layers over everything; the last is 1, the logit.",
}

FAMILY = Family(
    name="dlrm",
    contract=PLAIN_ROWS.of("dlrm"),
    options=DLRMOptions,
    model="merlin_sim.models.ranking.dlrm:DLRMModel",
    served=SERVED,
    looked_up=(CATEGORICAL,),
    request=Request.ROWS,
    metrics=("auc", "exact_auc", "log_loss", "calibration_error"),
    large_operations=True,
    compiles_after_lookups=True,
    help=HELP,
)
