"""What ranks send each other in a step, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from merlin_sim.placement.plan import Placed, Plan
from merlin_sim.placement.table import Shard, Table, gradient_bytes, slot_bytes
from merlin_sim.placement.traffic import bytes_between, bytes_to_host

TABLE = Table("item", 1000, 8)


def test_a_whole_table_is_asked_and_answers():
    """Of 20 samples each of two ranks has 10: rank 0 asks 10 ids and sends 10 gradients."""
    plan = Plan(2, (Placed(TABLE, (Shard("item", 1, 0, 1000, 0, 8),)),))
    there, back = 10 * 4 + 10 * 8 * 4, 10 * 8 * 4
    np.testing.assert_array_equal(bytes_between(plan, 20), [[0, there], [back, 0]])


def test_columns_are_asked_for_all_ids_and_rows_for_their_share():
    columns = Plan(2, (Placed(TABLE, tuple(Shard("item", r, 0, 1000, 4 * r, 4) for r in (0, 1))),))
    of_columns = 10 * 4 + 10 * 4 * 4 + 10 * 4 * 4
    np.testing.assert_array_equal(bytes_between(columns, 20), [[0, of_columns], [of_columns, 0]])
    rows = Plan(2, (Placed(TABLE, tuple(Shard("item", r, 500 * r, 500, 0, 8) for r in (0, 1))),))
    of_rows = 5 * 4 + 5 * 8 * 4 + 5 * 8 * 4
    np.testing.assert_array_equal(bytes_between(rows, 20), [[0, of_rows], [of_rows, 0]])


def test_a_replicated_table_sends_the_rows_of_its_gradient():
    plan = Plan(3, (Placed(Table("item", 4, 8)),))
    sent = bytes_between(plan, 300)
    assert (sent == (4 * 8 * 4 + 4 * 4) * (1 - np.eye(3))).all()


def test_an_id_looked_up_many_times_travels_once():
    plan = Plan(2, (Placed(Table("item", 50, 8, 9), (Shard("item", 1, 0, 50, 0, 8),)),))
    assert bytes_between(plan, 20)[1, 0] == 50 * 8 * 4


def test_host_memory_is_sent_ids_and_gradients_and_sends_vectors():
    """Of all ranks' samples: 20 ids, 20 rows there and back; of a table of half the rows, 10."""
    rows = Placed(TABLE, tuple(Shard("item", r, 500 * r, 500, 0, 8) for r in (0, 1)))
    assert bytes_to_host(Placed(TABLE), 0, 20) == 20 * (4 + 2 * 8 * 4)
    assert bytes_to_host(rows, 1, 20) == 10 * (4 + 2 * 8 * 4)


@pytest.mark.parametrize(
    ("optimizer", "slots", "gradient"),
    [("sgd", 0, 3 * 20), ("adam", 2 * 160, 160), ("lazy_adam", 2 * 160, 60), ("adagrad", 40, 60)],
)
def test_memory_beside_the_weights(optimizer, slots, gradient):
    shard = Shard("item", 0, 0, 10, 0, 4)
    assert shard.weights == 160
    assert slot_bytes(shard, optimizer) == slots
    assert gradient_bytes(shard, optimizer, ids=3) == gradient
