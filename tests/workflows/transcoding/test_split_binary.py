"""The published form of DLRM's datasets, to parquet and back."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from ranking_rows import random_rows, write_ranking_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.feature_spec import Feature
from merlin_sim.schemas.spec_file import read_spec
from merlin_sim.workflows.transcoding.transcode import Transcoder

ROWS, CARDINALITIES = 500, (126, 127, 70_000)
COLUMNS = [f"category_{index}" for index in range(3)] + [f"number_{index}" for index in range(4)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_ranking_dataset(tmp_path_factory.mktemp("clicks") / "d", ROWS, CARDINALITIES)


def transcode(source, output, form="parquet"):
    spec = read_spec(source / "feature_spec.yaml")
    return Transcoder(spec, source, to=form).transcode(output)


@pytest.fixture(scope="module")
def binary(dataset, tmp_path_factory):
    output = tmp_path_factory.mktemp("binary") / "d"
    transcode(dataset, output, "split_binary")
    return output


@pytest.fixture
def spoiled(binary, tmp_path):
    """A copy to be spoiled."""
    return shutil.copytree(binary, tmp_path / "copy")


def test_the_files_are_those_that_are_published(binary):
    expected = random_rows(ROWS, 0, CARDINALITIES)
    label = np.fromfile(binary / "train/label.bin", np.bool_)
    np.testing.assert_array_equal(label, expected["clicked"])
    numbers = np.fromfile(binary / "train/numerical.bin", np.float16).reshape(ROWS, 4)
    for index in range(4):
        halves = expected[f"number_{index}"].astype(np.float16)
        np.testing.assert_array_equal(numbers[:, index], halves)
    for index, dtype in enumerate((np.int8, np.int16, np.int32)):
        ids = np.fromfile(binary / f"train/cat_{index}.bin", dtype)
        np.testing.assert_array_equal(ids, expected[f"category_{index}"])
    spec = read_spec(binary / "feature_spec.yaml", model="dlrm")
    assert [chunk.type for chunk in spec.source_spec["test"]] == ["split_binary"] * 5
    assert spec.feature_spec["clicked"].dtype == "bool"
    assert spec.feature_spec["number_0"].dtype == "float16"


def test_the_way_back_gives_the_rows_in_their_order(binary, dataset, tmp_path):
    transcode(binary, tmp_path / "back")
    for mapping in ("train", "test"):
        ours, theirs = (
            pq.read_table(DatasetDirectory.open(path, model="dlrm").files(mapping)[0]).to_pandas()
            for path in (tmp_path / "back", dataset)
        )
        for name in COLUMNS[:3]:
            np.testing.assert_array_equal(ours[name], theirs[name])
        for name in COLUMNS[3:]:
            np.testing.assert_array_equal(ours[name], theirs[name].astype(np.float16))
        np.testing.assert_array_equal(ours["clicked"], theirs["clicked"])
    transcode(tmp_path / "back", tmp_path / "again", "split_binary")
    for file in (binary / "train").iterdir():
        assert (tmp_path / "again/train" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("label.bin", lambda b: b[:-1], r"numerical.bin: expected 499 rows, as train/label.bin"),
        ("cat_2.bin", lambda b: b[:-4], r"cat_2.bin: expected 500 rows, as train/label.bin"),
        ("numerical.bin", lambda b: b[:-3], r"row 500: expected 8 bytes a row \(4 x float16\)"),
        ("label.bin", lambda b: b"\x01\x02" + b[2:], "label.bin, row 2: clicked: expected 0 or 1"),
        ("cat_0.bin", lambda b: b[:9] + b"\x7e" + b[10:], r"cat_0.bin, row 10: category_0: .*125"),
    ],
)
def test_files_that_disagree_are_named_and_nothing_is_written(spoiled, file, change, said):
    path = spoiled / "train" / file
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(MerlinSimError, match=said):
        transcode(spoiled, spoiled.parent / "out")
    assert [path.name for path in spoiled.parent.iterdir()] == ["copy"]


def test_a_type_that_cannot_hold_its_ids_is_refused(spoiled):
    path = spoiled / "feature_spec.yaml"
    text = path.read_text()
    path.write_text(text.replace("cardinality: 126", "cardinality: 300"))
    with pytest.raises(MerlinSimError, match="category_0: expected a cardinality of at most 128"):
        transcode(spoiled, spoiled.parent / "out")
    # Text has no size: a file of it was divided by 0.
    before, _, after = text.partition("cardinality: 126")
    start = before.rindex("dtype:")
    stated = before[:start] + "dtype: string" + before[before.index("\n", start) :]
    path.write_text(f"{stated}cardinality: 126{after}")
    with pytest.raises(MerlinSimError, match="but category_0 is of dtype string"):
        transcode(spoiled, spoiled.parent / "out")


def test_what_cannot_be_written_is_refused(dataset, tmp_path, sim_dataset):
    with pytest.raises(MerlinSimError, match="a channel of plain rows"):
        transcode(sim_dataset, tmp_path / "out", "split_binary")
    spec = read_spec(dataset / "feature_spec.yaml")
    auto = {**spec.feature_spec, "category_0": Feature("int64", "auto")}
    free = {name: names for name, names in spec.channel_spec.items() if name != "numerical"}
    for changed, said in (
        (replace(spec, feature_spec=auto), "cardinality: expected a .*number"),
        (replace(spec, channel_spec=free), "feature_spec.number_0: expected .*, got no channel"),
    ):
        with pytest.raises(MerlinSimError, match=said):
            Transcoder(changed, dataset, to="split_binary").transcode(tmp_path / "out")


def test_numbers_that_float16_does_not_hold_are_refused(dataset, tmp_path):
    table = pq.read_table(dataset / "train.parquet").to_pandas()
    table.loc[41, "number_3"] = 1e5
    for name in ("feature_spec.yaml", "test.parquet"):
        (tmp_path / name).write_bytes((dataset / name).read_bytes())
    table.to_parquet(tmp_path / "train.parquet")
    with pytest.raises(MerlinSimError, match="train, row 42: number_3: expected a number that"):
        transcode(tmp_path, tmp_path.parent / "out", "split_binary")
