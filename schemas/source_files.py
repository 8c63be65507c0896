"""The data files that a spec names: which of them it names twice, and what may be wrong with it."""

from __future__ import annotations

import filecmp
import itertools
import posixpath
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..foundation.exceptions import DatasetWarning, KeyPath, Problem, format_key_path
from .channels import NEGATIVE_HISTORY, POSITIVE_HISTORY
from .feature_spec import FeatureSpec
from .layout_names import CATEGORIES, TRAIN
from .users_layout import USERS

if TYPE_CHECKING:
    from .merlin_import import Schema


@dataclass(frozen=True)
class NamedFile:
    """A file as a spec names it."""

    mapping: str
    """`train`, `test`, ..."""

    chunk: int
    """The index of its chunk in the mapping."""

    path: KeyPath
    """Where in the spec it stands."""

    name: str
    """As it is written there."""

    type: str
    """The type of its chunk."""

    def repeats_rows_of(self, other: NamedFile) -> bool:
        """Return whether rows would be read twice, or trained on and tested with, if both are one.

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
        for index, chunk in enumerate(chunks):
            for number, name in enumerate(chunk.files):
                if name:
                    path = ("source_spec", mapping, index, "files", number)
                    yield NamedFile(mapping, index, path, name, chunk.type)


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
        first_use = next((first for first in earlier if named.repeats_rows_of(first)), None)
        if first_use is not None:
            problems.append(_problem(spec, named, first_use))
        for key in keys:
            seen.setdefault(key, []).append(named)
    return problems


def _identities(name: str, directory: Path | None) -> list[object]:
    keys: list[object] = [posixpath.normpath(name)]
    if directory is not None:
        try:
            status = (directory / name).stat()
        except (OSError, ValueError):  # that it is missing is reported elsewhere
            return keys
        keys.append((status.st_dev, status.st_ino))
    return keys


def _problem(spec: FeatureSpec, named: NamedFile, first_use: NamedFile) -> Problem:
    other = format_key_path(first_use.path)
    if named.mapping != first_use.mapping:
        expected = f"files of its own, none of {first_use.mapping}"
        received = f"{named.name!r}, which is {first_use.name!r} of {other}"
    else:
        expected = "each file once"
        received = f"{named.name!r} again (it is {first_use.name!r} of {other})"
    return spec.problem(named.path, expected, received)


OF_TRAINED_ROWS = "a metric of rows that were trained on says little."
POSITIVE_WORDS = {"pos", "positive", "positives"}
NEGATIVE_WORDS = {"neg", "negative", "negatives"}


def warn_of_likely_mistakes(spec: FeatureSpec, directory: Path | None) -> None:
    """Warn (:class:`DatasetWarning`) of what looks wrong in a spec that may be right.

    Without a directory the files are left alone.
    """
    mistakes = _exchanged_histories(spec)
    if directory is not None:
        mistakes += _equal_files(spec, directory)
    for mistake in mistakes:
        warnings.warn(f"{spec.path or directory}: {mistake}", DatasetWarning, stacklevel=3)


def warn_of_other_vocabularies(schema: Schema, directory: Path) -> None:
    """Warn (:class:`DatasetWarning`) where a table has other rows than its vocabulary has keys."""
    from .known_keys import largest_ids

    for domain, largest in largest_ids(schema).items():
        file = directory / CATEGORIES / f"{domain}.parquet"
        last = _last_id(file) if file.is_file() else None
        if last is None or last == largest:
            continue
        follows = "no key has the ids behind it" if last < largest else "some have no row"
        warnings.warn(
            f"{file}: ids end at {last:,}, those of {domain} by the spec at {largest:,}: "
            f"{follows}.",
            DatasetWarning,
            stacklevel=3,
        )


def _last_id(file: Path) -> int | None:
    """Return the last id of a vocabulary, as its footer says; None where that does not."""
    import pyarrow.parquet as pq

    from .parquet import UNREADABLE

    try:
        footer = pq.read_metadata(file)
        number = footer.schema.names.index("id")
        groups = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        found = [group.statistics.max for group in groups if group.statistics is not None]
    except (*UNREADABLE, ValueError):
        return None  # its reader reports what is wrong with it
    return max(found) if found and len(found) == len(groups) and None not in found else None


def _exchanged_histories(spec: FeatureSpec) -> list[str]:
    """Look at names alone: what a column means, nothing in a dataset can show."""
    positive = spec.channel_spec.get(POSITIVE_HISTORY, ())
    negative = spec.channel_spec.get(NEGATIVE_HISTORY, ())
    if not (_speak_of(positive, NEGATIVE_WORDS) and _speak_of(negative, POSITIVE_WORDS)):
        return []
    return [
        f"{POSITIVE_HISTORY} is {', '.join(positive)} and {NEGATIVE_HISTORY} is "
        f"{', '.join(negative)}: by their names they are exchanged."
    ]


def _speak_of(names: Iterable[str], words: set[str]) -> bool:
    return any(words & set(re.split(r"[^a-z]+", name.lower())) for name in names)


def _equal_files(spec: FeatureSpec, directory: Path) -> list[str]:
    """Compare whole files; rows of train that stand in another file of test are not looked for."""
    by_size: dict[int, list[NamedFile]] = {}
    for named in named_files(spec):
        by_size.setdefault((directory / named.name).stat().st_size, []).append(named)
    by_size.pop(0, None)
    return [
        f"{one.name} ({one.mapping}) and {other.name} ({other.mapping}) have the same content: "
        + ("their rows count twice." if one.mapping == other.mapping else OF_TRAINED_ROWS)
        for group in by_size.values()
        for one, other in itertools.combinations(group, 2)
        if other.repeats_rows_of(one)
        # It compares piece by piece and ends at the first that differs.
        and filecmp.cmp(directory / one.name, directory / other.name, shallow=False)
    ]
