"""Samples with histories in chunks of any type, and rows of what they become."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from merlin_sim.schemas.dataset import DatasetDirectory


def rows_of(dataset: DatasetDirectory, mapping: str) -> pd.DataFrame:
    frame = pd.concat([pd.read_parquet(file) for file in dataset.files(mapping)])
    return frame.reset_index(drop=True)


NAMES = ["label", "user", "item_trgt", "cat_trgt", "item_pos", "cat_pos", "item_neg", "cat_neg"]


SINGLE = NAMES[:4]


LONGEST = 6


def sim_spec(kind: str, files: dict[str, list[str]], label="bool", **changes) -> dict:
    sizes = {"user": 50, "item": 90, "cat": 9}
    features = {"label": {"dtype": label}}
    for name in NAMES[1:]:
        features[name] = {"dtype": "int64", "cardinality": sizes[name.split("_")[0]]}
        if name not in SINGLE:
            features[name]["dimensions"] = [LONGEST]
    return {
        "feature_spec": features,
        "source_spec": {
            mapping: [{"type": kind, "features": NAMES, "files": names}]
            for mapping, names in files.items()
        },
        "channel_spec": {
            "label": ["label"],
            "user_features": ["user"],
            "target_item_features": ["item_trgt", "cat_trgt"],
            "positive_history": ["item_pos", "cat_pos"],
            "negative_history": ["item_neg", "cat_neg"],
        },
        "metadata": {},
        **changes,
    }


def sim_rows(count: int, seed=0) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row = {"label": int(rng.integers(2)), "user": int(rng.integers(1, 51))}
        length = int(rng.integers(0, LONGEST + 1))
        for part, size in (("trgt", None), ("pos", length), ("neg", length)):
            row[f"item_{part}"] = rng.integers(1, 91, size).tolist()
            row[f"cat_{part}"] = rng.integers(1, 10, size).tolist()
        rows.append({name: row[name] for name in NAMES})
    return rows


def pad(row: dict) -> dict:
    return {
        name: [0] * (LONGEST - len(value)) + value if isinstance(value, list) else value
        for name, value in row.items()
    }


def plain(frame: pd.DataFrame) -> list[dict]:
    return [
        {
            name: list(map(int, value)) if isinstance(value, np.ndarray) else int(value)
            for name, value in row.items()
        }
        for row in frame.to_dict("records")
    ]


def write_records(path: Path, records: list[dict], compression: str = "") -> None:
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            feature = {
                name: tf.train.Feature(
                    int64_list=tf.train.Int64List(value=np.ravel(value).astype(int))
                )
                for name, value in record.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def prebatch(rows: list[dict], size: int) -> list[dict]:
    return [
        {name: [row[name] for row in map(pad, rows[start : start + size])] for name in NAMES}
        for start in range(0, len(rows), size)
    ]


def write_spec(source: Path, spec: dict) -> None:
    source.mkdir(exist_ok=True)
    (source / "feature_spec.yaml").write_text(yaml.safe_dump(spec))
