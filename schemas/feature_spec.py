"""The published FeatureSpec: features, the files that hold them, and the channels they feed.

The published rules are those of "BYO dataset" in NVIDIA's recommender examples. A spec is plain
data: reading one opens no data file and builds no object but those of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from .atomic_write import write_text_atomically
from .exceptions import SpecError
from .problem import KeyPath, Problem

SPEC_FILE = "feature_spec.yaml"


@dataclass(frozen=True)
class Feature:
    """One feature and what is known of it."""

    dtype: str
    """As the spec spells it: `int64`, `torch.int8`, `bool`, ..."""

    cardinality: int | Literal["auto"] | None = None
    """How many ids the feature has; `auto` asks `merlin-sim transcode` to count them."""

    dimensions: tuple[int, ...] | None = None
    """For a list, the longest length (of a history: the length to which it may be padded)."""

    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the spec says of the feature; kept, not interpreted."""

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
    """The format of the files: `parquet`, `csv` or `tfrecord`."""

    features: tuple[str, ...]
    """The features in the files; for csv, in the order of the columns."""

    files: tuple[str, ...]
    """Paths relative to the spec's directory; their rows follow one another in this order."""

    def to_dict(self) -> dict[str, Any]:
        """Return the chunk as the spec's YAML holds it."""
        return {"type": self.type, "features": list(self.features), "files": list(self.files)}


@dataclass(frozen=True)
class FeatureSpec:
    """A dataset's description.

    >>> spec = FeatureSpec(
    ...     feature_spec={"label": Feature("bool")},
    ...     source_spec={"train": (Chunk("csv", ("label",), ("train.csv",)),)},
    ...     channel_spec={"label": ("label",)},
    ... )
    >>> FeatureSpec.from_dict(spec.to_dict()) == spec
    True
    """

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

    @classmethod
    def read(cls, path: Path | str, *, check_files: bool = True) -> FeatureSpec:
        """Read and check a spec.

        Args:
            path: The YAML file; the paths in it are relative to its directory.
            check_files: Whether the data files it names must exist.

        Raises:
            SpecError: With every problem found, each with its key path and line.
        """
        from .feature_spec_checks import check_feature_spec
        from .feature_spec_reader import read_feature_spec

        spec, problems = read_feature_spec(Path(path))
        if spec is not None:
            # What has the wrong shape has been said; what follows from that need not be.
            said = {problem.path for problem in problems if problem.path}
            for problem in check_feature_spec(spec, Path(path).parent if check_files else None):
                if not any(problem.path[: len(above)] == above for above in said):
                    problems.append(problem)
        if problems or spec is None:
            raise SpecError(path, sorted(problems, key=lambda problem: problem.line or 0))
        return spec

    @classmethod
    def from_dict(cls, sections: Mapping[str, Any]) -> FeatureSpec:
        """Build a spec from the sections as YAML or JSON hold them.

        Raises:
            SpecError: Where the sections have the wrong shape. Files, channels and mappings are
                not looked at: a spec under construction may lack them.
        """
        from .feature_spec_reader import feature_spec_from_plain

        spec, problems = feature_spec_from_plain(sections)
        if problems or spec is None:
            raise SpecError("feature spec", problems)
        return spec

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
