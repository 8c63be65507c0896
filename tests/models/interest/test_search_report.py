from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.models import OptionError, SIMModel, build_model
from merlin_sim.models.search_report import format_search_report, search_report


@pytest.fixture
def model(make_schema):
    """One item feature pair; vectors set so that scores are known."""
    schema = make_schema(users=(), items=(9, 3), history_length=7)
    model = SIMModel.from_schema(schema, embedding_dim=1, long_seq_length=6, top_k=2)
    tables = model.body.embedding.tables
    tables["item_0"].table.embeddings.assign(np.arange(10, dtype=np.float32)[:, None] / 4)
    tables["item_1"].table.embeddings.assign(np.zeros([4, 1]))
    return model


def batch():
    """Long histories 9 8 7 of categories 1 1 2 | 5 of category 3 | none; target of category 1."""
    items = [[0, 0, 0, 9, 8, 7, 1], [0, 0, 0, 0, 0, 5, 1], [0, 0, 0, 0, 0, 0, 1]]
    categories = [[0, 0, 0, 1, 1, 2, 1], [0, 0, 0, 0, 0, 3, 1], [0, 0, 0, 0, 0, 0, 1]]
    return {
        "item_0": tf.constant([4, 4, 4]),
        "item_1": tf.constant([1, 1, 1]),
        "item_0_hist": tf.constant(items),
        "item_1_hist": tf.constant(categories),
    }


def test_a_report_worked_out_by_hand(model):
    short, long = search_report(model, [batch()], category_feature="item_1", longest=[1])
    assert (short.lengths, short.samples) == ((1, 1), 1)
    assert (short.soft_recall, short.hard_recall, short.overlap) == (1.0, 0.0, 0.0)
    assert (long.lengths, long.samples) == ((2, 6), 1)
    weights = np.exp(np.array([9, 8, 7]) / 4)
    kept = weights[:2].sum() / weights.sum()
    assert (long.soft_recall, long.hard_recall, long.overlap) == (1.0, 1.0, 1.0)
    assert (long.recall, long.attention) == (long.soft_recall, long.soft_attention), "it is soft"
    assert long.soft_attention == pytest.approx(kept, rel=1e-5)
    assert long.hard_attention == pytest.approx(kept, rel=1e-5)


def test_without_a_category_there_is_no_hard_search(model):
    rows = search_report(model, [batch(), batch()])
    assert [row.samples for row in rows] == [2, 2]
    assert all(row.hard_recall is row.hard_attention is row.overlap is None for row in rows)
    table = format_search_report(rows)
    assert table.splitlines()[1].split() == ["1-1", "2", *["1.000"] * 4, "-", "-", "-"]


def test_soft_search_misses_what_heads_and_times_look_at(make_schema, make_columns, as_batch):
    schema = make_schema(intervals=True)
    model = SIMModel.from_schema(schema, embedding_dim=4, long_seq_length=8, top_k=2)
    columns, _ = as_batch(make_columns(schema, 64, lengths=[10] * 64), 10, ragged=True)
    (row,) = search_report(model, [columns], "item_1")
    assert row.samples == 64 and 0 < row.soft_recall < 1 and 0 < row.overlap < 1


def test_no_batch_is_no_row_and_a_wrong_category_an_error(model):
    assert search_report(model, []) == []
    with pytest.raises(OptionError, match="`category_feature` should be 'item_0' or 'item_1'"):
        search_report(model, [batch()], category_feature="color")


@pytest.fixture
def report_of(make_schema, make_columns, as_batch):
    """The report of a model with random weights on 64 samples of the longest histories."""
    schema = make_schema(history_length=20)
    columns, _ = as_batch(make_columns(schema, 64, lengths=[20] * 64), 20, ragged=True)

    def report(model_type, best=None, **options):
        tf.keras.utils.set_random_seed(1)
        model = build_model(model_type, schema, embedding_dim=4, long_seq_length=16, **options)
        (row,) = search_report(model, [columns], best=best)
        return row

    return report


def test_twin_finds_what_its_attention_looks_at_and_soft_search_does_not(report_of):
    row = report_of("twin", top_k=4)
    assert row.recall == 1.0 and 0 < row.soft_recall < 1
    assert row.attention > row.soft_attention


@pytest.mark.slow
def test_hashes_find_some_of_it_and_more_of_them_more(report_of):
    assert 0 < report_of("eta", top_k=4).recall < 1
    few, many = (
        report_of("sdim", best=4, hashes=count, bits_per_hash=2).recall for count in (1, 200)
    )
    assert 0 < few < many < 1


def test_more_than_the_search_keeps_cannot_be_found(report_of):
    assert report_of("twin", top_k=4, best=8).recall == 0.5
    with pytest.raises(OptionError, match="`best` should be a positive integer"):
        report_of("sdim", best=0)
