"""A short name for what a dataset holds."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from ..foundation.exceptions import MerlinSimError
from .dataset import DatasetDirectory
from .source_files import named_files


def fingerprint(dataset: DatasetDirectory) -> str:
    """Return a short name for what a dataset holds, not for where it lies.

    It covers the spec and, of each file, its mapping, its length and its last 64 KiB, where parquet
    keeps its schema, row groups and statistics.
    """
    digest = hashlib.sha256(json.dumps(_contents(dataset), sort_keys=True).encode())
    files = [(named.mapping, named.name) for named in named_files(dataset.spec)]
    of_users = () if dataset.users is None else dataset.users.files
    for mapping, name in [*files, *(("", name) for name in of_users)]:
        file = dataset.path / name
        try:
            with open(file, "rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(max(0, size - 65536))
                digest.update(f"\0{mapping}\0{size}\0".encode() + stream.read())
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
