"""Schemas and batches of the SIM family, small enough to build a model in no time."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from merlin.schema import ColumnSchema, Schema, Tags

from merlin_sim.schemas.dataset import DatasetDirectory, write_documents
from merlin_sim.schemas.feature_spec import Chunk, Feature, FeatureSpec

CHANNELS = (
    "label",
    "user_features",
    "target_item_features",
    "positive_history",
    "negative_history",
)


def make_schema(
    users=(9,), items=(20, 6), history_length=10, *, ragged=True, negatives=True, intervals=False
):
    """A SIM-family schema: cardinalities of the user and item features, longest history."""
    least = 0 if ragged else history_length

    def categorical(name, domain, cardinality, tags, **kwargs):
        properties = {"domain": {"min": 0, "max": cardinality, "name": domain}}
        tags = [Tags.CATEGORICAL, *tags]
        return ColumnSchema(name, dtype="int64", tags=tags, properties=properties, **kwargs)

    lists = {"dims": (None, (least, history_length))}
    sequence = [Tags.SEQUENCE, Tags.LIST]
    tags = ["label", Tags.TARGET, Tags.BINARY_CLASSIFICATION]
    columns = [ColumnSchema("label", dtype="int64", tags=tags)]
    for i, cardinality in enumerate(users):
        tags = ["user_features", Tags.USER]
        columns.append(categorical(f"user_{i}", f"user_{i}", cardinality, tags))
    for i, cardinality in enumerate(items):
        tags = ["target_item_features", Tags.ITEM]
        columns.append(categorical(f"item_{i}", f"item_{i}", cardinality, tags))
    for i, cardinality in enumerate(items):
        tags = ["positive_history", *sequence]
        columns.append(categorical(f"item_{i}_hist", f"item_{i}", cardinality, tags, **lists))
    for i, cardinality in enumerate(items if negatives else ()):
        tags = ["negative_history", *sequence]
        columns.append(categorical(f"item_{i}_neg_hist", f"item_{i}", cardinality, tags, **lists))
    if intervals:
        tags = ["history_time_intervals", Tags.TIME, Tags.CONTINUOUS, *sequence]
        columns.append(ColumnSchema("intervals", dtype="float32", tags=tags, **lists))
    return Schema(columns)


@pytest.fixture(name="make_schema", scope="session")
def make_schema_fixture():
    return make_schema


def make_columns(schema, rows, seed=0, lengths=None):
    """Random columns for a schema: arrays, and for histories lists of arrays, oldest first."""
    rng = np.random.default_rng(seed)
    longest = schema["item_0_hist"].shape.dims[1].max
    lengths = rng.integers(0, longest + 1, rows) if lengths is None else np.asarray(lengths)
    columns = {}
    for column in schema:
        highest = 1 if column.name == "label" else column.int_domain and column.int_domain.max
        if column.is_list and highest:
            columns[column.name] = [rng.integers(1, highest + 1, n) for n in lengths]
        elif column.is_list:
            columns[column.name] = [rng.exponential(1e4, n).astype(np.float32) for n in lengths]
        else:
            columns[column.name] = rng.integers(
                0 if column.name == "label" else 1, highest + 1, rows
            )
    return columns


def padded_to(length, rows):
    """Left-pad rows with zeros."""
    return [np.concatenate([np.zeros(length - len(row), row.dtype), row]) for row in rows]


def as_batch(columns, longest, *, ragged):
    """Columns as Merlin's loader gives them."""
    batch = {}
    for name, column in columns.items():
        if not isinstance(column, list):
            batch[name] = tf.constant(column)
        elif ragged:
            batch[f"{name}__values"] = tf.constant(np.concatenate(column))
            offsets = np.cumsum([0, *map(len, column)])
            batch[f"{name}__offsets"] = tf.constant(offsets, tf.int32)
        else:
            batch[name] = tf.constant(np.stack(padded_to(longest, column)))
    label = batch.pop("label")
    return batch, label


def write_dataset(directory, schema, columns, longest, *, ragged):
    """Write a dataset directory whose mappings hold the same rows, stored otherwise."""
    table = {
        name: padded_to(longest, column) if isinstance(column, list) and not ragged else column
        for name, column in columns.items()
    }
    source = {}
    for mapping, codec in (("train", "snappy"), ("test", "gzip"), ("validation", "zstd")):
        file = f"{mapping}/part_0.parquet"
        (directory / mapping).mkdir(parents=True)
        pd.DataFrame(table).to_parquet(directory / file, compression=codec)
        source[mapping] = (Chunk("parquet", tuple(columns), (file,)),)
    channels = {name: [] for name in CHANNELS}
    features = {}
    for column in schema:
        (channel,) = set(CHANNELS) & set(map(str, column.tags))
        channels[channel].append(column.name)
        largest = None if channel == "label" else column.int_domain.max
        features[column.name] = Feature("int64", largest, (longest,) if column.is_list else None)
    channel_spec = {name: tuple(names) for name, names in channels.items()}
    write_documents(directory, FeatureSpec(features, source, channel_spec, {}))
    return DatasetDirectory.open(directory)


@pytest.fixture(name="make_columns", scope="session")
def make_columns_fixture():
    return make_columns


@pytest.fixture(name="as_batch", scope="session")
def as_batch_fixture():
    return as_batch


@pytest.fixture(scope="session", name="make_datasets")
def make_datasets_fixture():
    """Return what, of a folder, writes and opens dataset directories of random rows in it."""

    def in_folder(folder):
        def make(*, ragged, rows=60, seed=0, lengths=None):
            schema = make_schema(ragged=ragged)
            columns = make_columns(schema, rows, seed, lengths)
            directory = folder / f"{'ragged' if ragged else 'padded'}_{rows}_{seed}"
            return write_dataset(directory, schema, columns, 10, ragged=ragged)

        return make

    return in_folder


@pytest.fixture
def make_dataset(make_datasets, tmp_path):
    return make_datasets(tmp_path)
