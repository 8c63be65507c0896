"""What the descriptions of a dataset say, and where they contradict each other.

Read by PyYAML, json and protobuf alone; only what a reader has to agree with is taken.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2


class NoFacts(Exception):
    """The descriptions cannot be read, or say nothing with which a reading can be compared."""


@dataclass(frozen=True)
class Feature:
    """What is said of one column."""

    channel: str
    is_list: bool
    length: int | None
    largest: int | None
    """The smallest of the largest ids that any description states."""


@dataclass(frozen=True)
class Layout:
    """How samples are made, where there is one row per user."""

    history: str
    positions: dict[str, list[str]]
    item_table: str
    item_features: list[str]
    negatives: str
    seed: int
    negatives_per_positive: int = 1


@dataclass(frozen=True)
class Descriptions:
    """All that is said of a dataset."""

    features: dict[str, Feature]
    """Those in a channel."""
    files: dict[str, list[str]]
    contradictions: list[str]
    layout: Layout | None = None

    @property
    def channels(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, feature in self.features.items():
            found.setdefault(feature.channel, []).append(name)
        return found

    @property
    def items(self) -> int:
        """How many features an item has, itself among them."""
        return len(self.channels["target_item_features"])

    @property
    def length(self) -> int | None:
        """Of the longest history that is seen."""
        return self.features[self.channels["positive_history"][0]].length

    def largest_of(self, channel: str, place: int) -> int:
        return int(self.features[self.channels[channel][place]].largest or 0)

    @property
    def columns(self) -> list[str]:
        return list(self.features)


def read_descriptions(directory: Path) -> Descriptions:
    """Read feature_spec.yaml and compare it with the others; the schema alone where it is missing.

    Raises:
        NoFacts: Where an independent reader would give up.
    """
    spec_file = directory / "feature_spec.yaml"
    try:
        schema = _read_schema(directory / "schema.pbtxt")
        if os.path.lexists(spec_file):
            return _from_spec(directory, _read_spec(spec_file.read_bytes()), schema)
        if schema is None:
            raise NoFacts("no description")
        return _from_schema(directory, schema)
    except NoFacts:
        raise
    except Exception as error:
        raise NoFacts(f"{type(error).__name__}: {str(error)[:200]}") from error


@functools.lru_cache(maxsize=4)
def _read_spec(content: bytes) -> Any:
    """Parse a spec; most cases have the same, which costs a third of their time."""
    return yaml.safe_load(content)


def _read_schema(path: Path) -> Any:
    return _parsed_schema(path.read_text(encoding="utf-8")) if path.exists() else None


@functools.lru_cache(maxsize=4)
def _parsed_schema(text: str) -> Any:
    schema = schema_pb2.Schema()
    text_format.Parse(text, schema)
    return schema


def _from_spec(directory: Path, spec: Any, schema: Any) -> Descriptions:
    features: dict[str, Feature] = {}
    contradictions = []
    for channel, names in spec["channel_spec"].items():
        for name in names:
            if name in features:
                contradictions.append(f"{name} in {channel} and {features[name].channel}")
            stated = spec["feature_spec"][name]
            dimensions = stated.get("dimensions")
            largest = stated.get("cardinality")
            if channel == "categorical" and largest is not None:  # ids from 0 there
                largest -= 1
            length = dimensions[0] if dimensions else None
            features[name] = Feature(channel, bool(dimensions), length, largest)
    files = {
        mapping: [name for chunk in chunks for name in chunk["files"]]
        for mapping, chunks in spec["source_spec"].items()
    }
    layout = None
    if any(chunk["type"] == "users" for chunks in spec["source_spec"].values() for chunk in chunks):
        layout = Layout(**spec["metadata"]["users"])
    contradictions += _same_files(directory, files, layout is not None)
    if schema is not None:
        contradictions += _against_schema(features, schema)
    spare = [n for n, stated in spec["feature_spec"].items() if "cardinality" in stated]
    spare = [name for name in spare if name not in features]
    features = _against_metadata(directory, features, contradictions, len(spare))
    return Descriptions(features, files, contradictions, layout)


def _same_files(directory: Path, files: dict[str, list[str]], of_users: bool) -> list[str]:
    """Say which files are named twice, under whatever name; of users within a mapping."""
    seen: dict[str, str] = {}
    found = []
    for mapping, names in files.items():
        seen = {} if of_users else seen
        for name in names:
            place = os.path.realpath(directory / name)
            if place in seen:
                found.append(f"{mapping}: {name} is {seen[place]}")
            seen[place] = f"{mapping}: {name}"
    return found


def _against_schema(features: dict[str, Feature], schema: Any) -> list[str]:
    found = []
    stated = {feature.name: feature for feature in schema.feature}
    for name, feature in features.items():
        if name not in stated:
            found.append(f"{name} is not in schema.pbtxt")
            continue
        theirs = stated[name]
        if theirs.HasField("int_domain") and theirs.int_domain.max:
            if feature.largest is not None and theirs.int_domain.max != feature.largest:
                found.append(f"{name}: {feature.largest}, in schema.pbtxt {theirs.int_domain.max}")
        if theirs.HasField("value_count") and theirs.value_count.max and feature.length:
            if theirs.value_count.max != feature.length:
                found.append(f"{name}: length {theirs.value_count.max} in schema.pbtxt")
        tags = set(theirs.annotation.tag) & _CHANNELS
        if tags and feature.channel not in tags:
            found.append(f"{name}: {feature.channel}, in schema.pbtxt {sorted(tags)}")
    return found


_CHANNELS = {
    *("label", "user_features", "target_item_features"),
    *("positive_history", "negative_history", "history_time_intervals"),
    *("user_numerical", "target_item_numerical", "target_item_lists"),
}
_NUMBERS = {"categorical": "categorical", "continuous": "numerical"}
"""Merlin's tag -> the channel that it tells where none is named."""
_TABLES = ("user_features", "target_item_features", "target_item_lists", "categorical")


def _against_metadata(
    directory: Path, features: dict[str, Feature], contradictions: list[str], spare: int = 0
) -> dict[str, Feature]:
    path = directory / "metadata.json"
    tables = [name for name, feature in features.items() if feature.channel in _TABLES]
    if not path.exists():
        return features
    entries = json.loads(path.read_text(encoding="utf-8-sig"))["cardinalities"]
    stated = {entry["name"]: entry["value"] for entry in entries}
    # A feature that is in no channel has a table there all the same.
    if not len(tables) <= len(entries) <= len(tables) + spare:
        contradictions.append(f"{len(entries)} entries in metadata.json, {len(tables)} tables")
    for name in tables:
        largest, first = features[name].largest, int(features[name].channel == "categorical")
        if name in stated and stated[name] != (largest or 0) + first:
            contradictions.append(f"{name}: {largest}, {stated[name]} in metadata")
    return features


def _from_schema(directory: Path, schema: Any) -> Descriptions:
    features = {}
    for feature in schema.feature:
        channels = set(feature.annotation.tag) & _CHANNELS
        if not channels:
            channels = {_NUMBERS[tag] for tag in feature.annotation.tag if tag in _NUMBERS}
        if len(channels) != 1:
            raise NoFacts(f"{feature.name} has the tags {list(feature.annotation.tag)}")
        is_list = feature.HasField("value_count") or feature.HasField("shape")
        largest = feature.int_domain.max or None
        length = feature.value_count.max or None
        features[feature.name] = Feature(channels.pop(), is_list, length, largest)
    files = {}
    for mapping in ("train", "test"):
        names = sorted(path.name for path in (directory / mapping).glob("*.parquet"))
        files[mapping] = [f"{mapping}/{name}" for name in names]
    found = Descriptions(features, files, [])
    return replace(found, features=_against_metadata(directory, features, found.contradictions))
