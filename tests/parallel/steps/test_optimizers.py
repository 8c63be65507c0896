"""Optimizers of tables and layers: Keras's steps, rows alone where they are lazy, rates, decay."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.steps import OPTIMIZERS
from merlin_sim.parallel.steps.loss_scale import LossScale
from merlin_sim.parallel.steps.optimizers import (
    SGD,
    Adam,
    LazyAdam,
    ScaledRows,
    WarmUpAndDecay,
    find_optimizer,
    make_optimizer,
)
from merlin_sim.parallel.steps.train_step import TrainStep

ROWS, DIM = 9, 3
START = np.linspace(-1, 1, ROWS * DIM).reshape(ROWS, DIM).astype(np.float32)
BATCHES = [([1, 4, 1], 0), ([2], 1), ([4, 4, 8, 0], 2), ([1], 3)]


def slices(rows, seed):
    values = np.random.default_rng(seed).normal(size=(len(rows), DIM)).astype(np.float32)
    return tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant([ROWS, DIM]))


SPARSE = [slices(rows, seed) for rows, seed in BATCHES]
DENSE = [tf.convert_to_tensor(gradient) for gradient in SPARSE]


def trained(make, gradients, name="table"):
    """Apply gradients one by one; gives the table after each of them, and the optimizer.

    The last batch is computed in a graph, for steps to be the same there.
    """
    table = tf.Variable(START, name=name)
    optimizer = make([table])

    def step(gradient):
        optimizer.apply_gradients([(gradient, table)])

    in_graph, tables = tf.function(step, autograph=False), []
    for number, gradient in enumerate(gradients):
        (in_graph if number == len(BATCHES) - 1 else step)(gradient)
        tables.append(table.numpy())
    return tables, optimizer


def made(name, rate=0.1, *decays, **options):
    """What makes an optimizer for the table that it trains."""
    return lambda variables: make_optimizer(name, variables, rate, *decays, **options)


def test_the_published_schedule():
    published = WarmUpAndDecay(24.0, 8000, 48_000, 24_000, 2.0)
    rates = {0: 0.0, 4000: 12.0, 8000: 24.0, 48_000: 24.0, 60_000: 6.0, 72_000: 0.0, 90_000: 0.0}
    for step, rate in rates.items():
        assert float(published(step)) == pytest.approx(rate, abs=1e-5)
    assert {float(WarmUpAndDecay(0.5)(step)) for step in (0, 10, 10**6)} == {0.5}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_is_read_in_every_step_of_a_graph(name):
    weight = tf.Variable([1.0])
    optimizer = make_optimizer(name, [weight], WarmUpAndDecay(0.1, 2, 3, 1))
    step = tf.function(lambda: optimizer.apply_gradients([(tf.ones([1]), weight)]), autograph=False)
    found = [1.0]
    for _ in range(5):
        step()
        found.append(float(weight[0]))
    steps = -np.diff(found)
    assert steps[0] == 0 and steps[4] == 0 and (steps[1:4] > 0).all()
    copy = type(optimizer).from_config(optimizer.get_config())
    assert copy.get_config() == optimizer.get_config()
    # A plain rate may be changed between steps.
    optimizer = make_optimizer(name, [weight], 0.1)
    step = tf.function(lambda: optimizer.apply_gradients([(tf.ones([1]), weight)]), autograph=False)
    step()
    optimizer.learning_rate = 0.0
    before = weight.numpy()
    step()
    np.testing.assert_array_equal(weight, before)


KERAS = {
    "adam": lambda _: tf.keras.optimizers.legacy.Adam(0.1),
    "sgd": lambda _: tf.keras.optimizers.legacy.SGD(0.1),
    "adagrad": lambda _: tf.keras.optimizers.Adagrad(
        0.1, initial_accumulator_value=0.0, epsilon=1e-8
    ),
}


@pytest.mark.parametrize("name", KERAS)
def test_steps_are_kerass(name):
    expected = trained(KERAS[name], DENSE)[0][-1]
    forms, rtol = ((DENSE,), 1e-4) if name == "adagrad" else ((DENSE, SPARSE), 1e-5)
    for gradients in forms:
        found = trained(made(name), gradients)[0][-1]
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=1e-6)


class LooksUp:
    """A model whose gradient is 1 for each row that a batch looks up."""

    def __init__(self):
        self.table = tf.Variable(tf.zeros([2, 1]), name="embeddings")
        self.trainable_variables = [self.table]

    def compute_step(self, columns, labels, sample_weight, training):
        looked_up = tf.gather(self.table, columns["row"])[:, 0]
        return [tf.reduce_sum(looked_up)], looked_up


@pytest.mark.parametrize("kind", [SGD, tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD])
@pytest.mark.parametrize("clip", ["clipnorm", "clipvalue", "global_clipnorm"])
def test_rows_named_several_times_are_added_up_before_they_are_clipped(kind, clip):
    """Else it would depend on the number of ranks, which send the rows that each has named."""
    model = LooksUp()
    optimizer = find_optimizer(kind(1.0, **{clip: 1.5}), model.trainable_variables)
    step = TrainStep(model, optimizer, LossScale(False), Ranks())
    step.run_alone({"row": tf.constant([0, 0])}, tf.zeros([2]), None)
    np.testing.assert_allclose(model.table, [[-1.5], [0.0]], rtol=1e-6)


def test_lazy_adam_is_adam_for_rows_named_every_time_and_leaves_others_alone():
    always = [slices([0, 3, 3, 5], seed) for seed in range(5)]
    lazy, adam = (trained(made(name), always)[0][-1] for name in ("lazy_adam", "adam"))
    np.testing.assert_allclose(lazy[[0, 3, 5]], adam[[0, 3, 5]], rtol=1e-4, atol=1e-5)
    (first, second, _, last), optimizer = trained(made("lazy_adam"), SPARSE)
    untouched = [3, 5, 6, 7]
    np.testing.assert_array_equal(last[untouched], START[untouched])
    for name in ("m", "v"):
        assert not optimizer.slots[name][0].numpy()[untouched].any()
    np.testing.assert_array_equal(second[4], first[4])  # named before, and not now
    adam = trained(made("adam"), SPARSE[:2])[0]
    assert (adam[1][4] != adam[0][4]).all(), "Adam moves every row with momentum"


@pytest.mark.parametrize("name", ["adam", "sgd", "lazy_adam"])
def test_weight_decay_takes_its_share_of_what_is_named_once(name):
    zero = tf.zeros([ROWS, DIM])
    if name != "lazy_adam":
        (_, table), _ = trained(made(name, 0.1, 0.25), [zero, zero])
        np.testing.assert_allclose(table, START * 0.75**2, rtol=1e-6)
    if name != "adam":
        rows, shape = tf.constant([1, 4, 1]), tf.constant([ROWS, DIM])
        gradient = tf.IndexedSlices(tf.zeros([3, DIM]), rows, shape)
        (table,), _ = trained(made(name, 0.1, 0.5), [gradient])
        expected = START.copy()
        expected[[1, 4]] *= 0.5
        np.testing.assert_allclose(table, expected, rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_tables_may_have_a_weight_decay_and_a_part_of_the_rate_of_their_own(name):
    nothing = tf.zeros([ROWS, DIM])
    in_rows = tf.IndexedSlices(nothing, tf.range(ROWS), tf.constant([ROWS, DIM]))
    for of_tables in (None, 0.0, 0.5):
        decayed = made(name, 0.1, 0.25, of_tables)
        kept = 0.75 if of_tables is None else 1 - of_tables
        for variable, share in (("item/embeddings", kept), ("kernel", 0.75)):
            gradient = in_rows if variable == "item/embeddings" else nothing
            (values,), optimizer = trained(decayed, [gradient], variable)
            np.testing.assert_allclose(values, START * share, rtol=1e-6)
        again = type(optimizer).from_config(optimizer.get_config())
        assert (again.weight_decay, again.table_weight_decay) == (0.25, of_tables)
    for gradient in (SPARSE[0], DENSE[0]):
        scaled = made(name, 0.2, table_lr_scale=0.25)
        for variable, rate in (("item/embeddings", 0.05), ("kernel", 0.2)):
            (values,), optimizer = trained(scaled, [gradient], variable)
            (expected,), _ = trained(made(name, rate), [gradient], variable)
            np.testing.assert_array_equal(values, expected)
    assert type(optimizer).from_config(optimizer.get_config()).table_lr_scale == 0.25


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


def test_a_schedule_of_keras_gives_the_rate_of_each_step():
    schedule = tf.keras.optimizers.schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.125])
    weight = tf.Variable(1.0)
    optimizer = SGD(schedule)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), weight)])
    assert weight.numpy() == 1 - 0.5 - 0.25 - 0.125
    copy = SGD.from_config(optimizer.get_config())
    assert copy.get_config()["learning_rate"] == optimizer.get_config()["learning_rate"]


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
    """Also where ranks exchange whole tables: rows that no batch names have no gradient."""
    expected, sums = row_wise(START.copy(), np.zeros([ROWS, 1], np.float32), SPARSE)
    for gradients in (SPARSE, DENSE):
        tables, optimizer = trained(made("adagrad"), gradients, "item/embeddings")
        np.testing.assert_allclose(tables[-1], expected, rtol=1e-5)
        np.testing.assert_allclose(optimizer.slots["sum"][0], sums, rtol=1e-5)
        untouched = [3, 5, 6, 7]
        np.testing.assert_array_equal(tables[-1][untouched], START[untouched])


def test_an_optimizer_is_found_by_its_published_name_or_is_the_one_given():
    weight = tf.Variable([1.0], name="weight")
    published = {"adam": Adam, "Adam": Adam, "lazy_adam": LazyAdam, "sgd": SGD}
    for name, expected in published.items():
        optimizer = find_optimizer(name, [weight])
        assert type(optimizer) is expected
        assert float(optimizer.learning_rate) == pytest.approx(0.01 if name == "sgd" else 0.001)
    for kind in (tf.keras.optimizers.Adagrad, tf.keras.optimizers.legacy.Adam, Adam):
        optimizer = kind()
        assert find_optimizer(optimizer, [weight]) is optimizer
        count = len(optimizer.variables())
        optimizer.apply_gradients([(tf.constant([1.0]), weight)])
        assert count > 1 and len(optimizer.variables()) == count, "its moments are there"
    assert isinstance(find_optimizer("rmsprop", [weight]), tf.keras.optimizers.legacy.RMSprop)
    with pytest.raises(ValueError, match="nonsense"):
        find_optimizer("nonsense", [weight])
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    legacy = tf.keras.optimizers.legacy.SGD()
    hvd = pytest.importorskip("horovod.tensorflow.keras")
    for optimizer in (scaling(SGD()), scaling(legacy), hvd.DistributedOptimizer(legacy)):
        with pytest.raises(MerlinSimError, match="should be a plain Keras optimizer"):
            find_optimizer(optimizer, [weight])


@pytest.mark.parametrize("every_row", [False, True])
def test_scaled_rows_move_by_a_part_whether_all_are_looked_at_or_those_of_the_batch(every_row):
    table = tf.Variable(tf.ones([5, 1]))
    gradient = tf.IndexedSlices(tf.fill([4, 1], 1.0), tf.constant([4, 0, 0, 2]), [5, 1])
    sgd = SGD(1.0)
    sgd.build([table])
    ScaledRows({table.ref(): 2}, 0.25).while_applied(
        [table], [gradient], lambda: sgd.apply_gradients([(gradient, table)]), every_row
    )
    assert table.numpy()[:, 0].tolist() == [0.5, 1.0, 0.0, 1.0, 0.0]
