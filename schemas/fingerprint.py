"""A short name for what a dataset holds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..foundation.exceptions import MerlinSimError
from .dataset import DatasetDirectory


def fingerprint(dataset: DatasetDirectory) -> str:
    """Return a short name for what a dataset holds, not for where it lies.

    It covers the spec and, of each file, its length and its last 64 KiB, where parquet keeps its
    schema, row groups and statistics.
    """
    digest = hashlib.sha256(json.dumps(_contents(dataset), sort_keys=True).encode())
    for mapping in ("train", "test"):
        for file in _files(dataset, mapping):
            try:
                with open(file, "rb") as stream:
                    size = stream.seek(0, 2)
                    stream.seek(max(0, size - 65536))
                    digest.update(str(size).encode() + stream.read())
            except OSError as error:
                raise MerlinSimError(f"{file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:16]


def _contents(dataset: DatasetDirectory) -> dict[str, Any]:
    spec = dataset.spec
    features = {
        name: [str(feature.dtype), feature.cardinality, feature.dimensions]
        for name, feature in spec.feature_spec.items()
    }
    channels = {name: list(names) for name, names in spec.channel_spec.items()}
    contents: dict[str, Any] = {"features": features, "channels": channels}
    if dataset.users is not None:
        contents["users"] = dataset.users.to_dict()
    return contents


def _files(dataset: DatasetDirectory, mapping: str) -> list[Path]:
    """The files that decide the samples of a mapping."""
    files = dataset.stored_files(mapping)
    return files if dataset.users is None else [*files, dataset.path / dataset.users.item_table]
