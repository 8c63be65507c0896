"""Rows for the benchmarks: a dataset directory, and the same rows as TFRecord."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf

from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec
from merlin_sim.workflows.transcoding.tfrecord import encode_examples

LENGTH = 100
TEST_ROWS = 4096
TEST_FILE = "test.parquet"
ITEMS, CATEGORIES, USERS = 100_000, 1_000, 50_000
SCALARS = ("user_id", "item_id_trgt", "cat_id_trgt")
LISTS = ("item_id_pos", "cat_id_pos", "item_id_neg", "cat_id_neg")


def largest_ids(items: int = ITEMS) -> dict[str, int]:
    """Return each column's largest id."""
    others = {n: items if n.startswith("item") else CATEGORIES for n in (*SCALARS[1:], *LISTS)}
    return {"user_id": USERS, **others}


def describe(files: tuple[str, ...], length: int = LENGTH, items: int = ITEMS) -> FeatureSpec:
    """Describe such rows with histories of one length."""
    largest = largest_ids(items)
    features = {"label": Feature("int8", None, None, {})}
    features |= {name: Feature("int64", largest[name], None, {}) for name in SCALARS}
    features |= {name: Feature("int64", largest[name], (length,), {}) for name in LISTS}
    channels = {
        "label": ("label",),
        "user_features": ("user_id",),
        "target_item_features": SCALARS[1:],
        "positive_history": LISTS[:2],
        "negative_history": LISTS[2:],
    }
    sources = {
        mapping: (Chunk("parquet", tuple(features), names),)
        for mapping, names in (("train", files), ("test", (TEST_FILE,)))
    }
    return FeatureSpec(features, sources, channels, {})


def write_dataset(
    directory: Path, rows: int, files: int = 2, items: int = ITEMS
) -> DatasetDirectory:
    """Write ``rows`` rows of train, and some of test, with full histories.

    Ids are skewed as popularity is.
    """
    random = np.random.default_rng(1)
    largest = largest_ids(items)

    def ids(name: str, count: int) -> pa.Array:
        skewed = (random.random(count) ** 4 * largest[name]).astype(np.int64)
        return pa.array(1 + (skewed * 7919) % largest[name])

    def write(file: str, count: int) -> None:
        columns = {"label": pa.array(random.integers(0, 2, count).astype(np.int8))}
        columns |= {name: ids(name, count) for name in SCALARS}
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * LENGTH)
        for name in LISTS:
            columns[name] = pa.ListArray.from_arrays(offsets, ids(name, count * LENGTH))
        pq.write_table(pa.table(columns), directory / file, row_group_size=16384)

    directory.mkdir(parents=True, exist_ok=True)
    names = tuple(f"part.{number}.parquet" for number in range(files))
    for file in names:
        write(file, rows // files)
    write(TEST_FILE, TEST_ROWS)
    write_documents(directory, describe(names, items=items))
    return DatasetDirectory.open(directory)


def write_tfrecord(dataset: DatasetDirectory, path: Path, rows: int, together: int = 1) -> None:
    """Write the first rows, so many together in a ``tf.train.Example``."""
    table = pq.read_table(dataset.files("train")[0]).slice(0, rows)
    values = {name: table[name].combine_chunks() for name in table.column_names}
    columns = {
        name: np.asarray(column.flatten() if name in LISTS else column).astype(np.int64)
        for name, column in values.items()
    }
    records = {name: column.reshape(rows // together, -1) for name, column in columns.items()}
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in encode_examples(records):
            writer.write(record)


def prebatched_batches(path: Path, batch_size: int) -> tf.data.Dataset:
    """Read records of ``batch_size`` samples as published: one record is one batch."""
    described = {n: tf.io.FixedLenFeature([batch_size], tf.int64) for n in ("label", *SCALARS)}
    described |= {n: tf.io.FixedLenFeature([batch_size * LENGTH], tf.int64) for n in LISTS}

    def parse(records: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        parsed = tf.io.parse_example(records, described)
        columns = {name: tf.reshape(parsed[name], [-1]) for name in ("label", *SCALARS)}
        columns |= {name: tf.reshape(parsed[name], [-1, LENGTH]) for name in LISTS}
        return columns, tf.cast(columns.pop("label"), tf.float32)

    batches = tf.data.TFRecordDataset(str(path)).batch(1)
    return batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
