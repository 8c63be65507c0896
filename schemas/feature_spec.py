"""The published FeatureSpec: features, the files that hold them, and the channels they feed.

The published rules are those of "BYO dataset" in NVIDIA's recommender examples. A spec is plain
data; ``spec_file.py`` reads one, and builds no object but those of this file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from ..foundation.exceptions import KeyPath, MerlinSimError, Problem
from ..foundation.files import write_text_atomically
from .dtypes import canonical_dtype

FEATURE_KEYS = ("dtype", "cardinality", "dimensions")


@dataclass(frozen=True)
class Feature:
    """One feature and what is known of it."""

    dtype: str
    """As the spec spells it: `int64`, `torch.int8`, `bool`, ..."""

    cardinality: int | Literal["auto"] | None = None
    """How many ids the feature has; `auto` asks `merlin-sim data transcode` to count them."""

    dimensions: tuple[int, ...] | None = None
    """For a list, the longest length (of a history: the length to which it may be padded)."""

    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the spec says of the feature; kept, not interpreted."""

    def __post_init__(self) -> None:
        wrong = []
        if not isinstance(self.dtype, str) or not canonical_dtype(self.dtype):
            wrong.append(f"dtype = {self.dtype!r}")
        if self.cardinality not in (None, "auto"):
            try:
                object.__setattr__(self, "cardinality", _positive(self.cardinality))
            except (TypeError, ValueError):
                wrong.append(f"cardinality = {self.cardinality!r}")
        if self.dimensions is not None:
            try:
                lengths = tuple(_positive(length) for length in self.dimensions)
                object.__setattr__(self, "dimensions", lengths)
                wrong += [] if lengths else ["dimensions = ()"]
            except (TypeError, ValueError):
                wrong.append(f"dimensions = {self.dimensions!r}")
        wrong += [f"extra key {key!r}" for key in self.extra if key in FEATURE_KEYS]
        if wrong:
            raise MerlinSimError(
                "A feature should have a known dtype, a positive cardinality (or auto), positive "
                f"dimensions and no extra key named like these. Received: {'; '.join(wrong)}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the feature as the spec's YAML holds it."""
        written: dict[str, Any] = {"dtype": self.dtype}
        if self.cardinality is not None:
            written["cardinality"] = self.cardinality
        if self.dimensions is not None:
            written["dimensions"] = list(self.dimensions)
        return {**written, **self.extra}


@dataclass(frozen=True)
class Chunk:
    """Files that hold some of a mapping's features."""

    type: str
    """The format of the files: `parquet`, `csv`, `tfrecord`, `split_binary` with a row per sample,
    or `users`: parquet with a row per user."""

    features: tuple[str, ...]
    """The features in the files; for csv, in the order of the columns."""

    files: tuple[str, ...]
    """Paths relative to the spec's directory; their rows follow one another in this order."""

    def to_dict(self) -> dict[str, Any]:
        """Return the chunk as the spec's YAML holds it."""
        return {"type": self.type, "features": list(self.features), "files": list(self.files)}


@dataclass(frozen=True)
class FeatureSpec:
    """A dataset's description; :func:`~.spec_file.read_spec` reads one."""

    feature_spec: Mapping[str, Feature]
    """Feature name -> the feature."""

    source_spec: Mapping[str, tuple[Chunk, ...]]
    """Mapping name (`train`, `test`, ...) -> its chunks."""

    channel_spec: Mapping[str, tuple[str, ...]]
    """Channel name -> the names of the features that feed it, in order."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Whatever does not fit into the other sections; kept, not interpreted."""

    path: Path | None = field(default=None, compare=False, repr=False)
    """The file the spec was read from."""

    line_of: Callable[[KeyPath], int] | None = field(default=None, compare=False, repr=False)
    """Where in that file a key stands."""

    def to_dict(self) -> dict[str, Any]:
        """Return the four sections as YAML or JSON hold them."""
        return {
            "feature_spec": {name: item.to_dict() for name, item in self.feature_spec.items()},
            "source_spec": {
                name: [chunk.to_dict() for chunk in chunks]
                for name, chunks in self.source_spec.items()
            },
            "channel_spec": {name: list(names) for name, names in self.channel_spec.items()},
            "metadata": dict(self.metadata),
        }

    def to_yaml(self) -> str:
        """Return the spec as YAML text; reading that and writing it again gives the same text."""
        text: str = yaml.dump(
            self.to_dict(),
            Dumper=_PlainDumper,
            sort_keys=False,
            allow_unicode=True,
            default_flow_style=False,
        )
        return text

    def write(self, path: Path | str) -> None:
        """Write the spec; the file appears whole or not at all."""
        write_text_atomically(Path(path), self.to_yaml())

    def problem(self, path: KeyPath, expected: str, received: str) -> Problem:
        """Make a problem that knows the spec's file and the line of ``path``."""
        name = "feature spec" if self.path is None else str(self.path)
        line = self.line_of(path) if self.line_of else None
        return Problem(name, path, expected, received, line)


def _positive(value: Any) -> int:
    number = operator.index(value)
    if number <= 0 or isinstance(value, bool):
        raise ValueError(value)
    return number


class _PlainDumper(yaml.SafeDumper):
    """Writes without anchors: a list that stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.Node:
        # Only in double quotes do YAML's less known line breaks (NEL, LS, PS) come back.
        return self.represent_scalar(
            "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
        )


_PlainDumper.add_representer(str, _PlainDumper.represent_text)
