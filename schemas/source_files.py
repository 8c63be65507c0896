"""The data files that a spec names, and which of them it names twice."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..foundation.problem import KeyPath, Problem, format_key_path
from .specs.feature_spec import FeatureSpec
from .users_layout import USERS

TRAIN = "train"


@dataclass(frozen=True)
class NamedFile:
    """A file as a spec names it."""

    mapping: str
    """`train`, `test`, ..."""

    chunk: int
    """The place of its chunk in the mapping."""

    path: KeyPath
    """Where in the spec it stands."""

    name: str
    """As it is written there."""

    type: str
    """The type of its chunk."""

    def repeats_rows_of(self, other: NamedFile) -> bool:
        """Tell whether rows would be read twice, or trained on and tested with, if both are one.

        Two chunks of a mapping may share a file: each takes other columns of the same rows. So
        may two mappings that no model is trained on, and mappings of users: each has samples at
        other positions.
        """
        if self.mapping == other.mapping:
            return self.chunk == other.chunk
        if self.type == other.type == USERS:
            return False
        return TRAIN in (self.mapping, other.mapping)


def named_files(spec: FeatureSpec) -> Iterator[NamedFile]:
    """Give every file that the spec names, in its order."""
    for mapping, chunks in spec.source_spec.items():
        for place, chunk in enumerate(chunks):
            for number, name in enumerate(chunk.files):
                if name:
                    path = ("source_spec", mapping, place, "files", number)
                    yield NamedFile(mapping, place, path, name, chunk.type)


def repeated_files(spec: FeatureSpec, directory: Path | None) -> list[Problem]:
    """Find files that are named twice, under one name or several.

    Args:
        spec: The spec.
        directory: Where its paths start, to see through links; None to compare names alone.
    """
    seen: dict[object, list[NamedFile]] = {}
    problems = []
    for named in named_files(spec):
        keys = _identities(named.name, directory)
        earlier = [first for key in keys for first in seen.get(key, ())]
        twin = next((first for first in earlier if named.repeats_rows_of(first)), None)
        if twin is not None:
            problems.append(_problem(spec, named, twin))
        for key in keys:
            seen.setdefault(key, []).append(named)
    return problems


def _identities(name: str, directory: Path | None) -> list[object]:
    keys: list[object] = [posixpath.normpath(name)]
    if directory is not None:
        try:
            status = (directory / name).stat()
        except (OSError, ValueError):  # that it is missing is said elsewhere
            return keys
        keys.append((status.st_dev, status.st_ino))
    return keys


def _problem(spec: FeatureSpec, named: NamedFile, twin: NamedFile) -> Problem:
    other = format_key_path(twin.path)
    if named.mapping != twin.mapping:
        expected = f"files of its own, none of {twin.mapping}"
        received = f"{named.name!r}, which is {twin.name!r} of {other}"
    else:
        expected = "each file once"
        received = f"{named.name!r} again (it is {twin.name!r} of {other})"
    return spec.problem(named.path, expected, received)
