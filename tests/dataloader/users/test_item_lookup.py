"""What is known of items, where a feature is a column that is read in any case."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.dataloader.users.item_lookup import ItemLookup
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.users_layout import UsersLayout


def layout(*features):
    return UsersLayout("thing", {}, "thing.parquet", features, "popularity", 1)


@pytest.mark.parametrize("name, values", [("id", [0, 1, 2, 3]), ("count", [0, 5, 4, 1])])
def test_an_id_or_a_count_may_be_a_feature(tmp_path, name, values):
    path = tmp_path / "thing.parquet"
    pq.write_table(pa.table({"id": [2, 1, 3], "count": [4, 5, 1]}), path)
    (found,) = ItemLookup.read(path, layout(name), [3, 5]).features
    assert found.tolist() == values
    with pytest.raises(MerlinSimError, match=f"row 1: column {name} should hold 1 to 1"):
        ItemLookup.read(path, layout(name), [3, 1])
