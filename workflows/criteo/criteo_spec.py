"""What a dataset of click logs is, as its feature spec says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...schemas.channels import CATEGORICAL, LABEL, NUMERICAL
from ...schemas.specs.feature_spec import Chunk, Feature, FeatureSpec
from .criteo_columns import COLUMNS, KEY_COLUMNS, LABEL_COLUMN, NUMBER_COLUMNS

LABEL_DTYPE, ID_DTYPE, NUMBER_DTYPE = "int8", "int32", "float32"


def criteo_spec(kept: Mapping[str, int], files: Mapping[str, Sequence[str]]) -> FeatureSpec:
    """Describe the dataset.

    Args:
        kept: How many keys of each column have an id of their own; id 0 comes to that.
        files: Mapping -> parquet files, relative to the dataset directory.
    """
    features = {LABEL_COLUMN: Feature(LABEL_DTYPE)}
    features |= {name: Feature(ID_DTYPE, kept[name] + 1) for name in KEY_COLUMNS}
    features |= {name: Feature(NUMBER_DTYPE) for name in NUMBER_COLUMNS}
    return FeatureSpec(
        feature_spec=features,
        source_spec={
            mapping: (Chunk("parquet", COLUMNS, tuple(names)),) for mapping, names in files.items()
        },
        channel_spec={
            LABEL: (LABEL_COLUMN,),
            CATEGORICAL: KEY_COLUMNS,
            NUMERICAL: NUMBER_COLUMNS,
        },
    )
