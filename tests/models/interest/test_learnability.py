"""Users whose click depends on an old interaction: what searches the long history learns them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import roc_auc_score

from merlin_sim.models import build_model
from merlin_sim.parallel.steps.optimizers import Adam

ITEMS, CATEGORIES = 160, 16
LONG, SHORT = 12, 4
TRAIN, TEST = 6_000, 1_000


def make_users(rows, seed):
    """The target is clicked if its category was, longer ago than the short history.

    The short history, and what was not clicked in it, are drawn without looking at the label.
    """
    rng = np.random.default_rng(seed)
    history = rng.integers(1, ITEMS + 1, [rows, LONG + SHORT])
    label = rng.integers(0, 2, rows)
    category_of = (np.arange(ITEMS + 1) - 1) % CATEGORIES + 1
    category_of[0] = 0
    target = np.zeros(rows, np.int64)
    for row in range(rows):
        candidates = np.arange(1, ITEMS + 1)
        seen = np.isin(category_of[candidates], category_of[history[row, :LONG]])
        target[row] = rng.choice(candidates[seen if label[row] else ~seen])
    negative = rng.integers(1, ITEMS + 1, history.shape)
    columns = {
        "item_0": target,
        "item_1": category_of[target],
        "item_0_hist": history,
        "item_1_hist": category_of[history],
        "item_0_neg_hist": negative,
        "item_1_neg_hist": category_of[negative],
    }
    return columns, label


@pytest.fixture(scope="module")
def data():
    return make_users(TRAIN, seed=1), make_users(TEST, seed=2)


OPTIONS = {
    "sim": {"long_seq_length": LONG, "top_k": 4, "short_history": "attention"},
    "sdim": {"long_seq_length": LONG, "hashes": 16, "bits_per_hash": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", OPTIONS)
def test_models_that_search_learn_from_the_long_history_alone(model_type, make_schema, data):
    (columns, label), (tested, clicked) = data
    schema = make_schema((), (ITEMS, CATEGORIES), LONG + SHORT, ragged=False)
    tf.keras.utils.set_random_seed(3)
    sizes = {"embedding_dim": 8, "stage_two_mlp_dims": (32, 16)}
    model = build_model(model_type, schema, **sizes, **OPTIONS[model_type])
    model.compile(Adam(0.02), metrics=[], run_eagerly=True)
    model.fit(columns, label, batch_size=400, epochs=2, verbose=0)
    aucs = []
    for unseen in (0, LONG):  # without the long history nothing is known
        columns = {
            name: tf.constant(np.where(np.arange(LONG + SHORT) < unseen, 0, values))
            if values.ndim == 2
            else tf.constant(values)
            for name, values in tested.items()
        }
        aucs.append(roc_auc_score(clicked, model.forward(columns).logits))
    assert aucs[0] >= 0.75 and aucs[1] < 0.60
