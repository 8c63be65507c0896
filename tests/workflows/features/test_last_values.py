"""An item has what was known of it last; of interactions of one time the last in the log."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from feature_logs import write_features

pytestmark = pytest.mark.slow


def log_of(rows):
    return pd.DataFrame(rows, columns=["who", "what", "when", "brand", "price"])


TIED = [
    *(("u1", "a", 1, "z", 9.0), ("u2", "a", 1, "k", 3.0), ("u1", "a", 1, "b", 5.0)),
    *(("u1", "b", 5, "z", 9.0), ("u2", "b", 5, "a", np.nan)),
    *(("u2", "c", 7, "late", 2.0), ("u3", "c", 6, "early", 8.0), ("u3", "b", 4, "old", 1.0)),
]
EXPECTED = {"a": ("b", 5), "b": ("a", 9), "c": ("late", 2)}


@pytest.mark.parametrize("kind", ["csv", "files", "groups"])
def test_the_last_in_the_log_decides(kind, run_cli, tmp_path, monkeypatch):
    from merlin_sim.workflows.preprocess import preprocess_log

    if kind == "groups":  # several buckets: users of one item stand apart
        monkeypatch.setattr(preprocess_log, "number_of_buckets", lambda size: 5)
    text = "features: {price: {type: number, of: item, operators: [{FillMissing: {fill_val: -1}}]}}"
    features = write_features(tmp_path / "features.yaml", text)
    log, files = log_of(TIED), [tmp_path / "a.parquet"]
    if kind == "csv":
        files = [tmp_path / "a.csv"]
        log.to_csv(files[0], index=False)
    elif kind == "files":
        files.append(tmp_path / "b.parquet")
        for file, part in zip(files, (log[:2], log[2:]), strict=True):
            part.to_parquet(file)
    else:
        log.to_parquet(files[0], row_group_size=1 if kind == "groups" else None)
    result = run_cli(
        *("preprocess", "log", *files, "--output_path", tmp_path / "d", "--features", features),
        *("--user_column", "who", "--item_column", "what", "--timestamp_column", "when"),
        *("--item_feature_columns", "brand", "--shortest_sequence_for_user", 1),
        *("--scheduler", "single", "--order_of_equal_times", "log", "--validation", "none"),
        *("--fit_on", "all"),
    )
    assert result.exception is None, result.output
    items = pd.read_parquet(tmp_path / "d/categories/what.parquet").set_index("key")
    brands = pd.read_parquet(tmp_path / "d/categories/brand.parquet").set_index("id")["key"]
    found = {key: (brands[row["brand"]], row["price"]) for key, row in items.iterrows()}
    assert found == EXPECTED
