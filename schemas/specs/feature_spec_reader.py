"""From YAML (or plain dicts) to a FeatureSpec, gathering everything that has the wrong shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ...foundation.problem import KeyPath, Problem, describe
from ..dtypes import canonical_dtype
from .feature_spec import FEATURE_KEYS, Chunk, Feature, FeatureSpec
from .yaml_document import read_yaml

SECTIONS = ("feature_spec", "source_spec", "channel_spec", "metadata")
CHUNK_KEYS = ("type", "features", "files")


@dataclass
class Reading:
    """What came of reading a spec."""

    spec: FeatureSpec | None
    """The spec, with stand-ins for what had the wrong shape; None where there are no sections."""

    problems: list[Problem]
    """What had the wrong shape."""

    replaced: set[KeyPath] = field(default_factory=set)
    """Where stand-ins are: what follows from those need not be said."""


def read_feature_spec(path: Path) -> Reading:
    """Read the shape of a spec from a YAML file."""
    root, problems = read_yaml(path)
    if root is None:
        return Reading(None, problems)
    shape = _Shape(str(path), root.line_of)
    spec = shape.spec(root.plain())
    return Reading(spec, problems + shape.problems, shape.replaced)


def feature_spec_from_plain(sections: Mapping[str, Any]) -> Reading:
    """Do as :func:`read_feature_spec` does, from plain dicts and lists."""
    shape = _Shape("feature spec", None)
    return Reading(shape.spec(sections), shape.problems, shape.replaced)


class _Shape:
    """Reads values of known shape; what has another becomes a problem."""

    def __init__(self, file: str, line_of: Any) -> None:
        self.file, self.line_of = file, line_of
        self.problems: list[Problem] = []
        self.replaced: set[KeyPath] = set()

    def spec(self, plain: Any) -> FeatureSpec | None:
        if not isinstance(plain, Mapping):
            self.problem((), "a mapping with the sections " + ", ".join(SECTIONS), plain)
            return None
        self.known_keys((), plain, SECTIONS)
        features = {
            name: self.feature(("feature_spec", name), value)
            for name, value in self.section("feature_spec", plain).items()
        }
        sources = {
            name: self.chunks(("source_spec", name), value)
            for name, value in self.section("source_spec", plain).items()
        }
        channels = {
            name: self.names(("channel_spec", name), value, allow_empty=True)
            for name, value in self.section("channel_spec", plain).items()
        }
        metadata = self.section("metadata", plain)
        self.only_plain(("metadata",), metadata)
        path = Path(self.file) if self.line_of else None
        return FeatureSpec(features, sources, channels, metadata, path=path, line_of=self.line_of)

    def feature(self, path: KeyPath, plain: Any) -> Feature:
        if not isinstance(plain, Mapping):
            self.replace(path, "a mapping with at least `dtype`", plain)
            return Feature("int64")
        extra = {key: value for key, value in plain.items() if key not in FEATURE_KEYS}
        for key, value in extra.items():
            self.only_plain((*path, key), value)
        return Feature(
            self.dtype((*path, "dtype"), plain.get("dtype")),
            self.cardinality((*path, "cardinality"), plain.get("cardinality")),
            self.dimensions((*path, "dimensions"), plain.get("dimensions")),
            extra,
        )

    def dtype(self, path: KeyPath, plain: Any) -> str:
        if isinstance(plain, str) and canonical_dtype(plain):
            return plain
        self.replace(path, "a dtype such as int64, float32, bool or torch.int8", plain)
        return "int64"

    def cardinality(self, path: KeyPath, plain: Any) -> int | Literal["auto"] | None:
        if plain is None or plain == "auto" or (_is_int(plain) and plain > 0):
            return cast("int | Literal['auto'] | None", plain)
        self.replace(path, "a positive whole number, or auto", plain)
        return None

    def dimensions(self, path: KeyPath, plain: Any) -> tuple[int, ...] | None:
        if plain is None:
            return None
        if not isinstance(plain, list | tuple) or not plain:
            self.replace(path, "a list of at least one length", plain)
            return None
        bad = [place for place, length in enumerate(plain) if not _is_int(length) or length <= 0]
        for place in bad:
            self.problem((*path, place), "a positive whole number", plain[place])
            self.replaced.add(path)
        return None if bad else tuple(plain)

    def chunks(self, path: KeyPath, plain: Any) -> tuple[Chunk, ...]:
        if not isinstance(plain, list | tuple) or not plain:
            self.replace(path, "a list of at least one chunk", plain)
            return ()
        return tuple(self.chunk((*path, place), chunk) for place, chunk in enumerate(plain))

    def chunk(self, path: KeyPath, plain: Any) -> Chunk:
        if not isinstance(plain, Mapping):
            self.replace(path, "a mapping with " + ", ".join(CHUNK_KEYS), plain)
            return Chunk("", (), ())
        self.known_keys(path, plain, CHUNK_KEYS)
        kind = plain.get("type")
        if not isinstance(kind, str):
            self.replace((*path, "type"), "the format of the files", kind)
            kind = ""
        features = self.names((*path, "features"), plain.get("features"))
        return Chunk(kind, features, self.names((*path, "files"), plain.get("files")))

    def names(self, path: KeyPath, plain: Any, *, allow_empty: bool = False) -> tuple[str, ...]:
        if not isinstance(plain, list | tuple) or not (plain or allow_empty):
            self.replace(path, "a list of at least one name", plain)
            return ()
        for place, name in enumerate(plain):
            if not isinstance(name, str) or not name:
                self.replace((*path, place), "a name", name)
        return tuple(name if isinstance(name, str) else "" for name in plain)

    def section(self, name: str, plain: Mapping[str, Any]) -> dict[str, Any]:
        section = plain.get(name)
        if section is None and name == "metadata":
            return {}
        if not isinstance(section, Mapping):
            self.replace((name,), "a mapping" if name in plain else "this section", section)
            return {}
        for key in section:
            if not isinstance(key, str):
                self.replace((name, repr(key)), "keys that are text", key)
        return {key: value for key, value in section.items() if isinstance(key, str)}

    def only_plain(self, path: KeyPath, value: Any) -> None:
        """Refuse what YAML and JSON cannot hold; only a spec made in Python can have it."""
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    self.problem((*path, repr(key)), "keys that are text", key)
                self.only_plain((*path, str(key)), item)
        elif isinstance(value, list | tuple):
            for place, item in enumerate(value):
                self.only_plain((*path, place), item)
        elif value is not None and type(value) not in (str, bool, int, float):
            self.problem(path, "plain data", value)

    def known_keys(self, path: KeyPath, plain: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in plain:
            if key not in known:
                self.problem((*path, str(key)), "one of " + ", ".join(known), str(key))

    def replace(self, path: KeyPath, expected: str, received: Any) -> None:
        self.problem(path, expected, received)
        self.replaced.add(path)

    def problem(self, path: KeyPath, expected: str, received: Any) -> None:
        line = self.line_of(path) if self.line_of else None
        self.problems.append(Problem(self.file, path, expected, describe(received), line))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
