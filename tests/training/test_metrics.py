"""The published metrics as Keras has them: plain formulas, states of one size, exact over ranks."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics
import tensorflow as tf
from evaluated import evaluation_of
from hypothesis import given, settings
from hypothesis import strategies as st
from small_runs import DIN
from small_users import write_users_dataset

import merlin_sim as ms
from merlin_sim.dataloader.loader import come_together
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.training.evaluation import metrics
from merlin_sim.training.evaluation.evaluate import HeldOutMetrics, KeptRows
from merlin_sim.training.evaluation.scored_rows import exact_auc

KINDS = (metrics.AUC, metrics.GAUC, metrics.LogLoss, metrics.CalibrationError)


@pytest.fixture(scope="module")
def predictions():
    random = np.random.default_rng(3)
    labels = random.integers(0, 2, 5000)
    scores = np.clip(0.35 * labels + random.uniform(0, 0.7, 5000), 0, 1).astype(np.float32)
    scores[:4] = [0.0, 1.0, 1 / 7999, 0.5]
    return labels, scores, np.sort(random.integers(0, 300, 5000))


def counted(kind, rows, parts):
    """A metric that has counted parts of some rows, one after the other."""
    metric = kind()
    for part in parts:
        labels, scores, users = (column[part] for column in rows)
        if kind is metrics.GAUC:
            metric.take_users(users)
        metric.update_state(labels, scores)
    return metric


def states(metric):
    return [variable.numpy() for variable in metric.variables]


def over_ranks(metric, of_ranks):
    """What states of several ranks are together."""
    total = type(metric)()
    add_up = getattr(total, "add_up", lambda states: [sum(s) for s in zip(*states, strict=True)])
    for variable, state in zip(total.variables, add_up(of_ranks), strict=True):
        variable.assign(state)
    return total


def mean_area(labels, scores, users):
    """AUC within users by scikit-learn, weighted by their rows."""
    found = []
    for user in np.unique(users):
        mine = users == user
        if 0 < labels[mine].sum() < mine.sum():
            area = sklearn.metrics.roc_auc_score(labels[mine], scores[mine])
            found.append((area, mine.sum()))
    areas, sizes = zip(*found, strict=True) if found else ((), ())
    return np.average(areas, weights=sizes) if found else None


@pytest.mark.slow
def test_metrics_are_those_of_plain_formulas(predictions):
    labels, scores, users = predictions
    found = evaluation_of(*predictions, batches=7)
    assert found.gauc == pytest.approx(mean_area(labels, scores, users), rel=1e-13)
    bounded = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    assert found.log_loss == pytest.approx(sklearn.metrics.log_loss(labels, bounded), rel=1e-12)
    auc = sklearn.metrics.roc_auc_score(labels, scores)
    assert exact_auc(labels == 1, scores) == pytest.approx(auc, rel=1e-13)
    keras = tf.keras.metrics.AUC(num_thresholds=8000)
    keras.update_state(labels, scores)
    assert found.auc == pytest.approx(float(keras.result()), abs=1e-6)
    assert found.rows == 5000 and found.exact_auc is None
    false_positive, true_positive = found.roc
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    assert len(false_positive) < 250
    assert np.trapz(true_positive, false_positive) == pytest.approx(found.auc, abs=2e-3)


def test_calibration_by_hand():
    found = evaluation_of([1, 0, 1, 1], np.array([0.62, 0.64, 0.92, 0.98]), [1, 1, 2, 3])
    expected = [[0.63, 0.5, 2], [0.92, 1.0, 1], [0.98, 1.0, 1]]
    np.testing.assert_allclose(found.calibration, expected, atol=1e-7)
    assert found.calibration_error == pytest.approx((0.13 * 2 + 0.08 + 0.02) / 4)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.sampled_from([-2.0, 0.1, 0.2, 0.5]), st.integers(0, 3)),
        max_size=40,
    ),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_gauc_is_the_share_of_pairs_in_order(rows, cuts):
    table = np.array(sorted(rows, key=lambda row: row[2]), np.float32).reshape(-1, 3)
    labels, scores, users = table[:, 0].astype(int), table[:, 1], table[:, 2].astype(int)
    metric = counted(
        metrics.GAUC, (labels, scores, users), np.split(np.arange(len(rows)), sorted(cuts))
    )
    expected = mean_area(labels, scores, users)
    found = metric.exact_result()
    assert found == (None if expected is None else pytest.approx(expected))
    assert float(metric.result()) == pytest.approx(
        np.nan if expected is None else expected, abs=1e-6, nan_ok=True
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parts", [[1200, 1200, 4000], [1, 2, 3], [4999]])
def test_parts_and_batches_change_nothing(predictions, kind, parts):
    """Bits, not values: users that two ranks share, one that has none, one without an end."""
    expected = counted(kind, predictions, [np.arange(5000)])
    of_ranks = [
        states(counted(kind, predictions, np.array_split(part, 3)))
        for part in np.split(np.arange(5000), parts)
    ]
    total = over_ranks(expected, of_ranks)
    assert total.exact_result() == expected.exact_result()
    assert float(total.result()) == pytest.approx(expected.exact_result(), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_has_one_size_and_a_pass_goes_on_from_it(predictions, kind):
    expected = counted(kind, predictions, [np.arange(5000)]).exact_result()
    half = counted(kind, predictions, [np.arange(1234)])
    again = kind.from_config(json.loads(json.dumps(half.get_config())))
    again.set_weights(half.get_weights())
    labels, scores, users = (column[1234:] for column in predictions)
    if kind is metrics.GAUC:
        again.take_users(users)
    again.update_state(labels, scores)
    assert again.exact_result() == expected
    few = states(counted(kind, predictions, [np.arange(10)]))
    assert [state.shape for state in few] == [state.shape for state in states(again)]
    assert sum(state.nbytes for state in few) < 2 << 20
    again.reset_state()
    assert not any(state.any() for state in states(again))
    # Samples without weight do not count.
    labels, scores, users = predictions
    weights = (np.arange(5000) % 3 > 0).astype(np.float32)
    if kind is metrics.GAUC:
        again.take_users(users)
    again.update_state(labels[:, None], scores[:, None], weights[:, None])
    weighted = counted(kind, predictions, [np.flatnonzero(weights)])
    assert again.exact_result() == weighted.exact_result()


def test_a_user_of_more_samples_than_can_be_carried(monkeypatch):
    monkeypatch.setattr(metrics, "MOST_CARRIED", 4)
    rows = np.array([0, 1] * 5), np.linspace(0, 1, 10).astype(np.float32), np.zeros(10, int)
    # Another user before and one behind: it is in one batch as a whole.
    around = [
        np.concatenate([[a, b], c, [a, b]])
        for a, b, c in zip([0, 0, 8], [1, 1, 8], rows, strict=True)
    ]
    around[2][-2:] = 9
    whole = counted(metrics.GAUC, around, [np.arange(14)])
    assert whole.exact_result() is not None
    carried = counted(metrics.GAUC, rows, [np.arange(5), np.arange(5, 10)])
    with pytest.raises(MerlinSimError, match="at most 4 samples of a user"):
        carried.exact_result()
    assert np.isnan(float(carried.result()))


def test_one_kind_of_label_and_no_rows_have_no_auc():
    found = evaluation_of(np.ones(3), np.full(3, 0.9), np.arange(3))
    assert found.auc is None and found.gauc is None and found.roc == [[], []]
    assert found.log_loss == pytest.approx(-np.log(0.9), rel=1e-6)
    found = evaluation_of(np.empty(0), np.empty(0), np.empty(0, np.int64))
    assert (found.rows, found.auc, found.gauc, found.calibration) == (0, None, None, [])


def test_scores_that_are_no_numbers_are_counted(predictions):
    labels, scores, users = (column.copy() for column in predictions)
    scores[[3, 70, 4000]] = np.nan
    found = HeldOutMetrics("user", True, ())
    found.update(labels, scores, {"user": users})
    with pytest.raises(MerlinSimError, match="scores should be numbers.* NaN for 3 of 5,000 rows"):
        found.result(3, Ranks(), None, False)


def test_users_whose_rows_are_apart_count_once_they_are_sorted(predictions):
    """A metric of the user's own too, which bears the published name."""
    labels, scores, users = predictions
    mixed = np.random.default_rng(1).permutation(5000)
    own = metrics.GAUC()
    found = HeldOutMetrics("user", False, [own])
    kept = KeptRows()
    for part in np.array_split(mixed, 4):
        found.update(labels[part], scores[part], {"user": users[part]})
        kept.add(labels[part], scores[part], users[part], None)
    found.take_users_one_by_one(kept.by_user(Ranks()))
    evaluation, extra = found.result(0, Ranks(), None, False)
    expected = counted(metrics.GAUC, predictions, [np.arange(5000)]).exact_result()
    assert evaluation.gauc == expected and extra["gauc"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_evaluate_of_keras_gives_what_a_run_logs(tmp_path):
    """Of users, by `compile(metrics=...)`: the same values as those of the Evaluation callback."""
    lengths = [[3, 9, 2], [6, 14, 5, 11]]
    path = write_users_dataset(tmp_path / "users", [[[1, 0], lengths[0]], [lengths[1]]])
    dataset = ms.DatasetDirectory.open(path)
    tf.keras.utils.set_random_seed(2)
    model = ms.DINModel.from_dataset(dataset, **DIN)
    model.compile("adam", metrics=[kind() for kind in KINDS], run_eagerly=True)
    evaluation = ms.callbacks.Evaluation(dataset, batch_size=16)
    history = model.fit(dataset, batch_size=32, epochs=1, callbacks=[evaluation], verbose=0)
    found = model.evaluate(dataset, batch_size=16, verbose=0, return_dict=True)
    logged = history.history
    for name in ("auc", "gauc", "log_loss", "calibration_error"):
        assert found[name] == pytest.approx(logged[f"test_{name}"][0], abs=1e-6)
    assert np.isnan(logged["gauc"][0])  # of training, which is shuffled
    model.compile("adam", metrics=[ms.metrics.GAUC("nobody")], run_eagerly=True)
    with pytest.raises(ms.OptionError, match="`gauc` should be of a column.*'nobody'"):
        model.evaluate(dataset, batch_size=16, verbose=0)


def test_gauc_of_users_whose_rows_are_apart_is_refused(validated):
    dataset = ms.DatasetDirectory.open(validated)
    model = ms.DINModel.from_dataset(dataset, **DIN)
    model.compile("adam", metrics=[ms.metrics.GAUC()])
    apart = "`gauc`: expected the samples of each who one after another.*{}.*are apart"
    with pytest.raises(ms.OptionError, match=apart.format("test/part.0")):
        model.evaluate(dataset, batch_size=64, verbose=0)
    with pytest.raises(ms.OptionError, match=apart.format("test/part.1")):
        model.fit(dataset, batch_size=64, validation_data=dataset, verbose=0)


def test_rows_of_users_that_stand_together(tmp_path):
    def together(*files):
        paths = []
        for number, users in enumerate(files):
            paths.append(f"{tmp_path}/{files}-{number}.parquet")
            pq.write_table(pa.table({"user": users}), paths[-1], row_group_size=2)
        return come_together(tuple(paths), "user")

    assert together([1, 1, 5, 3], [3, 3, 2])
    assert not together([1, 1, 5], [3, 1])
    assert not together([1, 2, 1])
