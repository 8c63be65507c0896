"""Users whose click depends on an old interaction: what searches the long history learns them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import build_model

ITEMS, CATEGORIES = 160, 16
LONG, SHORT = 12, 4
TRAIN, TEST = 12_000, 4_000


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


OPTIONS = {
    "din": {},
    "dien": {"long_seq_length": LONG},
    "sim": {"long_seq_length": LONG, "top_k": 4},
    "eta": {"long_seq_length": LONG, "top_k": 4, "heads": 2, "hash_bits": 32},
    "sdim": {"long_seq_length": LONG, "hashes": 16, "bits_per_hash": 3},
    "twin": {"long_seq_length": LONG, "top_k": 4, "heads": 2},
    "stca": {"heads": 2},
}


def learn(model_type, schema, train, test, epochs):
    tf.keras.utils.set_random_seed(3)
    sizes = {"embedding_dim": 8, "stage_two_mlp_dims": (32, 16)}
    model = build_model(model_type, schema, **sizes, **OPTIONS[model_type])
    auc = tf.keras.metrics.AUC(name="auc")
    model.compile(tf.keras.optimizers.legacy.Adam(0.005), metrics=[auc])
    columns, label = train
    model.fit(columns, label, batch_size=256, epochs=epochs, verbose=0, train_metrics_steps=1000)
    return model.evaluate(*test, batch_size=1000, verbose=0, return_dict=True)["auc"]


@pytest.fixture(scope="module")
def data():
    return make_users(TRAIN, seed=1), make_users(TEST, seed=2)


def schema_of(make_schema, length):
    return make_schema(users=(), items=(ITEMS, CATEGORIES), history_length=length, ragged=False)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["sim", "eta", "sdim", "twin", "stca"])
def test_a_model_that_searches_learns_from_the_long_history(model_type, make_schema, data):
    assert learn(model_type, schema_of(make_schema, LONG + SHORT), *data, epochs=2) >= 0.75


@pytest.mark.slow
def test_dien_cannot_nor_can_din_of_the_short_history(make_schema, data):
    assert learn("dien", schema_of(make_schema, LONG + SHORT), *data, epochs=2) < 0.60
    short = [
        ({n: c[:, -SHORT:] if "hist" in n else c for n, c in columns.items()}, label)
        for columns, label in data
    ]
    assert learn("din", schema_of(make_schema, SHORT), *short, epochs=2) < 0.60
