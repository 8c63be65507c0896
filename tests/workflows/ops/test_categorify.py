"""Categorify compared with NVTabular's own, on random frames; and what is right here alone."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import nvtabular as nvt
import pandas as pd
import pyarrow as pa
import pytest
from merlin.io import Dataset
from nvtabular import ColumnSelector

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.hashing import hash_keys
from merlin_sim.workflows.frames import host_frame
from merlin_sim.workflows.ops import counted_keys, key_index
from merlin_sim.workflows.ops.categorify import Categorify

ROWS = 400
COLUMNS = ("text", "whole", "real", "flag", "tags", "codes", "second")


def random_frame(seed, rows=ROWS):
    rng = np.random.default_rng(seed)
    words = np.array([f"k{n}" for n in range(40)] + ["ä", "Z", ""], object)
    text = rng.choice(words, rows)
    real = np.round(rng.normal(size=rows), 1)
    text[rng.random(rows) < 0.1] = None
    real[rng.random(rows) < 0.1] = np.nan
    lengths = rng.integers(0, 4, rows)
    frame = pd.DataFrame(
        {
            "text": text,
            "whole": rng.integers(-9, 40, rows),
            "real": real,
            "flag": rng.random(rows) < 0.4,
            "second": rng.choice(words[5:], rows),
        }
    )
    frame["tags"] = [rng.choice(words, length) for length in lengths]
    frame["codes"] = [rng.integers(0, 30, length) for length in lengths]
    return frame[[*COLUMNS]]


def dataset_of(*frames):
    return Dataset(dd.from_map(lambda frame: frame, list(frames), meta=frames[0].iloc[:0]))


def fitted(kind, data, columns, directory, **options):
    workflow = nvt.Workflow(columns >> kind(out_path=str(directory), **options))
    workflow.fit(data)
    return workflow


def plain_rows(frame):
    return {
        name: [v.tolist() if isinstance(v, np.ndarray) else v for v in frame[name]]
        for name in frame.columns
    }


def compare(data, columns, tmp_path, options, transformed=None):
    """Codes, schema and files are NVTabular's."""
    both = [
        fitted(kind, data, columns, tmp_path / name, **options)
        for kind, name in ((nvt.ops.Categorify, "theirs"), (Categorify, "ours"))
    ]
    theirs, ours = (w.transform(transformed or data).to_ddf().compute() for w in both)
    assert plain_rows(ours) == plain_rows(theirs)
    assert list(ours.dtypes) == list(theirs.dtypes)
    assert not list(tmp_path.rglob(".counts*"))
    for name in both[0].output_schema.column_names:
        expected, found = (w.output_schema[name] for w in both)
        assert found.properties.pop("cat_path").endswith(
            expected.properties.pop("cat_path").removeprefix(str(tmp_path / "theirs"))
        )
        assert found == expected
    files = sorted(
        path.relative_to(tmp_path / "theirs") for path in (tmp_path / "theirs").rglob("*.parquet")
    )
    for file in files:
        expected, found = (pd.read_parquet(tmp_path / name / file) for name in ("theirs", "ours"))
        pd.testing.assert_frame_equal(found, expected)
    return both[1]


CASES = [
    {"dtype": "int32", "freq_threshold": {name: 3 + 4 * n for n, name in enumerate(COLUMNS)}},
    {"max_size": {"text": 5, "second": 6}},
    {"num_buckets": 4, "freq_threshold": 12},
    {"num_buckets": {"text": 4, "second": 3}, "max_size": 12},
    {"split_out": {"text": 2, "whole": 3}},
    {"single_table": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", CASES, ids=repr)
def test_codes_schema_and_files_are_nvtabular_s(options, tmp_path):
    data = dataset_of(*(random_frame(seed) for seed in range(2)))
    # Columns of every type are of the first alone.
    columns = [*COLUMNS] if options is CASES[0] else ["text", "second"]
    compare(data, columns, tmp_path, options)


@pytest.mark.parametrize(
    "options",
    [
        {"encode_type": "joint", "freq_threshold": 9},
        {"encode_type": "combo", "dtype": "int32", "name_sep": "+"},
    ],
    ids=repr,
)
def test_groups_of_columns(options, tmp_path):
    data = dataset_of(*(random_frame(seed) for seed in range(2)))
    compare(data, [["text", "second"], "whole"], tmp_path, options)


@pytest.mark.slow
def test_keys_that_were_not_there_in_fit(tmp_path):
    data = dataset_of(random_frame(1, 60), random_frame(2, 60))
    others = dataset_of(random_frame(5), random_frame(6))
    compare(data, [*COLUMNS], tmp_path, {}, transformed=others)


def test_given_vocabularies(tmp_path):
    data = dataset_of(random_frame(1), random_frame(2))
    given = {"text": pd.Series(["k1", "k7", "ä"]), "whole": pd.Series([5, 3, -2])}
    compare(data, ["text", "whole", "real"], tmp_path, {"vocabs": given})


def test_given_files_whose_codes_do_not_follow_one_another(tmp_path):
    file = tmp_path / "given.parquet"
    pd.DataFrame({"text": ["k1", "k7"]}, index=[9, 4]).to_parquet(file)
    data = dataset_of(random_frame(1))
    compare(data, ["text"], tmp_path, {"vocabs": {"text": str(file)}})


def test_partitions_without_rows_or_keys(tmp_path):
    some = random_frame(1)
    nothing = some.assign(text=None, real=np.nan)
    data = dataset_of(some.iloc[:0], some, nothing, some.iloc[:0])
    op = fitted(Categorify, data, ["text", "real"], tmp_path / "ours")
    one = fitted(
        nvt.ops.Categorify,
        dataset_of(pd.concat([some, nothing])),
        ["text", "real"],
        tmp_path / "one",
    )
    expected = one.transform(dataset_of(some)).to_ddf().compute()
    pd.testing.assert_frame_equal(op.transform(dataset_of(some)).to_ddf().compute(), expected)
    assert (op.transform(dataset_of(nothing)).to_ddf().compute() == 1).all(axis=None)
    for file in ("unique.text", "meta.text", "unique.real", "meta.real"):
        theirs, ours = (
            pd.read_parquet(tmp_path / f"{which}/categories/{file}.parquet")
            for which in ("one", "ours")
        )
        pd.testing.assert_frame_equal(ours, theirs)


def test_a_partition_whose_index_does_not_begin_at_0(tmp_path):
    """NVTabular puts lists and nulls into other rows there."""
    frame = random_frame(3)
    late = frame.iloc[ROWS // 2 :]
    workflow = fitted(Categorify, dataset_of(frame), [*COLUMNS], tmp_path)
    expected = plain_rows(workflow.transform(late.reset_index(drop=True)))
    assert plain_rows(workflow.transform(late)) == expected
    # Nulls make numbers of the whole ones, where those of the fit had none.
    nulls = pd.DataFrame({name: frame[name].iloc[:3] for name in COLUMNS})
    nulls["whole"] = [frame["whole"][0], None, 1000]
    codes = workflow.transform(nulls)["whole"].tolist()
    assert codes == [workflow.transform(frame)["whole"][0], 1, 2]


def as_arrow(frame):
    return host_frame(pa.table({name: pa.array(frame[name], from_pandas=True) for name in frame}))


@pytest.mark.slow
def test_arrow_columns_give_what_objects_give(tmp_path):
    frames = [random_frame(seed) for seed in range(3)]
    objects = fitted(Categorify, dataset_of(*frames), [*COLUMNS], tmp_path / "a", dtype="int32")
    arrow = dataset_of(*map(as_arrow, frames))
    arrows = fitted(Categorify, arrow, [*COLUMNS], tmp_path / "b", dtype="int32")
    expected = objects.transform(frames[1])
    found = arrows.transform(as_arrow(frames[1]))
    assert isinstance(found["tags"].array, pd.arrays.ArrowExtensionArray)
    assert {n: [[*v] if isinstance(v, list) else v for v in found[n]] for n in found} == plain_rows(
        expected
    )
    assert found["tags"].array.__arrow_array__().type.value_type == pa.int32()


def counts_of(frames):
    return pd.concat(frames)["text"].value_counts()


@pytest.mark.parametrize("options", [{"freq_threshold": 8}, {"max_size": 10}])
@pytest.mark.parametrize("order", counted_keys.ORDERS)
def test_orders_of_keys(order, options, tmp_path):
    frames = [random_frame(seed) for seed in range(3)]
    workflow = fitted(Categorify, dataset_of(*frames), ["text"], tmp_path, order=order, **options)
    op = workflow.output_node.op
    keys, counts = op.keys("text"), op.counts("text")
    known = counts_of(frames)
    if "freq_threshold" in options:
        known = known[known >= 8]
    if "max_size" in options:
        known = known[:7]
        assert sorted(counts) == sorted(known)
    else:
        assert dict(zip(keys.to_pylist(), counts, strict=True)) == known.to_dict()
    hashes = hash_keys(keys)
    keyed = {
        "frequency": -counts,
        "frequency_hash": [(-c, h) for c, h in zip(counts, hashes, strict=True)],
        "key": [key.encode() for key in keys.to_pylist()],
        "hash": hashes,
    }[order]
    assert list(keyed) == sorted(keyed)
    codes = workflow.transform(pd.DataFrame({"text": keys.to_pandas()}))["text"]
    assert codes.tolist() == list(range(3, 3 + len(keys)))


def test_types_that_differ_between_partitions(tmp_path):
    frames = [
        pd.DataFrame({"key": np.array([1, 2, 2, 9], np.int32)}),
        pd.DataFrame({"key": [2.0, np.nan, 9.0, 0.5]}),
        pd.DataFrame({"key": np.array([9, 7], np.int64)}),
    ]
    compare(dataset_of(*frames), ["key"], tmp_path, {})


def test_a_file_that_is_written_anew_is_read_anew(tmp_path):
    def codes(keys):
        op = fitted(Categorify, dataset_of(pd.DataFrame({"key": keys})), ["key"], tmp_path)
        return op.transform(pd.DataFrame({"key": ["a", "b"]}))["key"].tolist()

    assert codes(["a", "a", "b"]) == [3, 4]
    assert codes(["a", "b", "b"]) == [4, 3]
    assert codes(["b"]) == [2, 3]


@pytest.mark.parametrize("keys", [["a", "b", "c"], ["a", "bb", "a\0"]])
def test_equal_hashes_of_different_keys_are_distinguished(keys, monkeypatch):
    monkeypatch.setattr(key_index, "hash_keys", lambda keys: np.full(len(keys), 7, np.uint64))
    asked = pa.array([keys[2], "x", keys[0], None])
    assert key_index.KeyIndex(pa.array(keys)).positions(asked).tolist() == [2, -1, 0, -1]
    found, sums = key_index.add_up(pa.array([*keys, *keys[1:]]), np.arange(5))
    assert found.to_pylist() == keys and sums.tolist() == [0, 1 + 3, 2 + 4]
    alone = key_index.KeyIndex(pa.array(keys[:1]))
    assert alone.positions(pa.array(["x", keys[0], None])).tolist() == [-1, 0, -1]


def test_tasks_that_run_again_count_nothing_twice(tmp_path):
    frames = [random_frame(seed, 50) for seed in range(5)]
    op = Categorify(out_path=str(tmp_path))
    plan = op.fit(ColumnSelector(["text"]), dataset_of(*frames).to_ddf())
    first = plan.compute(scheduler="synchronous")
    assert plan.compute(scheduler="threads") == first
    op.fit_finalize(first)
    expected = counts_of(frames)
    assert dict(zip(op.keys("text").to_pylist(), op.counts("text"), strict=True)) == (
        expected.to_dict()
    )
    files = sorted(path.name for path in (tmp_path / "categories").iterdir())
    assert files == ["meta.text.parquet", "unique.text.parquet"]


def test_files_move_with_set_storage_path_and_clear_forgets_them(tmp_path):
    workflow = fitted(Categorify, dataset_of(random_frame(1)), ["text"], tmp_path / "a")
    op = workflow.output_node.op
    expected = workflow.transform(random_frame(2))["text"].tolist()
    op.set_storage_path(str(tmp_path / "b"), copy=True)
    (tmp_path / "a").rename(tmp_path / "gone")
    assert workflow.transform(random_frame(2))["text"].tolist() == expected
    op.clear()
    with pytest.raises(MerlinSimError, match="'text' has no keys here"):
        op.keys("text")


def test_arguments_that_cannot_be_are_refused(tmp_path):
    for options in ({"single_table": True}, {"split_out": 2}, {"encode_type": "combo"}):
        with pytest.raises(MerlinSimError, match="`order` = 'key' needs one file of keys"):
            Categorify(order="key", **options)
    with pytest.raises(MerlinSimError, match="`order` should be one of frequency"):
        Categorify(order="size")
    data = dataset_of(random_frame(1))
    with pytest.raises(ValueError, match="`max_size` should be at least 3"):
        fitted(Categorify, data, ["text"], tmp_path, max_size=2)
    with pytest.raises(MerlinSimError, match="Received: second, whole in several"):
        fitted(Categorify, data, [["second", "whole"], ["whole", "second", "text"]], tmp_path)
    frames = [pd.DataFrame({"key": ["a"]}), pd.DataFrame({"key": [1]})]
    with pytest.raises(MerlinSimError, match="'key': expected keys of one type, found string and"):
        fitted(Categorify, dataset_of(*frames), ["key"], tmp_path)
