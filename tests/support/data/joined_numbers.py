"""Numbers of users that NVTabular's operators make of other columns, with files of their own."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest

USERS = [f"u{number}" for number in range(8)] + [f"u{number:02d}" for number in range(50)]

JOINED = [
    pytest.param(
        lambda out: ["user"] >> nvt.ops.JoinGroupby(["price"], ["mean"], out_path=out),
        "user_price_mean",
        id="JoinGroupby",
    ),
    pytest.param(
        lambda out: ["user"] >> nvt.ops.TargetEncoding("clicked", kfold=1, out_path=out),
        "TE_user_clicked",
        id="TargetEncoding",
    ),
    pytest.param(
        lambda out: (
            ["user"]
            >> nvt.ops.JoinExternal(
                pd.DataFrame({"user": USERS, "age": np.arange(float(len(USERS)))}), on=["user"]
            )
        ),
        "age",
        id="JoinExternal",
    ),
]
"""What makes the number, given a folder for files, and what it is called."""
