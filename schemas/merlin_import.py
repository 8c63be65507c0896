"""Merlin's schema classes, imported without TensorFlow.

See :func:`~merlin_sim.foundation.process_wide.put_off_dtype_mappings`.
"""

from __future__ import annotations

from ..foundation.process_wide import put_off_dtype_mappings

put_off_dtype_mappings()

import merlin.dtypes as md  # noqa: E402
from merlin.dtypes.shape import Shape  # noqa: E402
from merlin.schema import ColumnSchema, Schema, Tags, TagSet  # noqa: E402
from merlin.schema.io.tensorflow_metadata import TensorflowMetadata  # noqa: E402

__all__ = ["ColumnSchema", "Schema", "Shape", "TagSet", "Tags", "TensorflowMetadata", "md"]
