"""What SIM and its kin have beyond the published SIM: searches, times, summaries, tables."""

from __future__ import annotations

import json

import merlin.models.tf as mm
import numpy as np
import pytest
import tensorflow as tf
from grouped_batches import WEIGHT, grouped_batch, losses_and_gradients
from interest_kinds import OPTIONS, build_kind

from merlin_sim.models import OptionError, SIMModel, build_model
from merlin_sim.models.known_families import find_family
from merlin_sim.models.saving import named_variables, table_names

PROJECTION = "body/search_unit/projection/projection"


def make(schema, kind="sim", **options):
    tf.keras.utils.set_random_seed(1)
    small = {"embedding_dim": 4, "long_seq_length": 6}
    if kind != "sdim":
        small["top_k"] = 3
    return build_model(kind, schema, **small, **options)


def test_hard_search_keeps_the_targets_category(make_schema, make_columns, as_batch):
    schema = make_schema(items=(20, 2))
    columns = make_columns(schema, 16, lengths=[10] * 16)
    batch, label = as_batch(columns, 10, ragged=True)
    model = make(schema, search="hard", category_feature="item_1")
    features = model.body.features(batch)
    read = model.body.target_and_history(features, model.body.embed(features))
    found = model.body.search_unit(*read)
    long = np.stack(columns["item_1_hist"])[:, :6]
    for row in range(16):
        same = np.flatnonzero(long[row] == columns["item_1"][row])
        assert np.flatnonzero(found.selected[row]).tolist() == same[-3:].tolist()
    losses, _ = model.compute_step(batch, label)
    assert np.isfinite(losses.total_loss)


@pytest.mark.slow
def test_dropout_reaches_the_auxiliary_network_where_it_is_published(
    schema, make_columns, as_batch
):
    batch, label = as_batch(make_columns(schema, 16, lengths=[10] * 16), 10, ragged=True)
    model = make(schema, dropout_rate=0.5)
    calm, dropped = (
        float(model.compute_step(batch, label, training=training)[0].dien_aux_loss)
        for training in (False, True)
    )
    assert calm != dropped
    assert make(schema).body.auxiliary.dropout is None
    dien = build_model("dien", schema, long_seq_length=6, dropout_rate=0.5)
    assert dien.body.auxiliary.dropout is None


@pytest.mark.slow
def test_time_intervals_are_used_where_they_are(schema, make_schema, make_columns, as_batch):
    with_times = make_schema(intervals=True)
    batch, label = as_batch(make_columns(with_times, 8, lengths=[10] * 8), 10, ragged=True)
    model = make(with_times)
    later = {**batch, "intervals__values": batch["intervals__values"] * 1000}
    assert np.abs(model(later) - model(batch)).max() > 0
    with tf.GradientTape() as tape:
        losses, _ = model.compute_step(batch, label)
    gradients = tape.gradient(losses.total_loss, model.trainable_variables)
    pairs = zip(gradients, model.trainable_variables, strict=True)
    felt = {variable.ref(): gradient for gradient, variable in pairs}
    assert model.body.attention_unit.attended_dim(8) == 4 * (8 + 4)
    assert make(with_times, heads=3).body.attention_unit.attended_dim(8) == 3 * (8 + 4)
    assert make(schema, heads=3).body.attention_unit.attended_dim(8) == 3 * 8
    # A softmax over positions is the same whatever is added to all of them.
    del felt[model.body.interest.activation_unit.dense[-1].bias.ref()]
    assert all(np.any(tf.convert_to_tensor(gradient)) for gradient in felt.values())
    plain = {name: column for name, column in batch.items() if "intervals" not in name}
    with pytest.raises(OptionError, match="missing columns: intervals"):
        model(plain)
    without = make(schema)
    np.testing.assert_array_equal(without(batch), without(plain))


@pytest.mark.slow
def test_the_projection_is_kept_with_the_weights(make_schema, make_columns, as_batch):
    schema = make_schema(ragged=False)
    batch, label = as_batch(make_columns(schema, 5, lengths=[0, 2, 9, 10, 10]), 10, ragged=False)
    model = make(schema, "eta")
    drawn = named_variables(model)[PROJECTION].numpy()
    assert drawn.std() > 0.5 and drawn.tobytes() not in [
        weight.numpy().tobytes() for weight in model.trainable_variables
    ]
    model.compile("adam", run_eagerly=True)
    model.train_step((batch, label))
    np.testing.assert_array_equal(named_variables(model)[PROJECTION], drawn)
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert np.any(named_variables(copy)[PROJECTION] != drawn), "a new model draws its own"
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy(batch), model(batch))


def test_twin_has_one_attention_for_both_stages(schema):
    model = make(schema, "twin")
    names = [name for name in named_variables(model) if "target_attention" in name]
    assert len(names) == 3
    assert model.body.search_unit.attention is model.body.attention_unit.attention


def test_sim_without_first_stage_and_dien_needs_no_negatives(schema, make_columns, as_batch):
    batch, label = as_batch(make_columns(schema, 5), 10, ragged=True)
    served = {name: column for name, column in batch.items() if "neg" not in name}
    frame = {"stage_one": False, "short_history": "attention"}
    model = SIMModel.from_schema(schema, embedding_dim=4, long_seq_length=6, **frame)
    losses, _ = model.compute_step(served, label)
    assert losses.dien_aux_loss == 0 and losses.total_loss == losses.classification_loss
    assert model.training_columns == (model.label, *model.served_columns)


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


BY = "attention_embedding"


def taken(name):
    """The name of the table that says what is taken, beside one that searches and attends."""
    if BY not in name:
        return name
    return name.replace(BY, "embedding").replace("_attention", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width"),
    [("din_activation_unit", 6), ("sim_heads", 4), ("twin", 6)],
)
def test_with_equal_tables_it_is_the_model_with_one_and_gradients_add_up(kind, width, schema):
    """Those of attention are as wide as those that are given, whatever the others are."""
    more = {"stage_one": True} if kind == "twin" else {}
    one, two = (
        build_kind(
            kind,
            schema,
            separate_attention=separate,
            tables=None if width == 4 else {"item_0": mm.EmbeddingTable(6, schema["item_0"])},
            **more,
        )
        for separate in (False, True)
    )
    shared, own = named_variables(one), named_variables(two)
    assert len(own) == len(shared) + 2  # the item's two features
    for name, variable in own.items():
        variable.assign(shared[taken(name)])
    columns, labels = grouped_batch(schema)
    results = []
    for model in (one, two):
        losses, logits, gradients = losses_and_gradients(model, columns, labels, WEIGHT)
        names = {variable.ref(): name for name, variable in named_variables(model).items()}
        trained = [names[variable.ref()] for variable in model.trainable_variables]
        results.append((losses, logits, dict(zip(trained, gradients, strict=True))))
    (losses, logits, gradients), (of_two, logits_of_two, parts) = results
    np.testing.assert_allclose(of_two, losses, rtol=1e-5)
    np.testing.assert_allclose(logits_of_two, logits, atol=1e-5)
    sums = dict.fromkeys(gradients, 0.0)
    for name, gradient in parts.items():
        sums[taken(name)] = sums[taken(name)] + gradient.numpy()
    for name, gradient in gradients.items():
        error = np.linalg.norm(sums[name] - gradient.numpy())
        assert error <= 2e-5 * np.linalg.norm(gradient) + 1e-7, name
    assert all(np.any(gradient) for name, gradient in parts.items() if BY in name)


def test_a_model_with_a_table_of_another_width_is_made_again_of_its_configuration(schema):
    tables = {"item_0": mm.EmbeddingTable(6, schema["item_0"])}
    model = build_kind("twin", schema, separate_attention=True, tables=tables)
    embedding = model.body.attention_embedding
    assert embedding.width_of["item_0"] == 6 and embedding.width_of["item_1"] == 4
    copy = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert [v.shape for v in copy.variables] == [v.shape for v in model.variables]
    alone = type(embedding).from_config(json.loads(json.dumps(embedding.get_config())))
    assert alone.width_of == embedding.width_of


def test_a_plan_of_tables_has_those_of_attention_too(schema, built):
    model = built("sim_separate")
    planned = {table.name: table for table in find_family("sim").tables(schema, model.options)}
    assert set(planned) == set(table_names(model).values())
    variables = named_variables(model)
    for name, table in table_names(model).items():
        assert variables[name].shape == [planned[table].rows, planned[table].width]
    of_attention = {name for name in planned if name.endswith("_attention")}
    assert of_attention == {"item_0_attention", "item_1_attention"}
