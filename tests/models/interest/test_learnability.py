"""Users whose click depends on an old interaction: SIM learns them, DIEN cannot."""

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


def learn(model_type, schema, train, test, epochs):
    tf.keras.utils.set_random_seed(3)
    options = {"top_k": 4} if model_type == "sim" else {}
    model = build_model(
        model_type,
        schema,
        embedding_dim=8,
        long_seq_length=LONG,
        stage_two_mlp_dims=(32, 16),
        **options,
    )
    auc = tf.keras.metrics.AUC(name="auc")
    model.compile(tf.keras.optimizers.legacy.Adam(0.005), metrics=[auc])
    columns, label = train
    model.fit(columns, label, batch_size=256, epochs=epochs, verbose=0, train_metrics_steps=1000)
    return model.evaluate(*test, batch_size=1000, verbose=0, return_dict=True)["auc"]


@pytest.mark.slow
def test_sim_learns_from_the_long_history_and_dien_cannot(make_schema):
    schema = make_schema(
        users=(), items=(ITEMS, CATEGORIES), history_length=LONG + SHORT, ragged=False
    )
    train, test = make_users(TRAIN, seed=1), make_users(TEST, seed=2)
    assert learn("dien", schema, train, test, epochs=2) < 0.60
    assert learn("sim", schema, train, test, epochs=2) >= 0.75
