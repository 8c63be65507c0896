"""A GPU's forms of what blocks compute, and fused ones, give what a processor's give."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from gpu_kernels import without_gpu_kernel
from ranking_rows import write_ranking_dataset
from small_users import write_users_dataset

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.gpu_forms import gpu_forms
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model, trainable_model
from merlin_sim.models.blocks.embeddings.feature_embedding import FeatureEmbedding
from merlin_sim.models.blocks.embeddings.table_lookup import table_lookup
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.dien import ShortWindows
from merlin_sim.parallel.steps import train_step
from merlin_sim.parallel.steps.fused import fused_arithmetic
from merlin_sim.parallel.steps.table_rows import TableGradient, table_gradients
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.metrics import AUC, CalibrationError

LENGTHS = [0, 0, 1, 2, *[3, 5, 7, 10] * 5]
"""Of histories, empty and short ones too; there are few items, so many ties."""
SMALL = {"embedding_dim": 4, "stage_two_mlp_dims": (8,)}
LONG = {**SMALL, "long_seq_length": 7}
DIEN = {**LONG, "aux_mlp_dims": (4,)}
OPTIONS = {
    "sim": {**DIEN, "top_k": 3, "stage_one_mlp_dims": (4,)},
    "din": {**SMALL, "attention": "activation_unit"},
    "dien of one pass": {**DIEN, "one_pass": True},
    "two_tower": {"embedding_dim": 4},
}


def computed(model, batch, labels, on_gpu, is_fused):
    """Losses, logits and dense gradients of a step."""
    form = TableGradient.WHOLE_TABLE if on_gpu else TableGradient.EACH_ROW_ONCE
    with gpu_forms(on_gpu), fused_arithmetic(is_fused), table_gradients(form):
        with tf.GradientTape() as tape:
            losses, logits = model.compute_step(batch, labels, None, training=True)
            loss = losses[0]
    found = tape.gradient(loss, model.trainable_variables, unconnected_gradients="zero")
    return losses, logits, [tf.convert_to_tensor(gradient).numpy() for gradient in found]


def made_of(kind, make_schema):
    schema = make_schema(items=(5, 3), ragged=False)
    tf.keras.utils.set_random_seed(2)
    return schema, build_model(kind.split()[0], schema, **OPTIONS[kind])


def check(model, batch, labels, is_fused):
    """In a GPU's forms, and in fused ones where they are told apart."""
    losses, logits, gradients = computed(model, batch, labels, False, False)
    for forms in ((True, False), (False, True)) if is_fused else ((True, False),):
        others, other_logits, other_gradients = computed(model, batch, labels, *forms)
        np.testing.assert_allclose(others[0], losses[0], rtol=1e-6)
        np.testing.assert_allclose(other_logits, logits, atol=1e-6)
        for ours, theirs, variable in zip(
            other_gradients, gradients, model.trainable_variables, strict=True
        ):
            limit = 1e-5 * np.linalg.norm(theirs) + 1e-9
            assert np.linalg.norm(ours - theirs) <= limit, variable.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "din", "two_tower"])
def test_a_step_is_the_same_with_ties_and_short_histories(
    kind, make_schema, make_columns, as_batch
):
    schema, model = made_of(kind, make_schema)
    columns = make_columns(schema, len(LENGTHS), lengths=LENGTHS)
    batch, labels = as_batch(columns, 10, ragged=False)
    check(model, batch, tf.cast(labels, tf.float32), is_fused=kind == "sim")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sim", "dien of one pass"])
def test_a_step_of_users_x_candidates_is_the_same(kind, make_schema, make_columns, as_batch):
    schema, model = made_of(kind, make_schema)
    columns = make_columns(schema, 6, lengths=[1, 4, 7, 10, 10, 9])
    batch, _ = as_batch(columns, 10, ragged=False)
    longer = {name: tf.pad(c, [[0, 0], [1, 0]]) for name, c in batch.items() if "hist" in name}
    each = {n: tf.stack([batch[n]] * 4, 1) % 3 + 1 for n in ("item_0", "item_1")}
    ends = tf.constant([[10, 11]] * 5 + [[11, 11]])  # one window may end before the other
    batch = {**batch, **longer, **each, "history_end": ends}
    check(model, batch, tf.constant([[0.0, 1.0, 1.0, 0.0]] * 6), is_fused=True)


MORE = {"history_counts": True, "history_similarity": True}
SHORT = {"long_seq_length": 4}
STEPS = {
    "sim": {**OPTIONS["sim"], **SHORT, **MORE, "attention_sums": True, "separate_attention": True},
    "sim by hard search": {
        **OPTIONS["sim"],
        **SHORT,
        "search": "hard",
        "category_feature": "kind_trgt",
    },
    "din": {**OPTIONS["din"], **MORE, "history_prototypes": 2, "recent_length": 4},
    "dien of one pass": {**OPTIONS["dien of one pass"], **SHORT},
    "eta": {**LONG, **SHORT},
    "sdim": {**LONG, **SHORT},
    "stca": {"embedding_dim": 4, "position_buckets": 3},
    "two_tower": OPTIONS["two_tower"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "candidates"),
    [(kind, 1 if kind == "two_tower" else 4) for kind in STEPS] + [("sim", 1)],
)
def test_a_gpu_has_a_kernel_for_all_of_a_step_that_is_as_large_as_a_batch(
    kind, candidates, tmp_path
):
    dataset = DatasetDirectory.open(write_users_dataset(tmp_path / "users", [[[30] * 8]]))
    model = build_model(kind.split()[0], dataset.schema, **STEPS[kind])
    graph = graph_of_a_step(model, dataset, candidates)
    assert without_gpu_kernel(graph, at_least=100) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dlrm", "dcnv2"])
def test_a_gpu_has_a_kernel_for_all_of_a_step_on_plain_rows(kind, tmp_path):
    form = {"cardinalities": (7, 40), "numbers": 1}
    dataset = DatasetDirectory.open(write_ranking_dataset(tmp_path / "rows", rows=200, **form))
    graph = graph_of_a_step(build_model(kind, dataset.schema), dataset, None)
    assert without_gpu_kernel(graph, at_least=50) == []


def graph_of_a_step(model, dataset, candidates):
    """The graph of a step in a GPU's forms, which XLA does not compile."""
    columns, most = list(model.training_columns), getattr(model, "negatives_read", None)
    of_users = {} if candidates is None else {"candidates": candidates, "negatives_read": most}
    with gpu_forms(True):
        model.compile("adam", metrics=[AUC(), CalibrationError()])
        loader = open_loader(dataset, "train", columns, 64, Ranks(), **of_users)
        step = tf.function(model.step_on(loader), autograph=False)
        given, done = next(loader.inputs()), tf.zeros([2], tf.int64)
        return step.get_concrete_function(given, done, tf.constant(False)).graph


@pytest.mark.slow
def test_large_batches_are_trained_on_with_fused_arithmetic(make_dataset, monkeypatch):
    dataset, losses, noted = make_dataset(ragged=False, rows=32), [], []

    def noting(wanted):
        noted.append(wanted)
        return fused_arithmetic(wanted)

    monkeypatch.setattr(train_step, "fused_arithmetic", noting)
    for many in (33, 32):
        monkeypatch.setattr(trainable_model, "MANY_SAMPLES", many)
        tf.keras.utils.set_random_seed(2)
        model = build_model("din", dataset.schema, **OPTIONS["din"])
        model.compile("adam", metrics=[], run_eagerly=True)
        losses += model.fit(dataset, batch_size=32, verbose=0).history["loss"]
    assert noted == [False, True]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


def test_a_window_takes_the_vectors_of_its_positions_as_they_are():
    """No bit is lost to a GPU's products, and what one window has is nothing to the others."""
    vectors = np.random.default_rng(3).normal(size=[2, 1, 6, 4]).astype(np.float32)
    vectors[0, 0, 5] = np.nan
    split, ends = HistorySplit(2, 3), tf.constant([[6, 7, 8], [7, 7, 5]])
    windows = ShortWindows.of(split, ends, one_pass=False)
    mask = windows.cut(tf.ones([2, 8], tf.bool))
    with gpu_forms(True):
        found = windows.masked(tf.constant(vectors), mask).numpy()
    for user, window in np.ndindex(2, 3):
        begin = int(ends[user, window]) - 5
        expected = vectors[user, 0, begin : begin + 3]
        np.testing.assert_array_equal(found[user, window], expected)


@pytest.mark.parametrize("xla", [False, True])
def test_a_gradient_of_the_whole_table_leaves_out_what_is_padding(xla):
    table = tf.Variable(np.ones([5, 2], np.float32))

    @tf.function(jit_compile=xla, autograph=False)
    def gradient(user, history):
        with table_gradients(TableGradient.WHOLE_TABLE), tf.GradientTape() as tape:
            parts = table_lookup(table, [user, history], [False, True])
            loss = tf.add_n([tf.reduce_sum(part) for part in parts])
        return tape.gradient(loss, table)

    found = gradient(tf.constant([0, 2]), tf.constant([[0, 0, 3], [0, 3, 2]]))
    assert found.numpy()[:, 0].tolist() == [1, 0, 2, 2, 0]


def test_of_columns_histories_alone_are_padded(make_schema):
    schema = make_schema(negatives=False).excluding_by_name(["label"])
    embedding = FeatureEmbedding(schema, dim=2)
    inputs = {"item_0": tf.constant([0, 1]), "item_0_hist": tf.constant([[0, 0], [0, 1]])}
    with table_gradients(TableGradient.WHOLE_TABLE), tf.GradientTape() as tape:
        loss = tf.add_n([tf.reduce_sum(found) for found in embedding(inputs).values()])
    table = embedding.tables["item_0"].table.embeddings
    assert tape.gradient(loss, table).numpy()[:3, 0].tolist() == [1, 2, 0]
