"""The two towers as a Merlin model."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.models import OptionError, build_model
from merlin_sim.models.saving import MODEL_CLASS, MODEL_VARIABLES, named_variables
from merlin_sim.models.towers import PlaceWeights, TwoTowerModel
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

ITEMS, CATEGORIES = 40, 8


def model_of(make_schema, **options):
    tf.keras.utils.set_random_seed(5)
    return build_model("two_tower", make_schema(), **{**TWO_TOWER, **options})


def test_the_logit_is_the_cosine_of_vectors_of_unit_length(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema, temperature=0.5)
    columns, _ = as_batch(make_columns(schema, 6), 10, ragged=False)
    outputs = model.forward(columns)
    users, items = outputs.users.numpy(), outputs.items.numpy()[:, 0]
    np.testing.assert_allclose(np.linalg.norm(users, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(outputs.logits.numpy()[:, 0], 2 * (users * items).sum(1), rtol=1e-4)


def test_an_item_has_one_vector_whoever_is_asked(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema)
    columns, _ = as_batch(make_columns(schema, 5), 10, ragged=False)
    others = {n: v if n in ("item_0", "item_1") else v[::-1] for n, v in columns.items()}
    same, other = model.forward(columns), model.forward(others)
    np.testing.assert_allclose(same.items, other.items, rtol=1e-6)
    assert np.abs(same.users.numpy() - other.users.numpy()).max() > 1e-3


def test_one_users_candidates_are_scored_as_rows_are(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema)
    columns, _ = as_batch(make_columns(schema, 5), 10, ragged=False)
    users = {n: v[:1] for n, v in columns.items() if not n.startswith(("item_0_neg", "item_1_neg"))}
    targets = {n: columns[n][tf.newaxis] for n in ("item_0", "item_1")}
    together = model.forward({**users, **targets}).logits
    rows = {n: tf.repeat(v, 5, axis=0) for n, v in users.items()} | {n: columns[n] for n in targets}
    np.testing.assert_allclose(together, model.forward(rows).logits, rtol=1e-5)
    users["user_0"] = tf.repeat(users["user_0"][:, tf.newaxis], 5, axis=1)
    with pytest.raises(OptionError, match="one vector for all candidates"):
        model.forward({**users, **targets})


def test_popularity_changes_the_loss_and_not_the_logits(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema)
    columns, labels = as_batch(make_columns(schema, 30), 10, ragged=False)
    (before,), logits = model.compute_step(columns, labels)
    counts = np.arange(schema["item_0"].int_domain.max + 1) ** 2
    model.take_target_counts(counts)
    (after,), same = model.compute_step(columns, labels)
    assert abs(float(before) - float(after)) > 1e-3
    np.testing.assert_array_equal(logits, same)
    with pytest.raises(OptionError, match="one for each id"):
        model.take_target_counts(counts[1:])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["saved_model", "weights", "checkpoint"])
def test_popularity_is_kept_with_the_model(form, make_schema, make_columns, as_batch, tmp_path):
    schema = make_schema()
    model = model_of(make_schema)
    columns, labels = as_batch(make_columns(schema, 30), 10, ragged=False)
    model.take_target_counts(np.arange(schema["item_0"].int_domain.max + 1) ** 2)
    (expected,), _ = model.compute_step(columns, labels, training=False)
    place = tmp_path / "model"
    if form == "saved_model":
        model.save(place)
        loaded = TwoTowerModel.load(place)
    elif form == "weights":
        model.save_weights(place)
        loaded = model_of(make_schema)
        loaded.load_weights(str(place))
    else:
        variables = {name: v.numpy() for name, v in named_variables(model).items()}
        facts = {"model_config": model.get_config(), MODEL_CLASS: "TwoTowerModel"}
        CheckpointStore(place).save(
            1, {**facts, MODEL_VARIABLES: list(variables)}, whole(variables)
        )
        loaded = TwoTowerModel.load(place)
    (found,), _ = loaded.compute_step(columns, labels, training=False)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_it_is_made_again_of_its_configuration(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema)
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    columns, _ = as_batch(make_columns(schema, 4), 10, ragged=False)
    np.testing.assert_array_equal(copy.forward(columns).logits, model.forward(columns).logits)


def test_half_precision_keeps_vectors_whole(make_schema, make_columns, as_batch):
    schema = make_schema()
    model = model_of(make_schema)
    half = type(model)(schema, model.options, dtype="mixed_float16")
    half.set_weights(model.get_weights())
    columns, labels = as_batch(make_columns(schema, 4), 10, ragged=False)
    assert half.forward(columns).users.dtype == tf.float32
    np.testing.assert_allclose(
        half.forward(columns).logits, model.forward(columns).logits, atol=0.2
    )
    assert np.isfinite(float(half.compute_step(columns, labels)[0].total_loss))


@pytest.mark.parametrize("temperature", [0, -1.0, True, "warm", float("nan")])
def test_a_temperature_is_above_zero(make_schema, temperature):
    with pytest.raises(OptionError, match="temperature"):
        model_of(make_schema, temperature=temperature)


def test_a_weighting_reads_the_places_that_it_should():
    """An empty history gives zeros; a place that pads counts nothing."""
    weights = PlaceWeights(2, 3)
    vectors = tf.constant([[[5.0], [1.0], [3.0]], [[5.0], [5.0], [5.0]]])
    real = tf.constant([[False, True, True], [False, False, False]])
    means = weights(vectors, real).numpy()
    newest = np.exp(1.0) / (1 + np.exp(1.0))
    np.testing.assert_allclose(means, [[2.0, 1 + 2 * newest], [0.0, 0.0]], rtol=1e-6)


def make_users(rows, seed):
    """Users like the category of their newest item, and in it the popular items."""
    random = np.random.default_rng(seed)
    item_category = (np.arange(ITEMS + 1) - 1) % CATEGORIES + 1
    item_category[0] = 0
    popular = 1 / np.arange(1, ITEMS + 1)
    history = random.choice(np.arange(1, ITEMS + 1), (rows, 10), p=popular / popular.sum())
    liked = item_category[history[:, -1]]
    target = np.zeros(rows, np.int64)
    for category in range(1, CATEGORIES + 1):
        chosen = np.flatnonzero(liked == category)
        of_it = np.flatnonzero(item_category == category)
        weights = popular[of_it - 1]
        target[chosen] = random.choice(of_it, len(chosen), p=weights / weights.sum())
    columns = {
        "item_0": target, "item_1": item_category[target],
        "item_0_hist": history, "item_1_hist": item_category[history],
    }  # fmt: skip
    return columns, np.ones(rows, np.int64), liked


@pytest.mark.slow
def test_it_learns_to_retrieve_what_users_like(make_schema):
    """The five items of the liked category are the nearest, of 40."""
    schema = make_schema(
        users=(), items=(ITEMS, CATEGORIES), history_length=10, ragged=False, negatives=False
    )
    tf.keras.utils.set_random_seed(3)
    model = build_model("two_tower", schema, **TWO_TOWER)
    columns, labels, _ = make_users(6000, 1)
    model.take_target_counts(np.bincount(columns["item_0"], minlength=ITEMS + 1))
    model.compile(tf.keras.optimizers.legacy.Adam(0.01))
    model.fit(columns, labels, batch_size=200, epochs=3, verbose=0)
    test, _, liked = make_users(300, 2)
    test["item_0"][:ITEMS] = np.arange(1, ITEMS + 1)
    test["item_1"][:ITEMS] = np.arange(ITEMS) % CATEGORIES + 1
    outputs = model.forward({name: tf.constant(values) for name, values in test.items()})
    scores = outputs.users.numpy() @ outputs.items.numpy()[:ITEMS, 0].T
    nearest = np.argsort(-scores, axis=1)[:, : ITEMS // CATEGORIES] % CATEGORIES + 1
    assert (nearest == liked[:, None]).mean() > 0.9
