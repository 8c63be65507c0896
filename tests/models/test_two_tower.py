"""The two towers as a Merlin model, and the loss of retrieval beside one worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from small_runs import TWO_TOWER

from merlin_sim.models import OptionError, build_model
from merlin_sim.models.losses import sampled_softmax_loss
from merlin_sim.models.saving import MODEL_CLASS, MODEL_VARIABLES, named_variables
from merlin_sim.models.towers import PositionWeights, TwoTowerModel
from merlin_sim.parallel.checkpoints.array_files import whole
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore

ITEMS, CATEGORIES = 40, 8


@pytest.fixture(scope="module")
def schema(make_schema):
    return make_schema()


@pytest.fixture
def batch(schema, make_columns, as_batch):
    return as_batch(make_columns(schema, 30), 10, ragged=False)


def model_of(schema, **options):
    tf.keras.utils.set_random_seed(5)
    return build_model("two_tower", schema, **{**TWO_TOWER, **options})


def test_the_logit_is_the_cosine_of_vectors_and_an_item_has_one_vector_for_all(schema, batch):
    model, (columns, labels) = model_of(schema, temperature=0.5), batch
    outputs = model.forward(columns)
    users, items = outputs.users.numpy(), outputs.items.numpy()[:, 0]
    np.testing.assert_allclose(np.linalg.norm(users, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(items, axis=1), 1, rtol=1e-5)
    cosines = 2 * (users * items).sum(1)
    np.testing.assert_allclose(outputs.logits.numpy()[:, 0], cosines, rtol=1e-4)
    others = {n: v if n in ("item_0", "item_1") else v[::-1] for n, v in columns.items()}
    other = model.forward(others)
    np.testing.assert_allclose(outputs.items, other.items, rtol=1e-6)
    assert np.abs(users - other.users.numpy()).max() > 1e-3
    copy = type(model).from_config(model.get_config())
    copy.set_weights(model.get_weights())
    np.testing.assert_array_equal(copy.forward(columns).logits, outputs.logits)
    half = type(model)(schema, model.options, dtype="mixed_float16")
    half.set_weights(model.get_weights())
    assert half.forward(columns).users.dtype == tf.float32
    np.testing.assert_allclose(half.forward(columns).logits, outputs.logits, atol=0.2)
    assert np.isfinite(float(half.compute_step(columns, labels)[0].total_loss))


def test_one_users_candidates_are_scored_as_rows_are(schema, batch):
    model, columns = model_of(schema), {n: v[:5] for n, v in batch[0].items()}
    users = {n: v[:1] for n, v in columns.items() if not n.startswith(("item_0_neg", "item_1_neg"))}
    targets = {n: columns[n][tf.newaxis] for n in ("item_0", "item_1")}
    together = model.forward({**users, **targets}).logits
    rows = {n: tf.repeat(v, 5, axis=0) for n, v in users.items()} | {n: columns[n] for n in targets}
    np.testing.assert_allclose(together, model.forward(rows).logits, rtol=1e-5)
    users["user_0"] = tf.repeat(users["user_0"][:, tf.newaxis], 5, axis=1)
    with pytest.raises(OptionError, match="one vector for all candidates"):
        model.forward({**users, **targets})


@pytest.mark.slow
def test_popularity_changes_the_loss_and_is_kept_with_the_model(schema, batch, tmp_path):
    model, (columns, labels) = model_of(schema), batch
    (before,), logits = model.compute_step(columns, labels, training=False)
    counts = np.arange(schema["item_0"].int_domain.max + 1) ** 2
    model.take_target_counts(counts)
    (expected,), same = model.compute_step(columns, labels, training=False)
    assert abs(float(before) - float(expected)) > 1e-3
    np.testing.assert_array_equal(logits, same)
    with pytest.raises(OptionError, match="one for each id"):
        model.take_target_counts(counts[1:])

    model.save(tmp_path / "saved")
    model.save_weights(tmp_path / "weights")
    of_weights = model_of(schema)
    of_weights.load_weights(str(tmp_path / "weights"))
    variables = {name: v.numpy() for name, v in named_variables(model).items()}
    metadata = {"model_config": model.get_config(), MODEL_CLASS: "TwoTowerModel"}
    metadata[MODEL_VARIABLES] = list(variables)
    CheckpointStore(tmp_path / "store").save(1, metadata, whole(variables))
    loaded = [TwoTowerModel.load(tmp_path / form) for form in ("saved", "store")]
    for again in (of_weights, *loaded):
        (found,), _ = again.compute_step(columns, labels, training=False)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("temperature", [0, -1.0, True, "warm", float("nan")])
def test_a_temperature_is_above_zero(schema, temperature):
    with pytest.raises(OptionError, match="temperature"):
        model_of(schema, temperature=temperature)


def test_a_weighting_reads_the_positions_that_it_should():
    """An empty history gives zeros; padding counts nothing."""
    weights = PositionWeights(2, 3)
    vectors = tf.constant([[[5.0], [1.0], [3.0]], [[5.0], [5.0], [5.0]]])
    real = tf.constant([[False, True, True], [False, False, False]])
    means = weights(vectors, real).numpy()
    newest = np.exp(1.0) / (1 + np.exp(1.0))
    np.testing.assert_allclose(means, [[2.0, 1 + 2 * newest], [0.0, 0.0]], rtol=1e-6)


def by_hand(logits, items, chances, weights):
    costs = []
    for row, weight in enumerate(weights):
        others = [j for j in range(len(items)) if j == row or items[j] != items[row]]
        powers = {j: np.exp(logits[row][j]) / chances[j] for j in others}
        costs.append(-weight * np.log(powers[row] / sum(powers.values())))
    return sum(costs) / sum(weights)


def test_the_loss_of_any_rows_and_its_gradient():
    """By hand, of three rows; the third has the same item as the first and is left out there."""
    logits = np.log([[2.0, 3.0, 5.0], [1.0, 4.0, 1.0], [1.0, 1.0, 1.0]])
    expected = (-np.log(4 / (4 + 15)) - 3 * np.log(20 / (2 + 20 + 2))) / 4
    three = logits, [7, 8, 7], [0.5, 0.2, 0.5], [1.0, 3.0, 0.0]
    assert by_hand(*three) == pytest.approx(expected)

    random = np.random.default_rng(3)
    logits = random.normal(size=(9, 9)).astype(np.float32)
    items, weights = random.integers(1, 5, 9), random.random(9).astype(np.float32)
    chances = random.random(6).astype(np.float32)[items]
    given = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = sampled_softmax_loss(
            given, tf.constant(items), tf.math.log(chances), tf.constant(weights)
        )
    assert float(loss) == pytest.approx(by_hand(logits, items, chances, weights), rel=1e-4)
    gradient = tape.gradient(loss, given).numpy()
    np.testing.assert_allclose(gradient.sum(axis=1), 0, atol=1e-6)  # a softmax's
    repeated = (items[:, None] == items[None]) & ~np.eye(9, dtype=bool)
    assert repeated.any() and not gradient[repeated].any()


def test_a_batch_without_a_click_costs_nothing():
    """As a rank has it that is given a filler."""
    given = tf.Variable(tf.ones([1, 1]))
    with tf.GradientTape() as tape:
        loss = sampled_softmax_loss(given, tf.constant([0]), tf.zeros([1]), tf.zeros([1]))
    assert float(loss) == 0.0
    assert tape.gradient(loss, given).numpy().tolist() == [[0.0]]


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
    model.compile(tf.keras.optimizers.legacy.Adam(0.01), metrics=[])
    model.fit(columns, labels, batch_size=200, epochs=3, verbose=0)
    test, _, liked = make_users(300, 2)
    test["item_0"][:ITEMS] = np.arange(1, ITEMS + 1)
    test["item_1"][:ITEMS] = np.arange(ITEMS) % CATEGORIES + 1
    outputs = model.forward({name: tf.constant(values) for name, values in test.items()})
    scores = outputs.users.numpy() @ outputs.items.numpy()[:ITEMS, 0].T
    nearest = np.argsort(-scores, axis=1)[:, : ITEMS // CATEGORIES] % CATEGORIES + 1
    assert (nearest == liked[:, None]).mean() > 0.9
