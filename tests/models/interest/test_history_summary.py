"""Models that read the newest positions of a history, and a summary of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from interest_kinds import OPTIONS

every_kind = pytest.mark.parametrize("kind", [kind for kind in OPTIONS if "summary" in kind])
LENGTHS = [0, 1, 4, 9, 10]


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


@pytest.mark.slow
@every_kind
def test_a_summary_and_the_newest_positions_stand_for_the_history(kind, built, columns, as_batch):
    model, recent = built(kind), OPTIONS[kind]["recent_length"]
    batch, _ = as_batch(columns, 10, ragged=True)
    newest, _ = as_batch(part_of(columns, slice(-recent, None)), 10, ragged=True)
    parts = [as_batch(part_of(columns, p), 10, ragged=True)[0] for p in (slice(3), slice(3, None))]
    summary = tf.add_n([model.summarize(part) for part in parts])
    assert summary.shape == (len(LENGTHS), model.summary_dim) and not summary.numpy()[0].any()
    np.testing.assert_allclose(summary, model.summarize(batch), rtol=1e-5, atol=1e-6)
    expected = model.forward(batch).logits
    kept = {**newest, "history_summary": summary}
    np.testing.assert_allclose(model.forward(kept).logits, expected, rtol=1e-5, atol=1e-6)
    without = model.forward(newest).logits.numpy()
    assert (np.abs(without - expected)[3:] > 1e-4).all(), "the summary has what is older"


@every_kind
def test_the_summary_alone_has_what_is_older(kind, built, columns, as_batch):
    model, recent = built(kind), OPTIONS[kind]["recent_length"]
    changed = other_ids(columns, slice(None, -recent))
    ours, theirs = (as_batch(one, 10, ragged=True)[0] for one in (columns, changed))
    summary = {"history_summary": model.summarize(ours)}
    np.testing.assert_array_equal(
        model.forward({**ours, **summary}).logits, model.forward({**theirs, **summary}).logits
    )
    assert np.abs(model.summarize(ours) - model.summarize(theirs)).max() > 1e-3


def test_it_is_of_positions_that_the_model_reads_too(built, columns, as_batch):
    """A history that is all recent has a summary as well."""
    model = built("stca_summary")
    batch, _ = as_batch(part_of(columns, slice(-2, None)), 10, ragged=True)
    counts = model.summarize(batch).numpy().reshape(5, 3, -1)[..., -1].sum(axis=1)
    np.testing.assert_allclose(counts, [0, 1, 2, 2, 2], rtol=1e-5)


def test_prototypes_learn_and_tables_have_no_gradient_of_them(built, columns, as_batch):
    model = built("stca_summary")
    batch, _ = as_batch(columns, 10, ragged=True)
    tables = [table.table.embeddings for table in model.body.embedding.tables.values()]
    with tf.GradientTape() as tape:
        summary = model.summarize(batch)
    *of_tables, of_vectors = tape.gradient(summary, [*tables, model.body.prototypes.vectors])
    assert of_tables == [None] * len(tables) and np.abs(of_vectors).max() > 0
