"""The contract that every block keeps, however it is computed, copied and restored."""

from __future__ import annotations

import importlib
import json
import pkgutil

import numpy as np
import pytest
import tensorflow as tf
from merlin.models.tf.core.base import Block

import merlin_sim.models
from merlin_sim.models.blocks.activation_unit import ActivationUnit
from merlin_sim.models.blocks.attention import DINAttention, SummedAttention, TargetAttention
from merlin_sim.models.blocks.embeddings.feature_embedding import (
    FeatureEmbedding,
    TimeIntervalEmbedding,
)
from merlin_sim.models.blocks.history_counts import HistoryCounts, HistorySimilarity
from merlin_sim.models.blocks.history_prototypes import HistoryPrototypes
from merlin_sim.models.blocks.interactions import CrossLayers, DotInteraction
from merlin_sim.models.blocks.mlp import ClassifierMLP, ReLULayers
from merlin_sim.models.blocks.number_pieces import NumberPieces
from merlin_sim.models.blocks.recurrence import AuxiliaryNetwork, InterestEvolution
from merlin_sim.models.blocks.search.attention_units import (
    CollisionAttentionUnit,
    ExactSearchUnit,
    MultiHeadSearchUnit,
    TargetAttentionUnit,
)
from merlin_sim.models.blocks.search.history_split import HistorySplit
from merlin_sim.models.blocks.search.search_and_attention import SearchResult
from merlin_sim.models.blocks.search.search_units import (
    CollisionSearchUnit,
    GeneralSearchUnit,
    HardSearchUnit,
    HashSearchUnit,
    TargetSearchUnit,
)
from merlin_sim.models.blocks.serialization import register_block
from merlin_sim.models.stca import StackedCrossAttention

RELATIVE = 1e-5
HALF_TOLERANCE = 2e-2
BATCH = 5
ENDS = tf.constant([[6, 5, 4], [6, 6, 1], [0, 1, 6], [6, 6, 6], [2, 3, 3]])


def attention(arrays, batch):
    return arrays.attention(batch)


def attention_with_times(arrays, batch):
    return *arrays.attention(batch), arrays.vectors(batch, 6, 3)


def target_and_history(arrays, batch):
    return arrays.target_and_history(batch)


def counted(arrays, batch):
    target = {"item": arrays.ids(3, batch, 3), "category": arrays.ids(2, batch, 3)}
    history = {"item": arrays.ids(3, batch, 6), "category": arrays.ids(2, batch, 6)}
    return target, history, arrays.mask(batch, 6), ENDS[:batch]


def summary(arrays, batch):
    """Sums beside counts; a count near 0 beside any sum would be none, and its mean past bounds."""
    sums = arrays.vectors(batch, 3, 2, 5)
    return arrays.vectors(batch, 6, 4), tf.concat([sums[..., :4], 0.5 + sums[..., 4:] ** 2], -1)


def searched(arrays, batch, time_dim=0):
    target, history = arrays.target_and_history(batch, time_dim)
    return target, history, GeneralSearchUnit(2)(target, history), True


def collided(arrays, batch):
    target, history = arrays.target_and_history(batch)
    search = CollisionSearchUnit(3, 2)
    search.build(tf.TensorShape([None, 3, 4]))
    search.set_weights([np.random.default_rng(1).normal(size=(4, 6))])
    return target, history, search(target, history), True


def all_found(arrays, batch):
    target, history = arrays.target_and_history(batch, 2)
    return target, history, SearchResult(history.mask), True


def vectors(*shape):
    return lambda arrays, batch: (arrays.vectors(batch, *shape),)


BLOCKS = {
    "activation unit": (
        lambda: ActivationUnit((8, 4)),
        lambda arrays, batch: arrays.attention(batch, 8)[:2],
    ),
    "DIN, dot": (DINAttention, attention),
    "DIN, activation unit": (lambda: DINAttention("activation_unit"), attention),
    "target attention": (lambda: TargetAttention(2, 3, time_dim=3), attention_with_times),
    "summed attention": (lambda: SummedAttention(2, 3), attention),
    "STCA": (lambda: StackedCrossAttention(2, 2, 3), attention),
    "counts": (lambda: HistoryCounts(length=5, windows=(2, 3)), counted),
    "similarity": (HistorySimilarity, attention),
    "number pieces": (lambda: NumberPieces(5), vectors(3, 2)),
    "prototypes": (lambda: HistoryPrototypes(2, heads=2, head_dim=3), summary),
    "auxiliary network": (
        lambda: AuxiliaryNetwork(3, (8, 4)),
        lambda arrays, batch: arrays.next_items(batch, 4),
    ),
    "evolution": (
        lambda: InterestEvolution(4),
        lambda arrays, batch: arrays.short_histories(batch, 2, 2, 4),
    ),
    "general search": (lambda: GeneralSearchUnit(top_k=2), target_and_history),
    "hard search": (lambda: HardSearchUnit("category", top_k=2), target_and_history),
    "hash search": (lambda: HashSearchUnit(bits=6, top_k=2), target_and_history),
    "collision search": (lambda: CollisionSearchUnit(3, 2), target_and_history),
    "target search": (
        lambda: TargetSearchUnit(TargetAttention(2, 3, time_dim=3), top_k=2),
        lambda arrays, batch: arrays.target_and_history(batch, 3),
    ),
    "exact attention": (ExactSearchUnit, searched),
    "multi-head attention": (
        lambda: MultiHeadSearchUnit(2, 5, time_dim=3),
        lambda arrays, batch: searched(arrays, batch, 3),
    ),
    "collision attention": (lambda: CollisionAttentionUnit(counts=True), collided),
    "target attention unit": (
        lambda: TargetAttentionUnit(TargetAttention(2, 3, time_dim=2)),
        all_found,
    ),
    "split": (
        lambda: HistorySplit(4, 2),
        lambda arrays, batch: (arrays.vectors(batch, 6), ENDS[:batch, :2]),
    ),
    "classifier": (lambda: ClassifierMLP((8, 4)), vectors(4)),
    "ReLU layers": (lambda: ReLULayers((8, 4)), vectors(5)),
    "cross layers of low rank": (lambda: CrossLayers(2, 3), vectors(4)),
    "cross layers of full rank": (lambda: CrossLayers(2, None), vectors(4)),
    "dot interaction": (DotInteraction, vectors(4, 6)),
    "time intervals": (
        lambda: TimeIntervalEmbedding(3, buckets=6),
        lambda arrays, batch: (10.0 * arrays.vectors(batch, 4) ** 2,),
    ),
}
WITH_AUTOGRAPH = ("evolution", "STCA")
"""Those that loop or choose: autograph, which users may have, changes nothing else."""


def flat(outputs):
    return [tf.convert_to_tensor(part) for part in tf.nest.flatten(outputs) if part is not None]


def run(layer, inputs):
    return [part.numpy() for part in flat(layer(*inputs))]


def assert_same(ours, theirs, tolerance=RELATIVE):
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        if one.dtype == bool or np.issubdtype(one.dtype, np.integer):
            np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_allclose(
                one.astype(np.float32), other.astype(np.float32), rtol=tolerance, atol=tolerance
            )


def copy_of(layer, inputs):
    config = json.loads(json.dumps(layer.get_config()))
    serialized = {"class_name": f"merlin_sim>{type(layer).__name__}", "config": config}
    copy = tf.keras.layers.deserialize(serialized)
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
    copy(*inputs)
    return copy


def check_copies(layer, inputs, outputs, path):
    """Of the configuration, with weights in their order and by a checkpoint."""
    copy = copy_of(layer, inputs)
    copy.set_weights(layer.get_weights())
    assert_same(run(copy, inputs), outputs)
    written = tf.train.Checkpoint(layer=layer).write(str(path / "layer"))
    restored = copy_of(layer, inputs)
    tf.train.Checkpoint(layer=restored).read(written).assert_existing_objects_matched()
    assert_same(run(restored, inputs), outputs)


def check_rows(layer, inputs, outputs):
    for index in range(BATCH):
        row = slice(index, index + 1)
        one = tf.nest.map_structure(
            lambda part, row=row: part[row] if tf.is_tensor(part) else part, inputs
        )
        assert_same(run(layer, one), [part[row] for part in outputs])


def check_gradients(layer, inputs):
    with tf.GradientTape() as tape:
        parts = [tf.cast(p, tf.float32) for p in flat(layer(*inputs)) if p.dtype.is_floating]
        loss = tf.add_n([tf.reduce_sum(part**2) for part in parts] or [tf.constant(0.0)])
    # One position has no recurrence, so its kernels no gradient: zeros.
    zero = tf.UnconnectedGradients.ZERO
    gradients = tape.gradient(loss, layer.trainable_variables, unconnected_gradients=zero)
    largest = [np.abs(tf.convert_to_tensor(gradient).numpy()).max() for gradient in gradients]
    assert np.isfinite(largest).all()
    assert not gradients or max(largest) > 0


def check_half_precision(make, layer, inputs, outputs):
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        half = make()
        half(*inputs)
        half.set_weights(layer.get_weights())
        ours = run(half, inputs)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    assert all(variable.dtype == tf.float32 for variable in half.trainable_variables)
    assert all(np.isfinite(part).all() for part in ours)
    assert_same(ours, outputs, HALF_TOLERANCE)


def check(make, inputs, path, autograph=False):
    """Whatever is asked of a block."""
    layer = make()
    outputs = run(layer, inputs)
    compile_all = tf.function(jit_compile=True, autograph=autograph)
    compiled = compile_all(lambda *given: flat(layer(*given)))(*inputs)
    assert_same([part.numpy() for part in compiled], outputs)
    check_copies(layer, inputs, outputs, path)
    check_rows(layer, inputs, outputs)
    check_gradients(layer, inputs)
    check_half_precision(make, layer, inputs, outputs)


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in WITH_AUTOGRAPH)) for k in BLOCKS]
)
def test_a_block_is_the_same_compiled_in_copies_rows_and_half_precision(kind, arrays, tmp_path):
    make, inputs = BLOCKS[kind]
    check(make, inputs(arrays, BATCH), tmp_path, kind in WITH_AUTOGRAPH)


@pytest.mark.slow
def test_an_embedding_keeps_the_contract(arrays, make_schema, tmp_path):
    schema = make_schema(users=(9,), items=(20, 6), history_length=4).excluding_by_name(["label"])
    ids = {"user_0": arrays.ids(9, BATCH), "item_0": arrays.ids(20, BATCH)}
    ids["item_1"] = arrays.ids(6, BATCH)
    ids["item_0_hist"] = (arrays.ids(20, BATCH, 3), arrays.ids(20, BATCH, 1))
    check(lambda: FeatureEmbedding(schema, dim=3), (ids,), tmp_path)


ABSTRACT = {
    "ConfiguredBlock",
    "ColumnsBlock",
    "InterestBlock",
    "RankingBlock",
    "SearchedBlock",
    "LongHistoryUnit",
    "SearchUnit",
    "AttentionUnit",
    "WholeHistoryBlock",
}


def test_every_block_is_known_to_keras_and_to_merlin_by_a_name_that_is_given_once():
    keys = []
    for module in pkgutil.walk_packages(merlin_sim.models.__path__, "merlin_sim.models."):
        for block in vars(importlib.import_module(module.name)).values():
            is_ours = isinstance(block, type) and block.__module__ == module.name
            is_block = is_ours and issubclass(block, Block) and block.__name__ not in ABSTRACT
            if not is_block or issubclass(block, tf.keras.Model):
                continue
            assert tf.keras.utils.get_registered_object(f"merlin_sim>{block.__name__}") is block
            keys.append(Block.registry.default_key(block))
    assert len({*keys}) == len(keys) > 30 and {*keys} <= {*Block.registry}
    with pytest.raises(KeyError, match="already registered"):
        register_block(type("DINAttention", (Block,), {}))
