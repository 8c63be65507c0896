"""A step with fused arithmetic is the step without, and large batches have it."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import build_model, trainable_model
from merlin_sim.parallel.steps.fused import fused_arithmetic
from merlin_sim.schemas.dataset import DatasetDirectory

SMALL = {"embedding_dim": 4, "long_seq_length": 7, "stage_two_mlp_dims": (8,), "aux_mlp_dims": (4,)}
OPTIONS = {
    "sim": {**SMALL, "top_k": 3, "stage_one_mlp_dims": (4,)},
    "dien": SMALL,
    "one pass": {**SMALL, "one_pass": True},
}


def computed(model, batch, labels, is_fused):
    """Losses, logits and dense gradients of a step."""
    with fused_arithmetic(is_fused), tf.GradientTape() as tape:
        losses, logits = model.compute_step(batch, labels, None, training=True)
        loss = losses[0]
    found = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
    return losses, logits, [tf.convert_to_tensor(gradient).numpy() for gradient in found]


@pytest.mark.slow
@pytest.mark.parametrize("candidates", [1, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_is_the_same(name, candidates, make_schema, make_columns, as_batch):
    schema = make_schema(items=(5, 3), ragged=False)
    tf.keras.utils.set_random_seed(2)
    model = build_model("sim" if name == "sim" else "dien", schema, **OPTIONS[name])
    columns = make_columns(schema, 6, lengths=[1, 4, 7, 10, 10, 9])
    batch, labels = as_batch(columns, 10, ragged=False)
    if candidates > 1:  # two windows, one of which may end before the other
        longer = {name: tf.pad(c, [[0, 0], [1, 0]]) for name, c in batch.items() if "hist" in name}
        each = {n: tf.stack([batch[n]] * candidates, 1) % 3 + 1 for n in ("item_0", "item_1")}
        ends = tf.constant([[10, 11]] * 5 + [[11, 11]])
        batch = {**batch, **longer, **each, "history_end": ends}
        labels = tf.tile([[0.0, 1.0] * (candidates // 2)], [6, 1])
    labels = tf.cast(labels, tf.float32)
    losses, logits, gradients = computed(model, batch, labels, False)
    others, other_logits, other_gradients = computed(model, batch, labels, True)
    np.testing.assert_allclose(others[0], losses[0], rtol=1e-6)
    np.testing.assert_allclose(other_logits, logits, atol=1e-6)
    for ours, theirs, variable in zip(
        other_gradients, gradients, model.trainable_variables, strict=True
    ):
        assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs) + 1e-9, variable.name


@pytest.mark.slow
def test_large_batches_are_trained_on_with_it(sim_dataset, monkeypatch):
    dataset = DatasetDirectory.open(sim_dataset)
    losses = []
    for many in (10**9, 1):
        monkeypatch.setattr(trainable_model, "MANY_SAMPLES", many)
        tf.keras.utils.set_random_seed(2)
        model = build_model("dien", dataset.schema, **OPTIONS["dien"])
        model.compile("adam", run_eagerly=many > 1)
        losses += model.fit(dataset, batch_size=64, verbose=0).history["loss"]
        assert model._step.fuses == (many == 1)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
