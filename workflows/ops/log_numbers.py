"""Numbers become logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvtabular.ops import Operator

from ...foundation.exceptions import UnfitNumberError
from ..engine.backend import new_frame
from .registry import register


@register
class LogNumbers(Operator):
    """log(x + 3) of a number, 0 of one that is missing; one without a logarithm is refused.

    NVTabular's LogOp adds 1, and makes NaN or minus infinity of what has no logarithm then.

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

    @property
    def output_dtype(self) -> Any:
        """The type of what comes out."""
        return np.float32

    def get_config(self) -> dict[str, float]:
        """Give the arguments that make the operator again."""
        return {"added": self.added}

    def transform(self, col_selector: Any, df: Any) -> Any:
        """Transform one partition."""
        columns = {}
        for name in col_selector.names:
            numbers = df[name].values.astype("float32")
            with np.errstate(divide="ignore", invalid="ignore"):
                logarithms = np.log(numbers + np.float32(self.added))
            unfit = ~(np.isfinite(logarithms) | np.isnan(numbers))
            if unfit.any():
                raise UnfitNumberError(
                    f"{name!r}: expected finite numbers above {-self.added:g}, as log(x + "
                    f"{self.added:g}) is taken of them, or none. Received: "
                    f"{float(numbers[unfit][0]):g}."
                )
            columns[name] = np.nan_to_num(logarithms, copy=False)
        return new_frame(columns, like=df)
