"""Numbers become logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvtabular.ops import Operator

from ..engine.backend import new_frame


class LogNumbers(Operator):
    """log(x + 3) of a number, 0 of one that is missing.

    >>> import pandas as pd
    >>> from nvtabular import ColumnSelector
    >>> numbers = pd.DataFrame({"clicks": [-2.0, float("nan"), 0.0]})
    >>> logarithms = LogNumbers().transform(ColumnSelector(["clicks"]), numbers)["clicks"]
    >>> [f"{value:.4f}" for value in logarithms]
    ['0.0000', '0.0000', '1.0986']

    Args:
        added: What is added to x.
    """

    def __init__(self, added: float = 3.0) -> None:
        """Store the argument."""
        super().__init__()
        self.added = added

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Transform one partition."""
        columns = {}
        for name in col_selector.names:
            logarithms = np.log(df[name].values.astype("float32") + np.float32(self.added))
            columns[name] = np.nan_to_num(logarithms, copy=False)
        return new_frame(columns, like=df)
