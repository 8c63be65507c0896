"""DCNv2."""

from __future__ import annotations

from ...schemas.channels import CATEGORICAL
from ...schemas.contracts.plain_rows import PLAIN_ROWS
from ..ranking.options import DCNv2Options
from .dlrm import HELP, SERVED
from .family import Family, Request

FAMILY = Family(
    name="dcnv2",
    contract=PLAIN_ROWS.of("dcnv2"),
    options=DCNv2Options,
    model="merlin_sim.models.ranking.dcnv2:DCNv2Model",
    served=SERVED,
    looked_up=(CATEGORICAL,),
    request=Request.ROWS,
    metrics=("auc", "exact_auc", "log_loss", "calibration_error"),
    large_operations=True,
    compiles_after_lookups=True,
    help={
        **HELP,
        "embedding_dims": "Lengths of the vectors, feature by feature.",
        "cross_layers": "How many cross layers.",
        "cross_rank": "Length to which a cross layer brings its inputs in between.",
    },
)
