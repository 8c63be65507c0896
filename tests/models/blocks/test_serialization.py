from __future__ import annotations

import importlib
import pkgutil

import pytest
import tensorflow as tf
from merlin.models.tf.core.base import Block

import merlin_sim.models
from merlin_sim.models.blocks.serialization import register_block


def every_block():
    for module in pkgutil.walk_packages(merlin_sim.models.__path__, "merlin_sim.models."):
        for found in vars(importlib.import_module(module.name)).values():
            is_ours = isinstance(found, type) and found.__module__ == module.name
            if is_ours and issubclass(found, Block) and not issubclass(found, tf.keras.Model):
                yield found


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
BLOCKS = [block for block in every_block() if block.__name__ not in ABSTRACT]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.__name__)
def test_every_block_is_known_to_keras_and_to_merlin(block):
    name = f"merlin_sim>{block.__name__}"
    assert tf.keras.utils.get_registered_object(name) is block
    assert Block.registry._registry[Block.registry.default_key(block)] is block


def test_a_name_is_given_once():
    with pytest.raises(KeyError, match="already registered"):
        register_block(type("DINAttention", (Block,), {}))
