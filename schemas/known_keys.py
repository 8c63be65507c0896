"""Which keys a dataset's ids stand for, so that models know whether its ids are theirs.

A vocabulary that grew keeps the ids of the keys that it had: its first keys are those of before. A
short note of them, kept with a model, shows that without the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..foundation.exceptions import MerlinSimError
from ..foundation.files import read_json
from .channels import tag_names
from .fitted_record import fitted_features
from .layout_names import CATEGORIES, WORKFLOW_FILE

if TYPE_CHECKING:
    from merlin.schema import ColumnSchema, Schema

FITTED = "fitted"
"""What stands in a note, besides the domains, for the fitted numbers of a workflow."""


@dataclass(frozen=True)
class KnownKeys:
    """The ids of one domain."""

    largest: int
    """The last of them."""
    keys: int
    """How many keys a vocabulary has for them; 0 where there is none, and keys are the ids."""
    digest: str | None
    """Of these keys in the order of their ids."""


@dataclass(frozen=True)
class IdsNote:
    """Note of what the ids of a dataset mean."""

    domains: Mapping[str, KnownKeys]
    """By the name of a domain, which is that of its embedding table."""
    fitted: str | None
    """A digest of how numbers become buckets and crosses; None where there are none."""

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)

    @classmethod
    def parse(cls, stated: Any) -> IdsNote | None:
        """Read what :meth:`to_dict` gave; None for anything else."""
        try:
            domains = {
                str(name): KnownKeys(int(entry["largest"]), int(entry["keys"]), entry["digest"])
                for name, entry in stated["domains"].items()
            }
            return cls(domains, stated[FITTED])
        except (TypeError, KeyError, ValueError, AttributeError):
            return None


def note_ids(schema: Schema, directory: Path) -> IdsNote:
    """Note what the ids of a dataset directory, or of a servable, mean."""
    domains = {}
    for domain, largest in largest_ids(schema).items():
        keys = read_keys(directory, domain)
        count = 0 if keys is None else len(keys)
        domains[domain] = KnownKeys(largest, count, None if keys is None else digest_of_keys(keys))
    return IdsNote(domains, _fitted(directory / WORKFLOW_FILE))


def other_meanings(note: IdsNote, schema: Schema, directory: Path) -> list[str]:
    """Say in which domains ids mean something else than by a note; nothing where none does.

    Ids beyond those of the note are new, and mean nothing by it.
    """
    problems = []
    here = largest_ids(schema)
    for domain, known in note.domains.items():
        if domain not in here:
            continue
        keys = read_keys(directory, domain)
        file = directory / CATEGORIES / f"{domain}.parquet"
        if here[domain] < known.largest:
            problems.append(
                f"{domain}: its ids should end at {known.largest:,} or later, as those that are "
                f"known do. Received: {here[domain]:,}"
            )
        elif (keys is None) != (known.digest is None):
            there = "ids are keys" if known.digest is None else "a vocabulary gave the ids"
            found = "no vocabulary" if keys is None else "one"
            problems.append(f"{domain}: {there} in what is known. Received: {found} in {file}")
        elif keys is not None and (
            len(keys) < known.keys or digest_of_keys(keys.slice(0, known.keys)) != known.digest
        ):
            problems.append(
                f"{domain}: the first {known.keys:,} keys of {file} should be those that are "
                "known, in their order. Received: others"
            )
    if note.fitted != _fitted(directory / WORKFLOW_FILE):
        problems.append(f"{WORKFLOW_FILE}: numbers and crosses of features were fitted otherwise")
    return problems


def grown_domains(note: IdsNote, schema: Schema) -> list[str]:
    """Say in which domains a dataset has more ids than a note, as one that grew since has."""
    here = largest_ids(schema)
    return [
        f"{domain}: {known.largest:,} ids are known, the dataset has {here[domain]:,}"
        for domain, known in note.domains.items()
        if here.get(domain, 0) > known.largest
    ]


def read_keys(directory: Path, domain: str) -> pa.ChunkedArray | None:
    """Return the raw keys of a domain in the order of their ids; None without a vocabulary.

    A table of items may stand instead of it without keys: then there is none.
    """
    path = directory / CATEGORIES / f"{domain}.parquet"
    if not path.is_file():
        return None
    try:
        if "key" not in pq.read_schema(path).names:
            return None
        table = pq.read_table(path, columns=["id", "key"])
    except (OSError, pa.ArrowException) as error:
        raise MerlinSimError(f"{path}: expected the columns id and key: {error}") from error
    ids = table["id"].to_numpy()
    if not (np.diff(ids) > 0).all():
        if len(np.unique(ids)) != len(ids):
            raise MerlinSimError(f"{path}: each id should have one key. Received: an id twice")
        table = table.sort_by("id")
    return table["key"]


def digest_of_keys(keys: pa.ChunkedArray) -> str:
    """Return the digest of keys in their order, however they are cut into chunks.

    >>> cut, whole = pa.chunked_array([["a"], ["bc"]]), pa.chunked_array([["a", "bc"]])
    >>> digest_of_keys(cut) == digest_of_keys(whole) != digest_of_keys(whole.slice(1))
    True
    """
    is_text = pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)
    binary = pa.types.is_binary(keys.type) or pa.types.is_large_binary(keys.type)
    digest = hashlib.sha256(("text" if is_text or binary else "other").encode())
    if not (is_text or binary):
        # Numbers of any width that are equal are the same key.
        whole = pa.types.is_integer(keys.type)
        keys = keys.cast(pa.int64() if whole else pa.string())
        if whole:
            for chunk in keys.chunks:
                digest.update(np.ascontiguousarray(chunk.to_numpy(zero_copy_only=False)).tobytes())
            return digest.hexdigest()
    lengths, texts = hashlib.sha256(), hashlib.sha256()
    for chunk in keys.cast(pa.large_binary()).chunks:
        _, offsets, data = chunk.buffers()
        ends = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        lengths.update(np.diff(ends).tobytes())
        if data is not None:
            texts.update(memoryview(data)[ends[0] : ends[-1]])
    digest.update(lengths.digest() + texts.digest())
    return digest.hexdigest()


class Described(Protocol):
    """An opened dataset, as far as it counts here."""

    @property
    def schema(self) -> Schema:
        """Its columns."""

    @property
    def path(self) -> Path:
        """Its directory."""


def note_of(dataset: Described) -> IdsNote:
    """Note what the ids of an opened dataset mean."""
    return note_ids(dataset.schema, dataset.path)


def domain_of(column: ColumnSchema) -> tuple[str, int] | None:
    """Return the domain of a column of ids, with the largest id; None of other columns."""
    domain = column.properties.get("domain") or {}
    tags = tag_names(column)
    if domain.get("max") is None or "categorical" not in tags or "target" in tags:
        return None
    return str(domain.get("name") or column.name), int(domain["max"])


def largest_ids(schema: Schema) -> dict[str, int]:
    """Return the largest id of each domain of a dataset's columns."""
    return dict(found for column in schema if (found := domain_of(column)) is not None)


def _fitted(path: Path) -> str | None:
    if not path.is_file():
        return None
    try:
        features = fitted_features(read_json(path, "JSON, a fitted workflow"))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise MerlinSimError(f"{path}: expected a fitted workflow ({error!r}).") from error
    return None if features is None else hashlib.sha256(features.encode()).hexdigest()
