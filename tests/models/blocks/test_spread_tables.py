"""Tables built by a plan, on the one rank that there is: what they start as, give and refuse."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models import build_model
from merlin_sim.models.blocks.embeddings import spread_tables as initial_table
from merlin_sim.models.blocks.embeddings.spread_tables import (
    InitialTable,
    spread_tables,
    table_parts,
)
from merlin_sim.models.known_families import find_family
from merlin_sim.parallel.placement.plan import Shard, Table, Wanted
from merlin_sim.parallel.placement.planner import make_plan


def draw(shard: Shard) -> np.ndarray:
    tf.keras.utils.set_random_seed(4)
    return InitialTable(0.5, shard, rows=20, width=6)([shard.rows, shard.columns]).numpy()


def test_parts_begin_as_the_whole_does(monkeypatch):
    monkeypatch.setattr(initial_table, "BLOCK_ROWS", 7)
    whole = draw(Shard("item", 0, 0, 20, 0, 6))
    assert len(np.unique(whole)) > 110 and 0.4 < np.abs(whole).max() <= 0.5
    for first, rows in ((0, 7), (3, 9), (13, 7), (14, 0)):
        part = draw(Shard("item", 0, first, rows, 0, 6))
        np.testing.assert_array_equal(part, whole[first : first + rows])
    np.testing.assert_array_equal(draw(Shard("item", 0, 0, 20, 2, 3)), whole[:, 2:5])


@pytest.fixture
def schema(make_schema):
    return make_schema(users=(30,), items=(60, 8), history_length=10)


def test_what_knows_of_no_other_ranks_is_refused(schema, tmp_path):
    family = find_family("din")
    tables = family.tables(schema, family.options.parse({"embedding_dim": 4}))
    plan = make_plan(tables, Wanted(ranks=1, samples=8, cut="whole"))
    with spread_tables(plan, Ranks()):
        model = build_model("din", schema, embedding_dim=4)
    assert table_parts(model)
    model.compile("adam")
    for method, argument in (
        ("save", tmp_path / "model"),
        ("save_weights", tmp_path / "weights"),
    ):
        with pytest.raises(MerlinSimError, match=f"`{method}` should be called on a model with"):
            getattr(model, method)(argument)
    assert list(tmp_path.iterdir()) == []
    plan = make_plan([Table("user_0", 5, 4)], Wanted(1, 8, cut="whole"))
    with spread_tables(plan, Ranks()), pytest.raises(MerlinSimError, match="the plan should have"):
        build_model("din", schema, embedding_dim=4)
