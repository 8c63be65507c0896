from __future__ import annotations

import numpy as np
import tensorflow as tf

from merlin_sim.dataloader.batches.gather import aligned_arrays
from merlin_sim.dataloader.batches.memory_blocks import KEPT, MemoryBlocks

SHAPES = [((100, 8), np.dtype(np.int32)), ((100,), np.dtype(np.int8))]


def test_a_block_is_used_again_when_its_last_array_is_gone():
    blocks = MemoryBlocks()
    first = aligned_arrays(SHAPES, blocks)
    place = first[0].ctypes.data
    part = first[1][10:20]
    del first
    assert aligned_arrays(SHAPES, blocks)[0].ctypes.data != place
    del part
    assert place in {aligned_arrays(SHAPES, blocks)[0].ctypes.data for _ in range(2)}


def test_a_tensor_keeps_its_block():
    blocks = MemoryBlocks()
    array = aligned_arrays(SHAPES, blocks)[0]
    array[:] = 7
    tensor = tf.convert_to_tensor(array[0:64])
    del array
    for _ in range(5):
        for other in aligned_arrays(SHAPES, blocks):
            other[...] = 1
    assert (tensor.numpy() == 7).all()


def test_a_larger_request_gets_a_new_block_and_few_are_kept():
    blocks = MemoryBlocks()
    small = blocks.take(10)
    assert blocks.take(20).size == 20
    held = [blocks.take(100) for _ in range(9)]
    assert len({block.ctypes.data for block in held}) == 9
    assert len(blocks._blocks) == KEPT
    assert small.size == 10
