"""From YAML (or plain dicts) to a FeatureSpec, gathering everything that has the wrong shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from .dtypes import canonical_dtype
from .feature_spec import Chunk, Feature, FeatureSpec
from .problem import KeyPath, Problem, describe
from .yaml_document import read_yaml

SECTIONS = ("feature_spec", "source_spec", "channel_spec", "metadata")
CHUNK_KEYS = ("type", "features", "files")


def read_feature_spec(path: Path) -> tuple[FeatureSpec | None, list[Problem]]:
    """Read the shape of a spec from a YAML file.

    Returns:
        The spec, without the parts that have the wrong shape, and a problem for each of those;
        None where the file holds no sections at all.
    """
    root, problems = read_yaml(path)
    if root is None:
        return None, problems
    shape = _Shape(str(path), root.line_of)
    spec = shape.spec(root.plain())
    return spec, problems + shape.problems


def feature_spec_from_plain(
    sections: Mapping[str, Any],
) -> tuple[FeatureSpec | None, list[Problem]]:
    """Do as :func:`read_feature_spec` does, from plain dicts and lists."""
    shape = _Shape("feature spec", None)
    return shape.spec(sections), shape.problems


class _Shape:
    """Reads values of known shape; what has another becomes a problem."""

    def __init__(self, file: str, line_of: Any) -> None:
        self.file, self.line_of = file, line_of
        self.problems: list[Problem] = []

    def spec(self, plain: Any) -> FeatureSpec | None:
        if not isinstance(plain, Mapping):
            self.problem((), "a mapping with the sections " + ", ".join(SECTIONS), plain)
            return None
        self.known_keys((), plain, SECTIONS)
        for section in ("feature_spec", "source_spec", "channel_spec"):
            if section not in plain:
                self.problem((section,), "this section", None)
        features = {
            name: self.feature(("feature_spec", name), value)
            for name, value in self.mapping(("feature_spec",), plain).items()
        }
        sources = {
            name: self.chunks(("source_spec", name), value)
            for name, value in self.mapping(("source_spec",), plain).items()
        }
        channels = {
            name: self.names(("channel_spec", name), value, allow_empty=True)
            for name, value in self.mapping(("channel_spec",), plain).items()
        }
        return FeatureSpec(
            features,
            sources,
            channels,
            self.mapping(("metadata",), plain),
            path=Path(self.file) if self.line_of else None,
            line_of=self.line_of,
        )

    def feature(self, path: KeyPath, plain: Any) -> Feature:
        if not isinstance(plain, Mapping):
            self.problem(path, "a mapping with at least `dtype`", plain)
            return Feature("int64")
        extra = {k: v for k, v in plain.items() if k not in ("dtype", "cardinality", "dimensions")}
        cardinality = self.cardinality((*path, "cardinality"), plain.get("cardinality"))
        dimensions = self.dimensions((*path, "dimensions"), plain.get("dimensions"))
        return Feature(
            self.dtype((*path, "dtype"), plain.get("dtype")), cardinality, dimensions, extra
        )

    def dtype(self, path: KeyPath, plain: Any) -> str:
        if isinstance(plain, str) and canonical_dtype(plain):
            return plain
        self.problem(path, "a dtype such as int64, float32, bool or torch.int8", plain)
        return "int64"

    def cardinality(self, path: KeyPath, plain: Any) -> int | Literal["auto"] | None:
        if plain is None or plain == "auto" or (_is_int(plain) and plain > 0):
            return cast("int | Literal['auto'] | None", plain)
        self.problem(path, "a positive whole number, or auto", plain)
        return None

    def dimensions(self, path: KeyPath, plain: Any) -> tuple[int, ...] | None:
        if plain is None:
            return None
        if not isinstance(plain, list | tuple) or not plain:
            self.problem(path, "a list of at least one length", plain)
            return None
        bad = [place for place, length in enumerate(plain) if not _is_int(length) or length <= 0]
        for place in bad:
            self.problem((*path, place), "a positive whole number", plain[place])
        return None if bad else tuple(plain)

    def chunks(self, path: KeyPath, plain: Any) -> tuple[Chunk, ...]:
        if not isinstance(plain, list | tuple) or not plain:
            self.problem(path, "a list of at least one chunk", plain)
            return ()
        return tuple(self.chunk((*path, place), chunk) for place, chunk in enumerate(plain))

    def chunk(self, path: KeyPath, plain: Any) -> Chunk:
        if not isinstance(plain, Mapping):
            self.problem(path, "a mapping with " + ", ".join(CHUNK_KEYS), plain)
            return Chunk("", (), ())
        self.known_keys(path, plain, CHUNK_KEYS)
        kind = plain.get("type")
        if not isinstance(kind, str):
            self.problem((*path, "type"), "the format of the files", kind)
            kind = ""
        features = self.names((*path, "features"), plain.get("features"))
        return Chunk(kind, features, self.names((*path, "files"), plain.get("files")))

    def names(self, path: KeyPath, plain: Any, *, allow_empty: bool = False) -> tuple[str, ...]:
        if not isinstance(plain, list | tuple) or not (plain or allow_empty):
            self.problem(path, "a list of at least one name", plain)
            return ()
        for place, name in enumerate(plain):
            if not isinstance(name, str) or not name:
                self.problem((*path, place), "a name", name)
        return tuple(name if isinstance(name, str) else "" for name in plain)

    def mapping(self, path: KeyPath, plain: Mapping[str, Any]) -> dict[str, Any]:
        section = plain.get(str(path[0]))
        if section is None and (path[0] == "metadata" or path[0] not in plain):
            return {}
        if not isinstance(section, Mapping):
            self.problem(path, "a mapping", section)
            return {}
        return dict(section)

    def known_keys(self, path: KeyPath, plain: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in plain:
            if key not in known:
                self.problem((*path, str(key)), "one of " + ", ".join(known), str(key))

    def problem(self, path: KeyPath, expected: str, received: Any) -> None:
        line = self.line_of(path) if self.line_of else None
        self.problems.append(Problem(self.file, path, expected, describe(received), line))


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
