"""Reading a FeatureSpec: its shape first, then every check of what it says."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from ..foundation.exceptions import KeyPath, Problem, SpecError, describe
from .channels import contract_named, may_be_empty
from .dtypes import canonical_dtype
from .feature_spec import FEATURE_KEYS, Chunk, Feature, FeatureSpec
from .layout_names import TEST, TRAIN
from .source_files import repeated_files, warn_of_likely_mistakes
from .users_layout import USERS, users_problems
from .yaml_document import read_yaml

SECTIONS = ("feature_spec", "source_spec", "channel_spec", "metadata")
CHUNK_KEYS = ("type", "features", "files")


@dataclass
class SpecReading:
    """Result of reading a spec."""

    spec: FeatureSpec | None
    """The spec, with stand-ins for what had the wrong shape; None where there are no sections."""

    problems: list[Problem]
    """What had the wrong shape."""

    replaced: set[KeyPath] = field(default_factory=set)
    """Where stand-ins are: what follows from those is not reported."""


def read_feature_spec(path: Path) -> SpecReading:
    """Read the shape of a spec from a YAML file."""
    root, problems = read_yaml(path)
    if root is None:
        return SpecReading(None, problems)
    shape = _Shape(str(path), root.line_of)
    spec = shape.spec(root.plain())
    return SpecReading(spec, problems + shape.problems, shape.replaced)


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
        path = Path(self.file) if self.line_of else None
        return FeatureSpec(features, sources, channels, metadata, path=path, line_of=self.line_of)

    def feature(self, path: KeyPath, plain: Any) -> Feature:
        if not isinstance(plain, Mapping):
            self.replace(path, "a mapping with at least `dtype`", plain)
            return Feature("int64")
        extra = {key: value for key, value in plain.items() if key not in FEATURE_KEYS}
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
        bad = [index for index, length in enumerate(plain) if not _is_int(length) or length <= 0]
        for index in bad:
            self.problem((*path, index), "a positive whole number", plain[index])
            self.replaced.add(path)
        return None if bad else tuple(plain)

    def chunks(self, path: KeyPath, plain: Any) -> tuple[Chunk, ...]:
        if not isinstance(plain, list | tuple) or not plain:
            self.replace(path, "a list of at least one chunk", plain)
            return ()
        return tuple(self.chunk((*path, index), chunk) for index, chunk in enumerate(plain))

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
        for index, name in enumerate(plain):
            if not isinstance(name, str) or not name:
                self.replace((*path, index), "a name", name)
        return tuple(name if isinstance(name, str) else "" for name in plain)

    def section(self, name: str, plain: Mapping[str, Any]) -> dict[str, Any]:
        section = plain.get(name)
        if section is None and name == "metadata":
            return {}
        if not isinstance(section, Mapping):
            self.replace((name,), "a mapping" if name in plain else "this section", section)
            return {}
        return dict(section)

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


CHUNK_TYPES = ("parquet", "csv", "tfrecord", "split_binary", USERS)
REQUIRED_MAPPINGS = (TRAIN, TEST)
MOST_HINTS = 20
"""How many unknown names get a "did you mean": each is compared with every feature."""


def gather_problems(
    reading: SpecReading, directory: Path | None, model: str | None = None
) -> list[Problem]:
    """Gather all that is wrong with a spec: its shape, its names and files, a model's channels.

    By line. Where a value of the wrong shape was replaced by a stand-in, what follows from the
    stand-in is left out. Without a directory the files are left alone.
    """
    problems = list(reading.problems)
    if reading.spec is not None:
        found = check_feature_spec(reading.spec, directory, reading.replaced)
        if not reading.problems:
            found += users_problems(reading.spec, directory)
        if model is not None:
            found += contract_named(model).problems(reading.spec)
        reported = {problem.path for problem in problems}
        found = list(dict.fromkeys(found))
        known = reported & reading.replaced
        problems += [problem for problem in found if problem.path not in known]
    return sorted(problems, key=lambda problem: problem.line or 0)


def check_feature_spec(
    spec: FeatureSpec, directory: Path | None, replaced: Iterable[KeyPath] = ()
) -> list[Problem]:
    """Gather what is wrong within a spec of the right shape.

    Without a directory the files are left alone; ``replaced`` has stand-ins for wrong values.
    """
    return _Checks(spec, directory, set(replaced)).run()


class _Checks:
    def __init__(self, spec: FeatureSpec, directory: Path | None, replaced: set[KeyPath]) -> None:
        self.spec, self.directory, self.replaced = spec, directory, replaced
        self.problems: list[Problem] = []
        self.hints = 0

    def run(self) -> list[Problem]:
        for section in ("feature_spec", "channel_spec"):
            if not getattr(self.spec, section):
                self.add((section,), "at least one entry", "an empty mapping")
        for channel, names in self.spec.channel_spec.items():
            path: KeyPath = ("channel_spec", channel)
            if not names and not may_be_empty(channel):
                self.add(path, "a list of at least one feature", "an empty list")
            self.names(path, names)
        self.one_channel_each()
        for mapping in REQUIRED_MAPPINGS:
            if mapping not in self.spec.source_spec and ("source_spec",) not in self.replaced:
                found = ", ".join(self.spec.source_spec) or "no mapping"
                self.add(("source_spec", mapping), "this mapping", found)
        for mapping, chunks in self.spec.source_spec.items():
            self.mapping(("source_spec", mapping), chunks)
        return self.problems + repeated_files(self.spec, self.directory)

    def one_channel_each(self) -> None:
        channel_of: dict[str, str] = {}
        for channel, names in self.spec.channel_spec.items():
            for index, name in enumerate(names):
                first = channel_of.setdefault(name, channel)
                if name and first != channel:
                    received = f"{name!r} again (it is in {first} too)"
                    path = ("channel_spec", channel, index)
                    self.add(path, "each feature in one channel", received)

    def mapping(self, path: KeyPath, chunks: Sequence[Chunk]) -> None:
        chunk_of: dict[str, int] = {}
        for index, chunk in enumerate(chunks):
            here = (*path, index)
            if chunk.type and chunk.type not in CHUNK_TYPES:
                expected = "one of the chunk types " + ", ".join(CHUNK_TYPES)
                self.add((*here, "type"), expected, describe(chunk.type))
            self.names((*here, "features"), chunk.features)
            for position, name in enumerate(chunk.features):
                if chunk_of.setdefault(name, index) != index:
                    received = f"{name!r} again (it is in chunk {chunk_of[name]} too)"
                    self.add((*here, "features", position), "each feature in one chunk", received)
            self.files((*here, "files"), chunk.files)
        missing = [name for name in self.spec.feature_spec if name not in chunk_of]
        if missing and not any(above[: len(path)] == path for above in self.replaced):
            more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
            received = "none with " + ", ".join(missing[:20]) + more
            self.add(path, "a chunk for every feature", received)

    def names(self, path: KeyPath, names: Iterable[str]) -> None:
        known = self.spec.feature_spec
        seen: set[str] = set()
        for index, name in enumerate(names):
            if name and name not in known and ("feature_spec",) not in self.replaced:
                received = describe(name) + self.hint(name)
                self.add((*path, index), "a feature of feature_spec", received)
            if name and name in seen:
                self.add((*path, index), "each feature once", f"{name!r} again")
            seen.add(name)

    def hint(self, name: str) -> str:
        self.hints += 1
        if self.hints > MOST_HINTS:
            return ""
        close = difflib.get_close_matches(name, self.spec.feature_spec, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""

    def files(self, path: KeyPath, files: Iterable[str]) -> None:
        for index, file in enumerate(files):
            normal = posixpath.normpath(file) if file else ""
            if not file:
                continue
            if posixpath.isabs(file) or normal in (".", "..") or normal.startswith("../"):
                expected = "the path of a file within the dataset directory"
                self.add((*path, index), expected, describe(file))
            elif self.directory is not None and not _is_file(self.directory / file):
                self.add((*path, index), "a file that exists", describe(file))

    def add(self, path: KeyPath, expected: str, received: str) -> None:
        self.problems.append(self.spec.problem(path, expected, received))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False


def read_spec(
    path: Path | str, *, check_files: bool = True, model: str | None = None
) -> FeatureSpec:
    """Read and check a spec.

    Args:
        path: The YAML file; the paths in it are relative to its directory.
        check_files: Whether the data files it names must exist.
        model: The family of models (``sim``, ``dlrm``, ...) whose channels it must have.

    Raises:
        SpecError: With every problem found, each with its key path and line.
    """
    reading = read_feature_spec(Path(path))
    directory = Path(path).parent if check_files else None
    problems = gather_problems(reading, directory, model)
    if problems or reading.spec is None:
        raise SpecError(path, problems)
    warn_of_likely_mistakes(reading.spec, directory)
    return reading.spec


def spec_from_plain(sections: Mapping[str, Any]) -> FeatureSpec:
    """Build a spec from sections as YAML or JSON hold them.

    >>> from merlin_sim.schemas.feature_spec import Chunk, Feature
    >>> spec = FeatureSpec(
    ...     feature_spec={"label": Feature("bool")},
    ...     source_spec={"train": (Chunk("csv", ("label",), ("train.csv",)),)},
    ...     channel_spec={"label": ("label",)},
    ... )
    >>> spec_from_plain(spec.to_dict()) == spec
    True

    Files, channels and mappings are not looked at: a spec under construction may lack them.
    """
    shape = _Shape("feature spec", None)
    spec = shape.spec(sections)
    if shape.problems or spec is None:
        raise SpecError("feature spec", shape.problems)
    return spec
