"""Numbers of which their operators make none: bad rows, wherever they come from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from feature_logs import write_features

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

PRICE = "{price: {type: number, of: interaction, operators: [%s], lags: [1]}}"
LOGARITHM, LEARNED = PRICE % "LogOp", PRICE % "Normalize, LogOp"
LEARNED_LINE = "line 10: 'price': expected a number of which Normalize, LogOp makes a finite one"


@pytest.fixture
def run(preprocess_log, tmp_path):
    def run(log, features, *more, output="dataset"):
        write_features(tmp_path / "features.yaml", f"features: {features}")
        log.to_csv(tmp_path / "log.csv", index=False)
        given = ("--features", tmp_path / "features.yaml", "--label_column", "clicked")
        given = () if "--fitted" in more else (*given, "--test_from", 8)
        short = ("--shortest_sequence_for_user", 1)
        return preprocess_log(tmp_path / output, tmp_path / "log.csv", *short, *given, *more)

    return run


def log_of(prices):
    count = len(prices)
    return pd.DataFrame(
        {
            "who": ["u"] * count,
            "what": [f"i{number % 5}" for number in range(count)],
            "when": range(count),
            "clicked": [number % 2 for number in range(count)],
            "price": prices,
        }
    )


PRICES = [1.0, 2, 3, 4, 5, 6, 7, 8, 30, 3]


def with_price(row, value):
    return log_of([*PRICES[:row], value, *PRICES[row + 1 :]])


@pytest.mark.parametrize(("row", "value"), [(3, -1.0), (8, -3.0)])
def test_a_value_without_a_logarithm_is_a_bad_row(row, value, run):
    with pytest.raises(MerlinSimError, match=f"log.csv, line {row + 2}: 'price': expected a num"):
        run(with_price(row, value), LOGARITHM)


def test_such_rows_are_left_out_and_counted(run):
    path, said = run(with_price(9, -1), LOGARITHM, "--on_bad_rows", "skip")
    assert "1 bad rows left out (line 11: 'price': expected a number of which LogOp makes" in said
    assert pq.read_table(path / "test")["price"].to_pylist() == [pytest.approx(np.log(31))]


def test_what_only_fitted_operators_do_not_take_is_a_bad_row_too(run):
    """In what tests -90 lies far below the mean: one less than it by a deviation and more."""
    log = log_of([4.5] * 7 + [40, -90, 5])
    with pytest.raises(MerlinSimError, match=LEARNED_LINE):
        run(log, LEARNED)
    path, said = run(log, LEARNED, "--on_bad_rows", "skip")  # which fits again
    assert f"1 bad rows left out ({LEARNED_LINE}" in said
    rows = pq.read_table(path / "test").to_pandas()
    assert len(rows) == 1 and np.isfinite(rows[["price", "price_lag_1"]]).all(axis=None)


def test_the_next_day_has_bad_rows_by_what_was_learned(run):
    fitted, _ = run(log_of(PRICES), LOGARITHM)
    with pytest.raises(MerlinSimError, match=r"log.csv, line 4: 'price': expected a number of wh"):
        run(with_price(2, -5), LOGARITHM, "--fitted", fitted, output="next")
    workflow = FittedWorkflow.load(fitted)
    for read in (workflow.rows, lambda log: workflow.samples(log, "train")):
        with pytest.raises(MerlinSimError, match="the log, row 3: 'price': expected a number of w"):
            read(with_price(2, -5))
    frame = workflow.rows(with_price(2, 3)).assign(price=with_price(2, -5)["price"])
    with pytest.raises(MerlinSimError, match="'price': expected a number of which LogOp.*Of -5 "):
        workflow.histories().transform(frame)


def test_what_fills_has_to_fit_too(run, tmp_path):
    features = PRICE % "{FillMissing: {fill_val: -4}}, LogOp"
    with pytest.raises(MerlinSimError, match="line 5: 'price': expected a number of which FillMis"):
        run(with_price(3, None), features)
    filled = "{price: {type: number, of: item, operators: [FillMedian]}}"
    with pytest.raises(MerlinSimError, match="log.csv: 'price': expected numbers, found none"):
        run(log_of([None] * 10), filled)
    assert not (tmp_path / "dataset").exists()
