"""What must hold within a spec, whatever the model: names that are known, files that are there."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...foundation.problem import KeyPath, Problem, describe
from ..contracts.known_contracts import contract_named, may_be_empty
from ..source_files import repeated_files
from ..users_layout import USERS, users_problems
from .feature_spec import Chunk, FeatureSpec

if TYPE_CHECKING:
    from .feature_spec_reader import Reading

CHUNK_TYPES = ("parquet", "csv", "tfrecord", "split_binary", USERS)
REQUIRED_MAPPINGS = ("train", "test")
MOST_HINTS = 20
"""How many unknown names get a "did you mean": each is compared with every feature."""


def gather_problems(
    reading: Reading, directory: Path | None, model: str | None = None
) -> list[Problem]:
    """Gather all that is wrong with a spec: its shape, its names and files, a model's channels.

    Args:
        reading: What came of reading it.
        directory: Where its paths start; None to leave the files alone.
        model: The family of models whose channels it must have; None for any.

    Returns:
        The problems by line. Where a value of the wrong shape was replaced by a stand-in, what
        follows from the stand-in is left out.
    """
    problems = list(reading.problems)
    if reading.spec is not None:
        found = check_feature_spec(reading.spec, directory, reading.replaced)
        if not reading.problems:
            found += users_problems(reading.spec, directory)
        if model is not None:
            found += contract_named(model).problems(reading.spec)
        said = {problem.path for problem in problems}
        found = list(dict.fromkeys(found))
        problems += [problem for problem in found if problem.path not in said & reading.replaced]
    return sorted(problems, key=lambda problem: problem.line or 0)


def check_feature_spec(
    spec: FeatureSpec, directory: Path | None, replaced: Iterable[KeyPath] = ()
) -> list[Problem]:
    """Gather what is wrong within a spec of the right shape.

    Args:
        spec: The spec.
        directory: Where its paths start; None to leave the files alone.
        replaced: Where it has stand-ins for values of the wrong shape.
    """
    return _Checks(spec, directory, set(replaced)).run()


class _Checks:
    """The checks of one spec, and the problems found so far."""

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
            for place, name in enumerate(names):
                first = channel_of.setdefault(name, channel)
                if name and first != channel:
                    received = f"{name!r} again (it is in {first} too)"
                    path = ("channel_spec", channel, place)
                    self.add(path, "each feature in one channel", received)

    def mapping(self, path: KeyPath, chunks: Sequence[Chunk]) -> None:
        place_of: dict[str, int] = {}
        for place, chunk in enumerate(chunks):
            here = (*path, place)
            if chunk.type and chunk.type not in CHUNK_TYPES:
                expected = "one of the chunk types " + ", ".join(CHUNK_TYPES)
                self.add((*here, "type"), expected, describe(chunk.type))
            self.names((*here, "features"), chunk.features)
            for position, name in enumerate(chunk.features):
                if place_of.setdefault(name, place) != place:
                    received = f"{name!r} again (it is in chunk {place_of[name]} too)"
                    self.add((*here, "features", position), "each feature in one chunk", received)
            self.files((*here, "files"), chunk.files)
        missing = [name for name in self.spec.feature_spec if name not in place_of]
        if missing and not any(above[: len(path)] == path for above in self.replaced):
            more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
            received = "none with " + ", ".join(missing[:20]) + more
            self.add(path, "a chunk for every feature", received)

    def names(self, path: KeyPath, names: Iterable[str]) -> None:
        known = self.spec.feature_spec
        seen: set[str] = set()
        for place, name in enumerate(names):
            if name and name not in known and ("feature_spec",) not in self.replaced:
                received = describe(name) + self.hint(name)
                self.add((*path, place), "a feature of feature_spec", received)
            if name and name in seen:
                self.add((*path, place), "each feature once", f"{name!r} again")
            seen.add(name)

    def hint(self, name: str) -> str:
        self.hints += 1
        if self.hints > MOST_HINTS:
            return ""
        close = difflib.get_close_matches(name, self.spec.feature_spec, n=1)
        return f" (did you mean {close[0]!r}?)" if close else ""

    def files(self, path: KeyPath, files: Iterable[str]) -> None:
        for place, file in enumerate(files):
            normal = posixpath.normpath(file) if file else ""
            if not file:
                continue
            if posixpath.isabs(file) or normal in (".", "..") or normal.startswith("../"):
                expected = "the path of a file within the dataset directory"
                self.add((*path, place), expected, describe(file))
            elif self.directory is not None and not _is_file(self.directory / file):
                self.add((*path, place), "a file that exists", describe(file))

    def add(self, path: KeyPath, expected: str, received: str) -> None:
        self.problems.append(self.spec.problem(path, expected, received))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
