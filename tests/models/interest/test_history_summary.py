"""Models that read the newest positions of a history, and a summary of the whole."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS

from merlin_sim.models import OptionError, build_model

every_kind = pytest.mark.parametrize("kind", [kind for kind in OPTIONS if "summary" in kind])
LENGTHS = [0, 1, 4, 9, 10]


@pytest.fixture(scope="module")
def schema(make_schema):
    return make_schema()


@pytest.fixture(scope="module")
def build(schema):
    @functools.cache
    def build_one(kind):
        tf.keras.utils.set_random_seed(5)
        model = build_model(kind.split("_")[0], schema, embedding_dim=4, **OPTIONS[kind])
        for variable in model.trainable_variables:  # away from zero biases and equal slopes
            variable.assign_add(tf.random.normal(variable.shape, stddev=0.3))
        return model

    return build_one


@pytest.fixture(scope="module")
def columns(schema, make_columns):
    return make_columns(schema, len(LENGTHS), lengths=LENGTHS)


def part_of(columns, part):
    return {n: [row[part] for row in c] if isinstance(c, list) else c for n, c in columns.items()}


def other_ids(columns, part):
    """The same with other items in one part of each history."""
    changed = dict(columns)
    for name in ("item_0_hist", "item_1_hist"):
        changed[name] = [row.copy() for row in columns[name]]
        for row in changed[name]:
            row[part] = row[part] % 4 + 1
    return changed


@every_kind
@pytest.mark.parametrize("ragged", [True, False])
def test_a_summary_and_the_newest_positions_stand_for_the_history(
    kind, ragged, build, columns, as_batch
):
    model, recent = build(kind), OPTIONS[kind]["recent_length"]
    batch, _ = as_batch(columns, 10, ragged=ragged)
    newest, _ = as_batch(part_of(columns, slice(-recent, None)), 10, ragged=ragged)
    parts = [
        as_batch(part_of(columns, p), 10, ragged=ragged)[0] for p in (slice(3), slice(3, None))
    ]
    summary = tf.add_n([model.summarize(part) for part in parts])
    assert summary.shape == (len(LENGTHS), model.summary_dim) and not summary.numpy()[0].any()
    np.testing.assert_allclose(summary, model.summarize(batch), rtol=1e-5, atol=1e-6)
    expected = model.forward(batch).logits
    kept = {**newest, "history_summary": summary}
    np.testing.assert_allclose(model.forward(kept).logits, expected, rtol=1e-5, atol=1e-6)
    without = model.forward(newest).logits.numpy()
    assert (np.abs(without - expected)[3:] > 1e-4).all(), "the summary has what is older"


@every_kind
def test_the_summary_alone_has_what_is_older(kind, build, columns, as_batch):
    model, recent = build(kind), OPTIONS[kind]["recent_length"]
    changed = other_ids(columns, slice(None, -recent))
    ours, theirs = (as_batch(one, 10, ragged=True)[0] for one in (columns, changed))
    summary = {"history_summary": model.summarize(ours)}
    np.testing.assert_array_equal(
        model.forward({**ours, **summary}).logits, model.forward({**theirs, **summary}).logits
    )
    assert np.abs(model.summarize(ours) - model.summarize(theirs)).max() > 1e-3


def test_it_is_of_positions_that_the_model_reads_too(build, columns, as_batch):
    """A history that is all recent has a summary as well."""
    model = build("stca_summary")
    batch, _ = as_batch(part_of(columns, slice(-2, None)), 10, ragged=True)
    counts = model.summarize(batch).numpy().reshape(5, 3, -1)[..., -1].sum(axis=1)
    np.testing.assert_allclose(counts, [0, 1, 2, 2, 2], rtol=1e-5)


def test_prototypes_learn_and_tables_have_no_gradient_of_them(build, columns, as_batch):
    model = build("stca_summary")
    batch, _ = as_batch(columns, 10, ragged=True)
    tables = [table.table.embeddings for table in model.body.embedding.tables.values()]
    with tf.GradientTape() as tape:
        summary = model.summarize(batch)
    *of_tables, of_vectors = tape.gradient(summary, [*tables, model.body.prototypes.vectors])
    assert of_tables == [None] * len(tables) and np.abs(of_vectors).max() > 0


def test_options_and_weights_survive_saving(build, columns, as_batch, tmp_path):
    model = build("sim_summary")
    batch, _ = as_batch(columns, 10, ragged=True)
    model.save(tmp_path / "saved")
    loaded = type(model).load(tmp_path / "saved")
    assert loaded.options == model.options and loaded.summary_dim == model.summary_dim
    np.testing.assert_array_equal(loaded.summarize(batch), model.summarize(batch))
    np.testing.assert_array_equal(loaded.forward(batch).logits, model.forward(batch).logits)


def test_refused_options(schema):
    with pytest.raises(OptionError, match="`recent_length` should be at most 10"):
        build_model("din", schema, recent_length=11)
    with pytest.raises(OptionError, match="at most 3, .*4 positions"):
        build_model("dien", schema, recent_length=4, long_seq_length=7)
    with pytest.raises(OptionError, match="Unknown option: history_prototypes"):
        build_model("two_tower", schema, history_prototypes=4)
