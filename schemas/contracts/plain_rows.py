"""Datasets of plain rows: numbers and categories beside a label."""

from __future__ import annotations

from ..channel_contract import Channel, ChannelContract
from ..channels import CATEGORICAL, LABEL, LABEL_CHANNEL, NUMERICAL, signs

PLAIN_ROWS = ChannelContract(
    "plain rows",
    {
        LABEL: LABEL_CHANNEL,
        CATEGORICAL: Channel(
            fewest=1,
            is_categorical=True,
            tags=("categorical",),
            signs=signs("categorical"),
            missing="no column is tagged Tags.CATEGORICAL",
        ),
        NUMERICAL: Channel(fewest=0, tags=("continuous",), signs=signs("numerical", "continuous")),
    },
)
