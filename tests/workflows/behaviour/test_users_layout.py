"""One row per user: what is written, and that its samples are those of the other layout."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from fed_samples import assert_same_samples
from preprocess_runs import all_bytes

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory

OWN = ["train_end", "role", "same_time_before", "item_id"]
"""Names of columns that users' rows have beside the log's; those get another name then."""


def write_log(path):
    random = np.random.default_rng(3)
    rows = 450
    user, item = random.integers(0, 10, rows), random.integers(0, 120, rows)
    country = [f"c{u % 3}" for u in user]
    pd.DataFrame(
        {
            "who": [f"u{u}" for u in user],
            "what": [f"i{i}" for i in item],
            "when": np.cumsum(random.exponential(5e4, rows)).round(3),
            **dict.fromkeys(OWN, country),
            "kind": [f"k{i % 7}" for i in item],
            "brand": [f"b{i % 5}" for i in item],
        }
    ).to_csv(path, index=False)
    return [
        path, "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
        "--user_feature_columns", ",".join(OWN), "--item_feature_columns", "kind,brand",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_log_of_its_own_has_the_same_samples_in_both_layouts(run_cli, tmp_path):
    """Features of users and items, intervals to the bit, and negatives that the user has not."""
    log = write_log(tmp_path / "log.csv")
    (tmp_path / "features.yaml").write_text("time_intervals: days\ntimestamp_unit: s")
    samples, users = tmp_path / "samples", tmp_path / "users"
    options = (
        "--features", tmp_path / "features.yaml", "--max_sequence_length", 9, "--negatives",
        "uniform", "--negatives_per_positive", 3, "--negatives_not_in_history",
    )  # fmt: skip
    reported = []
    for path in (samples, users):
        words = ("--output_path", path, "--layout", path.name, *options)
        result = run_cli("preprocess", "log", *log, *words)
        assert result.exit_code == 0, result.output
        reported.append(result.output.partition("rows")[0])
    assert reported[0] == reported[1]
    assert assert_same_samples(users, samples) > 1000
    stored = pq.read_table(users / "users").to_pandas()
    lengths = stored["what"].map(len)
    assert lengths.max() > 30  # longer than a sample shows
    assert (stored["test_end"] == lengths).all() and (stored["test_begin"] == lengths - 1).all()
    assert (stored["train_begin"] == 1).all() and (stored["train_end_"] == lengths - 2).all()
    shown = run_cli("data", "spec", "show", users)
    assert "column when, in seconds; intervals in days" in " ".join(shown.output.split())
    rows = pd.concat([pd.read_parquet(samples / name) for name in ("train", "test")])
    assert np.concatenate(rows["when_since_pos"].to_numpy() % 1).any()  # parts of days
    taken, drawn = (
        set(rows.loc[rows.label == label, ["who", "what_trgt"]].itertuples(False, None))
        for label in (1, 0)
    )
    assert len(drawn) > 10 and not drawn & taken
    words = ("--output_path", tmp_path / "again", "--fitted", users, "--layout", "users")
    result = run_cli("preprocess", "log", log[0], *words)
    assert result.exit_code == 0, result.output
    assert DatasetDirectory.open(tmp_path / "again").users.negatives_not_in_history
    assert all_bytes(tmp_path / "again/users") == all_bytes(users / "users")


@pytest.mark.slow
def test_uniform_negatives_do_not_follow_popularity(run_cli, tmp_path):
    rows = 2000
    item = np.where(np.arange(rows) % 20, 0, np.arange(rows) // 20 % 10 + 1)
    frame = pd.DataFrame({"who": np.arange(rows) % 40, "what": item, "when": np.arange(rows)})
    frame.to_csv(tmp_path / "log.csv", index=False)
    result = run_cli(
        "preprocess", "log", tmp_path / "log.csv", "--output_path", tmp_path / "uniform",
        "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
        "--negatives", "uniform",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    drawn = np.concatenate(pd.read_parquet(tmp_path / "uniform/train")["what_neg"])
    assert np.mean(drawn == 1) == pytest.approx(1 / 11, abs=0.02)


def test_padding_is_refused_for_users(run_cli, tmp_path):
    log = write_log(tmp_path / "log.csv")
    result = run_cli(
        "preprocess", "log", *log, "--output_path", tmp_path / "made", "--layout", "users", "--pad"
    )
    assert isinstance(result.exception, MerlinSimError)
    assert "`pad` is of the samples layout" in str(result.exception)
    assert not (tmp_path / "made").exists()
