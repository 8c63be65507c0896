"""What must hold within a spec, whatever the model: names that are known, files that are there."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable
from pathlib import Path

from .channels import may_be_empty
from .feature_spec import Chunk, FeatureSpec
from .problem import KeyPath, Problem, describe

CHUNK_TYPES = ("parquet", "csv", "tfrecord")
REQUIRED_MAPPINGS = ("train", "test")


def check_feature_spec(spec: FeatureSpec, directory: Path | None) -> list[Problem]:
    """Gather what is wrong within a spec.

    Args:
        spec: The spec, of the right shape.
        directory: Where its paths start; None to leave the files alone.
    """
    problems: list[Problem] = []
    for section in ("feature_spec", "channel_spec"):
        if not getattr(spec, section):
            problems.append(spec.problem((section,), "at least one entry", "an empty mapping"))
    problems += _check_channels(spec)
    for mapping in REQUIRED_MAPPINGS:
        if mapping not in spec.source_spec:
            found = ", ".join(spec.source_spec) or "no mapping"
            problems.append(spec.problem(("source_spec", mapping), "this mapping", found))
    for mapping, chunks in spec.source_spec.items():
        problems += _check_mapping(spec, mapping, chunks)
        for place, chunk in enumerate(chunks):
            problems += _check_files(spec, ("source_spec", mapping, place), chunk, directory)
    return problems


def _check_channels(spec: FeatureSpec) -> list[Problem]:
    problems = []
    for channel, names in spec.channel_spec.items():
        path: KeyPath = ("channel_spec", channel)
        if not names and not may_be_empty(channel):
            problems.append(spec.problem(path, "a list of at least one feature", "an empty list"))
        problems += _check_names(spec, path, names)
    return problems


def _check_mapping(spec: FeatureSpec, mapping: str, chunks: Iterable[Chunk]) -> list[Problem]:
    problems: list[Problem] = []
    place_of: dict[str, int] = {}
    for place, chunk in enumerate(chunks):
        path: KeyPath = ("source_spec", mapping, place)
        if chunk.type and chunk.type not in CHUNK_TYPES:
            expected = "one of the chunk types " + ", ".join(CHUNK_TYPES)
            problems.append(spec.problem((*path, "type"), expected, describe(chunk.type)))
        problems += _check_names(spec, (*path, "features"), chunk.features)
        for position, name in enumerate(chunk.features):
            if place_of.setdefault(name, place) != place:
                received = f"{name!r} again (it is in chunk {place_of[name]} too)"
                where = (*path, "features", position)
                problems.append(spec.problem(where, "each feature in one chunk", received))
    missing = [name for name in spec.feature_spec if name not in place_of]
    if missing and chunks:
        received = "none with " + ", ".join(missing)
        expected = "a chunk for every feature"
        problems.append(spec.problem(("source_spec", mapping), expected, received))
    return problems


def _check_names(spec: FeatureSpec, path: KeyPath, names: Iterable[str]) -> list[Problem]:
    problems = []
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name and name not in spec.feature_spec:
            close = difflib.get_close_matches(name, spec.feature_spec, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            expected = "a feature of feature_spec"
            problems.append(spec.problem((*path, place), expected, describe(name) + hint))
        if name and name in seen:
            problems.append(spec.problem((*path, place), "each feature once", f"{name!r} again"))
        seen.add(name)
    return problems


def _check_files(
    spec: FeatureSpec, path: KeyPath, chunk: Chunk, directory: Path | None
) -> list[Problem]:
    problems = []
    seen: set[str] = set()
    for place, file in enumerate(chunk.files):
        where = (*path, "files", place)
        if not file:
            continue
        normal = posixpath.normpath(file)
        if posixpath.isabs(file) or normal == ".." or normal.startswith("../"):
            expected = "a path within the dataset directory"
            problems.append(spec.problem(where, expected, describe(file)))
        elif normal in seen:
            problems.append(spec.problem(where, "each file once", f"{file!r} again"))
        elif directory is not None and not _is_file(directory / file):
            problems.append(spec.problem(where, "a file that exists", describe(file)))
        seen.add(normal)
    return problems


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a NUL byte
        return False
