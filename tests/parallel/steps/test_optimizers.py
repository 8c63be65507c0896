from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.parallel.steps.optimizers import (
    SGD,
    Adam,
    LazyAdam,
    WarmUpAndDecay,
    find_optimizer,
    make_optimizer,
)

PUBLISHED = WarmUpAndDecay(24.0, 8000, 48_000, 24_000, 2.0)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),
        (4000, 12.0),
        (8000, 24.0),
        (48_000, 24.0),
        (60_000, 6.0),
        (72_000, 0.0),
        (90_000, 0.0),
    ],
)
def test_the_published_schedule(step, rate):
    assert float(PUBLISHED(step)) == pytest.approx(rate, abs=1e-5)


def test_without_anything_the_rate_is_constant():
    assert {float(WarmUpAndDecay(0.5)(step)) for step in (0, 10, 10**6)} == {0.5}


def test_every_optimizer_follows_it_within_a_graph():
    for name in ("adam", "lazy_adam", "sgd", "adagrad"):
        weight = tf.Variable([1.0])
        optimizer = make_optimizer(name, [weight], WarmUpAndDecay(0.1, 2, 3, 1))
        step = tf.function(
            lambda o=optimizer, w=weight: o.apply_gradients([(tf.ones([1]), w)]), autograph=False
        )
        found = []
        for _ in range(5):
            step()
            found.append(float(weight[0]))
        steps = -np.diff([1.0, *found])
        assert steps[0] == 0 and steps[4] == 0 and (steps[1:4] > 0).all(), name
        copy = type(optimizer).from_config(optimizer.get_config())
        assert float(copy._learning_rate(1)) == pytest.approx(0.05)


ROWS, DIM = 9, 3
START = np.linspace(-1, 1, ROWS * DIM).reshape(ROWS, DIM).astype(np.float32)
BATCHES = [([1, 4, 1], 0), ([2], 1), ([4, 4, 8, 0], 2), ([1], 3)]


def slices(rows, seed):
    values = np.random.default_rng(seed).normal(size=(len(rows), DIM)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([ROWS, DIM]))


def trained(name, gradients, weight_decay=0.0):
    table = tf.Variable(START, name="table")
    optimizer = make_optimizer(name, [table], 0.1, weight_decay)
    step = tf.function(
        lambda gradient: optimizer.apply_gradients([(gradient, table)]), autograph=False
    )
    for gradient in gradients:
        step(gradient)
    return table.numpy(), optimizer


def keras(optimizer, gradients):
    table = tf.Variable(START)
    for gradient in gradients:
        optimizer.apply_gradients([(gradient, table)])
    return table.numpy()


SPARSE = [slices(rows, seed) for rows, seed in BATCHES]
DENSE = [tf.convert_to_tensor(gradient) for gradient in SPARSE]


@pytest.mark.parametrize("gradients", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_adam_is_kerass(gradients):
    expected = keras(tf.keras.optimizers.legacy.Adam(0.1), DENSE)
    np.testing.assert_allclose(trained("adam", gradients)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gradients", [SPARSE, DENSE], ids=["sparse", "dense"])
def test_sgd_is_kerass(gradients):
    expected = keras(tf.keras.optimizers.legacy.SGD(0.1), DENSE)
    np.testing.assert_allclose(trained("sgd", gradients)[0], expected, rtol=1e-5, atol=1e-6)


def test_lazy_adam_is_adam_for_rows_named_every_time():
    always = [slices([0, 3, 3, 5], seed) for seed in range(5)]
    lazy, _ = trained("lazy_adam", always)
    adam, _ = trained("adam", always)
    np.testing.assert_allclose(lazy[[0, 3, 5]], adam[[0, 3, 5]], rtol=1e-4, atol=1e-5)


def test_lazy_adam_leaves_other_rows_and_their_moments_alone():
    table, optimizer = trained("lazy_adam", SPARSE[:2])
    untouched = [0, 3, 5, 6, 7, 8, 4][:6]
    np.testing.assert_array_equal(table[untouched], START[untouched])
    for name in ("m", "v"):
        assert not optimizer.slots[name][0].numpy()[untouched].any()


def test_lazy_adam_leaves_a_row_alone_that_was_named_before():
    table, _ = trained("lazy_adam", SPARSE[:2])
    later, _ = trained("lazy_adam", [*SPARSE[:2], SPARSE[3]])
    np.testing.assert_array_equal(later[4], table[4])
    assert (later[1] != table[1]).all()


def test_adam_moves_every_row_with_momentum():
    table, _ = trained("adam", SPARSE[:1])
    later, _ = trained("adam", SPARSE[:2])
    assert (table[4] != later[4]).all()  # named by the first batch only


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_weight_decay_takes_its_share_whatever_the_learning_rate(name):
    zero = [tf.zeros([ROWS, DIM])] * 2
    table, _ = trained(name, zero, weight_decay=0.25)
    np.testing.assert_allclose(table, START * 0.75**2, rtol=1e-6)


@pytest.mark.parametrize("name", ["lazy_adam", "sgd"])
def test_weight_decay_of_tables_hits_named_rows_once(name):
    rows, shape = tf.constant([1, 4, 1]), tf.constant([ROWS, DIM])
    gradient = tf.IndexedSlices(tf.zeros([3, DIM]), rows, shape)
    table, _ = trained(name, [gradient], weight_decay=0.5)
    expected = START.copy()
    expected[[1, 4]] *= 0.5
    np.testing.assert_allclose(table, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["adam", "lazy_adam", "sgd", "adagrad"])
@pytest.mark.parametrize("of_tables", [None, 0.0, 0.5])
def test_tables_may_have_a_weight_decay_of_their_own(name, of_tables):
    table, kernel = tf.Variable(START, name="item/embeddings"), tf.Variable(START, name="kernel")
    optimizer = make_optimizer(name, [table, kernel], 0.1, 0.25, of_tables)
    rows = tf.range(ROWS)
    nothing = tf.zeros([ROWS, DIM])
    gradient = tf.IndexedSlices(nothing, rows, tf.constant([ROWS, DIM]))
    optimizer.apply_gradients([(gradient, table), (nothing, kernel)])
    kept = 0.75 if of_tables is None else 1 - of_tables
    np.testing.assert_allclose(table, START * kept, rtol=1e-6)
    np.testing.assert_allclose(kernel, START * 0.75, rtol=1e-6)
    again = type(optimizer).from_config(optimizer.get_config())
    assert (again.weight_decay, again.table_weight_decay) == (0.25, of_tables)


@pytest.mark.parametrize("name", ["adam", "lazy_adam", "sgd", "adagrad"])
@pytest.mark.parametrize("in_rows", [False, True])
def test_tables_may_have_a_part_of_the_learning_rate(name, in_rows):
    table, kernel = tf.Variable(START, name="item/embeddings"), tf.Variable(START, name="kernel")
    optimizer = make_optimizer(name, [table, kernel], 0.2, table_lr_scale=0.25)
    slower = tf.Variable(START, name="item/embeddings")
    expected = make_optimizer(name, [slower], 0.05)
    dense = tf.random.normal([ROWS, DIM], seed=1)
    gradient = slices([0, 3, 3, 5], 1) if in_rows else dense
    optimizer.apply_gradients([(gradient, table), (dense, kernel)])
    expected.apply_gradients([(gradient, slower)])
    np.testing.assert_array_equal(table, slower)
    alone = tf.Variable(START, name="kernel")
    make_optimizer(name, [alone], 0.2).apply_gradients([(dense, alone)])
    np.testing.assert_array_equal(kernel, alone)
    again = type(optimizer).from_config(optimizer.get_config())
    assert again.table_lr_scale == 0.25


def test_its_variables_have_names_of_their_own_in_a_fixed_order():
    variables = [tf.Variable(START, name=name) for name in ("one/kernel", "two/kernel")]
    with tf.name_scope("elsewhere"):
        optimizer = make_optimizer("adam", variables, 0.1)
    assert [variable.name for variable in optimizer.variables] == [
        "iteration:0",
        *("one/kernel/m:0", "two/kernel/m:0", "one/kernel/v:0", "two/kernel/v:0"),
    ]
    optimizer.build(variables)
    assert len(optimizer.variables) == 5


@pytest.mark.parametrize("made", [Adam(0.5, 0.8, 0.9, 1e-3, 0.25), LazyAdam(0.5), SGD(0.5, 0.25)])
def test_a_configuration_makes_a_copy(made):
    config = tf.keras.optimizers.serialize(made)
    copy = tf.keras.optimizers.deserialize(config)
    assert type(copy) is type(made) and copy.get_config() == made.get_config()
    assert made.get_config()["learning_rate"] == 0.5


def test_a_schedule_gives_the_rate_of_each_step():
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.125])
    weight = tf.Variable(1.0)
    optimizer = SGD(schedule)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
    assert weight.numpy() == 1 - 0.5 - 0.25 - 0.125
    copy = SGD.from_config(optimizer.get_config())
    assert copy.get_config()["learning_rate"] == optimizer.get_config()["learning_rate"]


@pytest.mark.parametrize("name", ["adam", "lazy_adam", "sgd"])
def test_a_rate_that_changes_is_read_in_every_step(name):
    table = tf.Variable(START)
    optimizer = make_optimizer(name, [table], 0.1)
    step = tf.function(
        lambda gradient: optimizer.apply_gradients([(gradient, table)]), autograph=False
    )
    step(SPARSE[0])
    optimizer.learning_rate = 0.0
    before = table.numpy()
    step(SPARSE[1])
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("gradient", [SPARSE[1], DENSE[1]], ids=["sparse", "dense"])
def test_clipping_as_in_keras(gradient):
    table = tf.Variable(START)
    SGD(1.0, clipnorm=1e-3).apply_gradients([(gradient, table)])
    np.testing.assert_allclose(np.linalg.norm(table.numpy() - START), 1e-3, rtol=1e-3)


def row_wise(table, sums, gradients, rate=0.1, epsilon=1e-8):
    """Adagrad by rows, in numpy."""
    for gradient in gradients:
        rows = np.unique(gradient.indices.numpy())
        total = np.zeros_like(table)
        np.add.at(total, gradient.indices.numpy(), gradient.values.numpy())
        sums[rows] += (total[rows] ** 2).mean(axis=1, keepdims=True)
        table[rows] -= rate * total[rows] / (np.sqrt(sums[rows]) + epsilon)
    return table, sums


def test_adagrad_of_a_table_keeps_one_float_a_row():
    table = tf.Variable(START, name="item/embeddings")
    optimizer = make_optimizer("adagrad", [table], 0.1)
    step = tf.function(
        lambda gradient: optimizer.apply_gradients([(gradient, table)]), autograph=False
    )
    for gradient in SPARSE:
        step(gradient)
    expected, sums = row_wise(START.copy(), np.zeros([ROWS, 1], np.float32), SPARSE)
    np.testing.assert_allclose(table, expected, rtol=1e-5)
    np.testing.assert_allclose(optimizer.slots["sum"][0], sums, rtol=1e-5)
    untouched = [3, 5, 6, 7]
    np.testing.assert_array_equal(table.numpy()[untouched], START[untouched])


def test_adagrad_of_a_whole_table_changes_it_as_its_rows_do():
    """What ranks exchange as whole tables: rows that no batch names have no gradient."""
    tables = [tf.Variable(START, name="item/embeddings") for _ in range(2)]
    for table, gradients in zip(tables, (SPARSE, DENSE), strict=True):
        optimizer = make_optimizer("adagrad", [table], 0.1)
        for gradient in gradients:
            optimizer.apply_gradients([(gradient, table)])
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-5)


def test_adagrad_of_all_else_is_kerass():
    optimizer = tf.keras.optimizers.Adagrad(0.1, initial_accumulator_value=0.0, epsilon=1e-8)
    np.testing.assert_allclose(trained("adagrad", DENSE)[0], keras(optimizer, DENSE), rtol=1e-4)


@pytest.fixture
def weight():
    return tf.Variable([1.0], name="weight")


@pytest.mark.parametrize(
    ("name", "expected"), [("adam", Adam), ("Adam", Adam), ("lazy_adam", LazyAdam), ("sgd", SGD)]
)
def test_the_published_names_give_ours(name, expected, weight):
    optimizer = find_optimizer(name, [weight])
    assert type(optimizer) is expected
    assert float(optimizer.learning_rate) == pytest.approx(0.01 if name == "sgd" else 0.001)


@pytest.mark.parametrize(
    "given", [tf.keras.optimizers.Adagrad, tf.keras.optimizers.legacy.Adam, Adam]
)
def test_an_optimizer_stays_the_one_given_and_has_its_moments(given, weight):
    optimizer = given()
    assert find_optimizer(optimizer, [weight]) is optimizer
    made = len(optimizer.variables())
    optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    assert made > 1 and len(optimizer.variables()) == made


def test_other_names_are_those_of_keras(weight):
    assert isinstance(find_optimizer("rmsprop", [weight]), tf.keras.optimizers.legacy.RMSprop)
    with pytest.raises(ValueError, match="nonsense"):
        find_optimizer("nonsense", [weight])


def test_what_averages_or_scales_by_itself_is_refused(weight):
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    legacy = tf.keras.optimizers.legacy.SGD()
    hvd = pytest.importorskip("horovod.tensorflow.keras")
    for optimizer in (scaling(SGD()), scaling(legacy), hvd.DistributedOptimizer(legacy)):
        with pytest.raises(MerlinSimError, match="should be a plain Keras optimizer"):
            find_optimizer(optimizer, [weight])
