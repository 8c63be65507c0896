from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.training.evaluation import metrics, over_ranks
from merlin_sim.training.evaluation.metrics import AUCCounts, Evaluator
from merlin_sim.training.evaluation.row_metrics import exact_auc, grouped_auc


@pytest.fixture(scope="module")
def predictions():
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 5000).astype(np.float32)
    scores = np.clip(0.35 * labels + random.uniform(0, 0.7, 5000), 0, 1).astype(np.float32)
    scores[:4] = [0.0, 1.0, 1 / 7999, 0.5]
    return labels, scores, random.integers(0, 300, 5000)


def test_auc_is_that_of_keras(predictions):
    labels, scores, _ = predictions
    keras = tf.keras.metrics.AUC(num_thresholds=8000)
    counts = AUCCounts()
    for part in np.array_split(np.arange(5000), 7):
        keras.update_state(labels[part], scores[part])
        counts.update(labels[part], scores[part])
    assert counts.result() == pytest.approx(float(keras.result()), abs=1e-6)


def test_log_loss_is_that_of_keras(predictions):
    labels, scores, users = (column[4:] for column in predictions)  # none at 0 or 1
    evaluator = Evaluator(Ranks())
    evaluator.update(labels, scores, users)
    expected = tf.keras.losses.BinaryCrossentropy()(labels[:, None], scores[:, None])
    assert evaluator.result().log_loss == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([0.1, 0.2, 0.5]), st.integers(0, 3)),
        max_size=40,
    )
)
def test_grouped_auc_is_the_share_of_pairs_in_order(rows):
    labels, scores, groups = (
        (np.array(column) for column in zip(*rows, strict=True))
        if rows
        else (np.empty(0), np.empty(0), np.empty(0, int))
    )
    areas, weights = [], []
    for group in set(groups.tolist()):
        mine = groups == group
        clicked, not_clicked = scores[mine & (labels == 1)], scores[mine & (labels == 0)]
        if len(clicked) and len(not_clicked):
            pairs = [(a > b) + 0.5 * (a == b) for a in clicked for b in not_clicked]
            areas.append(np.mean(pairs))
            weights.append(mine.sum())
    expected = np.average(areas, weights=weights) if areas else None
    assert grouped_auc(labels, scores, groups) == (
        None if expected is None else pytest.approx(expected)
    )
    of_one_group = grouped_auc(labels, scores, np.zeros(len(labels)))
    assert exact_auc(labels == 1, scores) == (of_one_group and pytest.approx(of_one_group))


def test_calibration_by_hand():
    labels = np.array([1, 0, 1, 1])
    scores = np.array([0.62, 0.64, 0.92, 0.98])
    evaluator = Evaluator(Ranks())
    evaluator.update(labels, scores, None)
    result = evaluator.result()
    expected = [[0.63, 0.5, 2], [0.92, 1.0, 1], [0.98, 1.0, 1]]
    np.testing.assert_allclose(result.calibration, expected, atol=1e-7)
    assert result.calibration_error == pytest.approx((0.13 * 2 + 0.08 + 0.02) / 4)


class Meeting:
    """Collective operations of ranks that are threads; counts the rows that each one receives."""

    def __init__(self, size, monkeypatch):
        self.size, self.given = size, [None] * size
        self.barrier = threading.Barrier(size, timeout=60)
        self.received = [0] * size
        for module in (metrics, over_ranks):
            for name in ("send_rows", "sum_counts", "gather_objects"):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, getattr(self, name))

    def _meet(self, value, ranks):
        self.given[ranks.rank] = value
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found

    def gather_objects(self, value, ranks):
        return self._meet(value, ranks)

    def sum_counts(self, counts, ranks):
        return sum(self._meet(counts, ranks))

    def send_rows(self, values, receivers, ranks):
        met = self._meet((values, receivers), ranks)
        rows = np.concatenate([v[r == ranks.rank] for v, r in met])
        self.received[ranks.rank] = max(self.received[ranks.rank], len(rows))
        return rows

    def evaluate(self, parts, rows, keeps_rows=False):
        """Let each rank evaluate its part of the rows; return what each one gets."""

        def one(rank):
            evaluator = Evaluator(Ranks(rank, self.size), keeps_rows)
            for piece in np.array_split(parts[rank], 3):
                evaluator.update(*(column[piece] for column in rows))
            return evaluator.result()

        with ThreadPoolExecutor(self.size) as threads:
            return list(threads.map(one, range(self.size)))


def test_the_order_and_the_split_of_rows_change_nothing(predictions, monkeypatch):
    alone = Evaluator(Ranks())
    alone.update(*predictions)
    expected = alone.result()
    shuffled = np.random.default_rng(0).permutation(5000)
    meeting = Meeting(4, monkeypatch)
    parts = np.split(shuffled, [1200, 1200, 4000])  # the second rank has no rows
    assert meeting.evaluate(parts, predictions) == [expected] * 4


def test_no_rank_holds_the_rows_of_all(predictions, monkeypatch):
    meeting = Meeting(4, monkeypatch)
    parts = np.array_split(np.random.default_rng(0).permutation(5000), 4)
    meeting.evaluate(parts, predictions)
    assert max(meeting.received) < 5000 / 4 * 1.2


def test_rows_that_are_kept_come_to_the_first_rank_alone(predictions, monkeypatch):
    alone = Evaluator(Ranks(), keeps_rows=True)
    alone.update(*predictions)
    expected = alone.result().scored
    meeting = Meeting(3, monkeypatch)
    parts = np.array_split(np.random.default_rng(0).permutation(5000), 3)
    first, *others = meeting.evaluate(parts, predictions, keeps_rows=True)
    for name in ("users", "labels", "scores"):
        assert np.array_equal(getattr(first.scored, name), getattr(expected, name))
    assert [other.scored for other in others] == [None, None]
    assert meeting.received[1:] < [5000 / 2] * 2


def test_equal_scores_and_few_rows_are_shared_out_too(monkeypatch):
    labels, users = np.array([1.0, 0, 1, 0, 1]), np.array([7, 7, 7, 9, 9])
    rows = (labels, np.full(5, 0.25, np.float32), users)
    alone = Evaluator(Ranks())
    alone.update(*rows)
    expected = alone.result()
    meeting = Meeting(3, monkeypatch)
    found = meeting.evaluate([np.arange(2), np.arange(2, 2), np.arange(2, 5)], rows)
    assert found == [expected] * 3 and found[0].exact_auc == found[0].gauc == 0.5


def test_metrics_are_those_of_plain_formulas(predictions):
    labels, scores, users = predictions
    evaluator = Evaluator(Ranks())
    evaluator.update(labels, scores, users)
    result = evaluator.result()
    clicked = labels == 1
    bounded = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    losses = -np.log(np.where(clicked, bounded, 1 - bounded))
    assert result.log_loss == pytest.approx(losses.mean(), rel=1e-13)
    assert result.exact_auc == exact_auc(clicked, scores)
    assert result.gauc == pytest.approx(grouped_auc(labels, scores, users), rel=1e-13)


def test_one_kind_of_label_has_no_auc():
    evaluator = Evaluator(Ranks())
    evaluator.update(np.ones(3), np.full(3, 0.9), np.arange(3))
    result = evaluator.result()
    assert result.auc is None and result.gauc is None
    assert result.log_loss == pytest.approx(-np.log(0.9), rel=1e-6)


def test_no_rows_at_all():
    result = Evaluator(Ranks()).result()
    assert (result.rows, result.auc, result.gauc, result.calibration) == (0, None, None, [])


def test_the_roc_curve_goes_from_corner_to_corner(predictions):
    labels, scores, users = predictions
    evaluator = Evaluator(Ranks())
    evaluator.update(labels, scores, users)
    result = evaluator.result()
    false_positive, true_positive = result.roc
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    assert len(false_positive) < 250
    assert np.trapz(true_positive, false_positive) == pytest.approx(result.auc, abs=2e-3)


def test_scores_that_are_no_numbers_are_counted(predictions):
    labels, scores, users = (column.copy() for column in predictions)
    scores[[3, 70, 4000]] = np.nan
    evaluator = Evaluator(Ranks())
    for part in np.array_split(np.arange(5000), 7):
        evaluator.update(labels[part], scores[part], users[part])
    with pytest.raises(MerlinSimError, match="scores should be numbers.* NaN for 3 of 5,000 rows"):
        evaluator.result()
