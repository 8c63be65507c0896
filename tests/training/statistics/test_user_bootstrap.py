from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.evaluation.metrics import AUC, CalibrationError
from merlin_sim.training.evaluation.scored_rows import ScoredRows
from merlin_sim.training.reports.user_bootstrap import UserBootstrap


def rows(users=50, seed=0, signal=1.0):
    random = np.random.default_rng(seed)
    count = 6 * users
    labels = np.arange(count) % 2 == 0
    scores = 1 / (1 + np.exp(-random.normal(signal * labels)))
    return ScoredRows(np.repeat(np.arange(users) * 3 + 7, 6), labels, scores.astype(np.float32))


def test_the_spread_is_that_of_other_users():
    found = UserBootstrap(rows(users=200), draws=400).aucs(rows(users=200)).std()
    others = []
    for seed in range(100, 200):
        counts = AUC()
        other = rows(users=200, seed=seed)
        counts.update_state(other.labels.astype(np.float32), other.scores)
        others.append(counts.exact_result())
    assert found == pytest.approx(np.std(others), rel=0.25)


def test_runs_are_paired_so_that_what_they_share_does_not_count():
    given = rows(users=200)
    shifted = ScoredRows(given.users, given.labels, given.scores * np.float32(0.999))
    bootstrap = UserBootstrap(given, draws=100)
    apart = bootstrap.aucs(given) - bootstrap.aucs(shifted)
    assert apart.std() < 0.05 * bootstrap.aucs(given).std()


def test_what_has_no_auc_and_what_is_of_other_rows():
    with pytest.raises(MerlinSimError, match="of other test rows"):
        UserBootstrap(rows(50), draws=2).aucs(rows(49))
    given = ScoredRows(np.array([1]), np.array([False]), np.array([0.5], np.float32))
    assert np.isnan(UserBootstrap(given, draws=3).aucs(given)).all()
    given = rows(users=3)  # a segment without rows
    bootstrap = UserBootstrap(given, draws=2)
    nothing = np.zeros(len(given.labels), bool)
    for measure in (bootstrap.auc, bootstrap.log_loss, bootstrap.calibration_error):
        assert np.isnan(measure(given, nothing)(bootstrap.once))


def test_scores_are_read_as_they_were_written(tmp_path):
    given = rows(users=3)
    given.write(tmp_path / "scores.parquet")
    found = ScoredRows.read(tmp_path / "scores.parquet")
    assert np.array_equal(found.users, given.users)
    assert np.array_equal(found.labels, given.labels) and found.labels.dtype == bool
    assert np.array_equal(found.scores, given.scores)
    given.scores[:2] = np.nan
    given.write(tmp_path / "diverged.parquet")
    with pytest.raises(MerlinSimError, match="diverged.parquet: the scores .* for 2 of 18 rows"):
        ScoredRows.read(tmp_path / "diverged.parquet")
    (tmp_path / "other.parquet").write_text("no parquet")
    with pytest.raises(MerlinSimError, match="expected the scores of a run"):
        ScoredRows.read(tmp_path / "other.parquet")


@pytest.mark.parametrize("measure", ["auc", "log_loss", "calibration_error"])
def test_measures_of_drawn_users_are_those_of_their_rows(measure):
    given = rows(users=6)
    chosen = np.arange(len(given.labels)) % 5 != 1
    bootstrap = UserBootstrap(given, draws=10, seed=3)
    found = bootstrap.draw({0: getattr(bootstrap, measure)(given, chosen)})[0]
    random = np.random.default_rng(3)
    for value in found:
        drawn = random.integers(0, 6, 6)
        indices = np.concatenate(
            [np.flatnonzero((given.users == 7 + 3 * user) & chosen) for user in drawn]
        )
        labels, scores = given.labels[indices], given.scores[indices]
        apart = 1e-12 if measure == "auc" else 1e-6
        assert value == pytest.approx(by_rows(measure, labels, scores), abs=apart)


def by_rows(measure, labels, scores):
    if measure == "log_loss":
        return log_loss(labels, scores.astype(np.float64), labels=[0, 1])
    if measure == "calibration_error":
        error = CalibrationError()
        error.update_state(labels, scores)
        return error.exact_result()
    counts = AUC()
    counts.update_state(labels.astype(np.float32), scores)
    return counts.exact_result()
