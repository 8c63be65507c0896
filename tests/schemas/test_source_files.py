"""Files and features that stand twice in a spec, and histories that seem exchanged."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import DatasetWarning, MerlinSimError
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.spec_file import read_spec

SPEC = "feature_spec.yaml"
TEST, TRAIN = "test/part.0.parquet", "train/part.10.parquet"


def name_files(directory, **files):
    """Write the spec with these files in place of a mapping's."""
    spec = read_spec(directory / SPEC, check_files=False)
    sources = dict(spec.source_spec)
    for mapping, names in files.items():
        sources[mapping] = (replace(spec.source_spec["test"][0], files=tuple(names)),)
    replace(spec, source_spec=sources).write(directory / SPEC)


@pytest.mark.parametrize(
    ("mapping", "files", "said"),
    [
        ("test", [f"./{TRAIN}"], "expected files of its own, none of train, got"),
        ("test", [f"test/..//{TRAIN}"], "expected files of its own, none of train, got"),
        ("train", ["train/part.2.parquet", f"train/../{TEST}"], "expected files of its own, none"),
        ("train", [TRAIN, f"./{TRAIN}"], "expected each file once, got './train/part.10"),
    ],
)
def test_a_file_that_stands_twice_is_refused_under_any_spelling(directory, mapping, files, said):
    name_files(directory, **{mapping: files})
    for check_files in (True, False):
        with pytest.raises(MerlinSimError, match=said):
            read_spec(directory / SPEC, check_files=check_files)


def test_mappings_that_nobody_trains_on_and_chunks_share_files_but_channels_no_features(directory):
    name_files(directory, valid=[TEST])
    assert DatasetDirectory.open(directory).files("valid") == [directory / TEST]
    spec = read_spec(directory / SPEC)
    (chunk,) = spec.source_spec["train"]
    parts = tuple(replace(chunk, features=f) for f in (chunk.features[:3], chunk.features[3:]))
    replace(spec, source_spec={**spec.source_spec, "train": parts}).write(directory / SPEC)
    assert read_spec(directory / SPEC).source_spec["train"] == parts
    text = (directory / SPEC).read_text().replace("- user_id\n  target", "- cat_id_trgt\n  target")
    (directory / SPEC).write_text(text)
    message = r"channel_spec.target_item_features\[1\]: expected each feature in one channel, got"
    with pytest.raises(MerlinSimError, match=message):
        read_spec(directory / SPEC)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_to_a_file_of_train_is_that_file(directory, link):
    (directory / TEST).unlink()
    link(directory / TRAIN, directory / TEST)
    with pytest.raises(MerlinSimError, match=rf"feature_spec.yaml:\d+: .*which is '{TRAIN}' of"):
        DatasetDirectory.open(directory)
    (directory / SPEC).unlink()
    with pytest.raises(MerlinSimError, match="expected files of its own"):
        DatasetDirectory.open(directory)
    shutil.rmtree(directory / "test")
    (directory / "test").symlink_to(directory / "train")
    with pytest.raises(MerlinSimError, match="expected files of its own"):
        DatasetDirectory.open(directory)


def test_a_copy_of_train_as_test_is_warned_of(directory):
    shutil.copy(directory / TRAIN, directory / TEST)
    with pytest.warns(DatasetWarning, match=f"{TRAIN} .train. and {TEST} .test. have the same"):
        DatasetDirectory.open(directory)
    table = pq.read_table(directory / TRAIN)
    pq.write_table(table.take(list(range(table.num_rows))[::-1]), directory / TEST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DatasetDirectory.open(directory)


def test_exchanged_histories(directory):
    spec = read_spec(directory / SPEC)
    channels = dict(spec.channel_spec)
    channels["positive_history"] = spec.channel_spec["negative_history"]
    channels["negative_history"] = spec.channel_spec["positive_history"]
    replace(spec, channel_spec=channels).write(directory / SPEC)
    with (
        pytest.warns(DatasetWarning, match="by their names they are exchanged"),
        pytest.raises(MerlinSimError, match="cat_id_neg: expected channel positive_history"),
    ):
        DatasetDirectory.open(directory)
    (directory / "schema.pbtxt").unlink()
    with pytest.warns(DatasetWarning, match="positive_history is item_id_neg, cat_id_neg and"):
        DatasetDirectory.open(directory)


def write_items(directory, last, **options):
    (directory / "categories").mkdir(exist_ok=True)
    ids = list(range(1, last + 1))
    file = directory / "categories/item_id.parquet"
    pq.write_table(pa.table({"id": ids, "key": [str(n) for n in ids]}), file, **options)


@pytest.mark.parametrize(
    ("last", "said"), [(49, "no key has the ids behind it"), (51, "some have no row")]
)
def test_a_vocabulary_of_another_size_than_its_table_is_warned_of(directory, last, said):
    """Tables may have room, as published specs state sizes and no keys."""
    write_items(directory, 50)
    DatasetDirectory.open(directory)
    write_items(directory, last, row_group_size=20)
    message = f"item_id.parquet: ids end at {last}, those of item_id by the spec at 50: {said}"
    with pytest.warns(DatasetWarning, match=message):
        DatasetDirectory.open(directory)
    write_items(directory, last, write_statistics=False)
    DatasetDirectory.open(directory)  # its footer does not tell
    (directory / "categories/item_id.parquet").write_text("no parquet")
    DatasetDirectory.open(directory)  # whoever reads it refuses it
