"""Workflows that anyone composed, as a servable reads them."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
import pytest
from joined_numbers import JOINED
from merlin.io import Dataset

import merlin_sim as ms
from merlin_sim import ops
from merlin_sim.foundation.digest import with_own_digest
from merlin_sim.models import build_model
from merlin_sim.serving.lookups import read_workflow
from merlin_sim.serving.triton.export import export_model

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*in CPU mode"),
    pytest.mark.filterwarnings("ignore:.*dtype mappings did not load"),
]


def write(directory, operator, name) -> ms.DatasetDirectory:
    """A dataset whose users have a number that an operator makes."""
    random = np.random.default_rng(0)
    log = pd.DataFrame(
        {
            "user": [f"u{number // 12}" for number in range(96)],
            "item": [f"i{number}" for number in random.integers(0, 9, 96)],
            "price": random.integers(1, 9, 96) * 1.0,
            "time": random.integers(0, 100, 96),
            "clicked": random.integers(0, 2, 96),
        }
    )
    out = str(directory / "keys")
    group = ops.GroupHistories(
        user="user", item="item", order="time", split=ops.ByTime(70), user_numbers=(name,)
    )
    ids = ["user", "item"] >> ops.Categorify(out_path=out)
    workflow = nvt.Workflow(ids + (operator(out)[name] >> nvt.ops.Normalize()) + ["time"] >> group)
    rows = Dataset(log, cpu=True)
    workflow.fit(rows)
    ms.write_dataset(workflow, rows, directory / "dataset")
    return ms.DatasetDirectory.open(directory / "dataset")


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "name"), JOINED)
def test_a_number_that_is_made_of_other_columns_is_refused(tmp_path, operator, name, request):
    dataset = write(tmp_path, operator, name)
    kind = request.node.callspec.id
    with pytest.raises(ms.MerlinSimError, match=f"{name!r}: .*{kind}.* makes it of other columns"):
        read_workflow(dataset.path)
    with pytest.raises(ms.MerlinSimError, match=f"{name!r}: .*{kind}.* makes it of other columns"):
        export_model(build_model("din", dataset.schema, embedding_dim=2), dataset, tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
def test_a_number_that_is_made_of_its_own_column_is_read(tmp_path):
    dataset = write(tmp_path, lambda out: ["price"] >> nvt.ops.LogOp(), "price")
    features, fitted, timestamp = read_workflow(dataset.path)
    (price,) = features
    assert timestamp == "time"
    assert np.isfinite(fitted.values(price, [1.0, 5.0])).all()


@pytest.mark.parametrize("record", [{}, {"config": {}}, {"config": 3}, {"config": {"features": 3}}])
def test_a_workflow_without_what_each_has_is_refused_by_its_name(tmp_path, record):
    document = {"format": 9, "operators": [{"operator": "GroupHistories", **record}]}
    (tmp_path / "workflow.json").write_text(with_own_digest(document))
    with pytest.raises(ms.MerlinSimError, match=r"workflow\.json: "):
        read_workflow(tmp_path)
