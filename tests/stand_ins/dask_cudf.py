"""Stands in for dask_cudf 24.12 where there is no GPU: Dask's frames, of the stand-in for cudf."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import pyarrow as pa
import stand_in
from dask.dataframe.core import get_parallel_type
from dask.dataframe.dispatch import make_meta_dispatch, make_meta_obj

cudf = stand_in.load("cudf")


class DataFrame(dd.core.DataFrame):
    """A frame in partitions."""

    _partition_type = cudf.DataFrame

    def _is_partition_type(self, meta: Any) -> bool:
        return isinstance(meta, cudf.DataFrame)  # Dask would look for methods that nobody calls


@get_parallel_type.register(cudf.DataFrame)
def _parallel_type(_: Any) -> type:
    return DataFrame


@make_meta_dispatch.register(cudf.DataFrame)
def _make_meta(frame: Any, index: Any = None) -> Any:
    return frame.iloc[:0]


@make_meta_obj.register(cudf.DataFrame)
def _make_meta_of(dtypes: dict[str, Any], index: Any = None) -> Any:
    columns = {name: pa.array([], pa.from_numpy_dtype(dtype)) for name, dtype in dtypes.items()}
    return cudf.DataFrame.from_arrow(pa.table(columns))


def from_cudf(
    data: Any, npartitions: int | None = None, chunksize: Any = None, sort: bool = True
) -> DataFrame:
    return dd.from_map(lambda _: data, [0], meta=data.iloc[:0], enforce_metadata=False)
