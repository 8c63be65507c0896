"""Lookups of one domain, and workflows that anyone composed, as a servable reads them."""

from __future__ import annotations

import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from joined_numbers import JOINED
from merlin.io import Dataset

import merlin_sim as ms
from merlin_sim import ops
from merlin_sim.foundation.digest import with_own_digest
from merlin_sim.foundation.requests import RequestError
from merlin_sim.models import build_model
from merlin_sim.serving.lookups import IdLookup, VocabularyLookup, read_workflow
from merlin_sim.serving.triton.export import export_model

BEYOND = (2**63, -(2**63) - 1, 10**30)  # no log has them, and no file of scores could show them


def ids_of(lookup, *keys):
    return [lookup.look_up(key, "x") for key in keys]


def read(path, domain, table, features=()):
    pq.write_table(pa.table(table), path / f"{domain}.parquet")
    return VocabularyLookup.read(domain, path / f"{domain}.parquet", features)


def test_keys_have_the_ids_and_features_that_the_workflow_gave_them(tmp_path):
    table = {"id": [2, 1], "key": ["b", "a"], "count": [1, 1], "genre": [7, 9]}
    books = read(tmp_path, "book", table, ["genre", "author"])
    assert ids_of(books, "a", "b", "c", "", None, "\U0001f600") == [1, 2, 0, 0, 0, 0]
    assert books.features["genre"].tolist() == [0, 9, 7]
    assert "author" not in books.features
    genres = read(tmp_path, "genre", {"id": [1, 2], "key": ["no_genre", "sea"]})
    assert ids_of(genres, None, "", "sea", "new") == [1, 1, 2, 0]
    users = read(tmp_path, "user", {"id": [1, 2], "key": pa.array([10, -3], pa.int32())})
    assert ids_of(users, 10, -3, 1, None) == [1, 2, 0, 0]
    plain = IdLookup("user", 5)
    assert ids_of(plain, 1, 5, 6, 0, -1, 2**62, None) == [1, 5] + [0] * 5
    for lookup, key, said in (
        (books, "a\ud800", "expected text, received a lone surrogate in"),
        *((users, key, "expected a whole number") for key in ("10", 10.0, True)),
        (plain, "1", "expected a whole number"),
        *((users, key, "expected a whole number of 64 bits, received") for key in BEYOND),
        *((plain, key, "expected a whole number of 64 bits, received") for key in BEYOND),
    ):
        with pytest.raises(RequestError, match=f"user: {said}"):
            lookup.look_up(key, "user")


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
        user="user", item="item", order="time", split=ops.ByTime(70, validation=False),
        fit_on="all", user_numbers=(name,),
    )  # fmt: skip
    ids = ["user", "item"] >> ops.Categorify(out_path=out)
    workflow = nvt.Workflow(ids + (operator(out)[name] >> nvt.ops.Normalize()) + ["time"] >> group)
    rows = Dataset(log, cpu=True)
    workflow.fit(rows)
    ms.write_dataset(workflow, rows, directory / "dataset")
    return ms.DatasetDirectory.open(directory / "dataset")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*in CPU mode", "ignore:.*dtype mappings did not load")
@pytest.mark.parametrize(("operator", "name"), JOINED)
def test_a_number_that_is_made_of_other_columns_is_refused(tmp_path, operator, name, request):
    dataset = write(tmp_path, operator, name)
    kind = request.node.callspec.id
    for reads in (
        lambda: read_workflow(dataset.path),
        lambda: export_model(build_model("din", dataset.schema), dataset, tmp_path / "s"),
    ):
        with pytest.raises(ms.MerlinSimError, match=f"{name!r}: .*{kind}.* makes it of other col"):
            reads()
    assert not (tmp_path / "s").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*in CPU mode", "ignore:.*dtype mappings did not load")
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
