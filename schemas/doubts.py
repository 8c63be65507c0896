"""What a spec most likely does not mean, although it may: warned of, never refused."""

from __future__ import annotations

import filecmp
import itertools
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..foundation.exceptions import DatasetWarning
from .channels import NEGATIVE_HISTORY, POSITIVE_HISTORY
from .source_files import NamedFile, named_files
from .specs.feature_spec import FeatureSpec

if TYPE_CHECKING:
    from .translation.merlin_import import Schema

POSITIVE_WORDS = {"pos", "positive", "positives"}
NEGATIVE_WORDS = {"neg", "negative", "negatives"}


def warn_of_doubts(spec: FeatureSpec, directory: Path | None) -> None:
    """Warn (:class:`DatasetWarning`) of what looks wrong in a spec that may be right.

    Args:
        spec: A spec without problems.
        directory: Where its paths start; None to leave the files alone.
    """
    doubts = _exchanged_histories(spec)
    if directory is not None:
        doubts += _equal_files(spec, directory)
    for doubt in doubts:
        warnings.warn(f"{spec.path or directory}: {doubt}", DatasetWarning, stacklevel=3)


def warn_of_other_vocabularies(schema: Schema, directory: Path) -> None:
    """Warn (:class:`DatasetWarning`) where a table has other rows than its vocabulary has keys.

    Args:
        schema: Of the dataset.
        directory: Holds ``categories/``, if there is any.
    """
    from .known_keys import CATEGORIES, largest_ids

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
    """Return the last id of a vocabulary, as its footer tells; None where that does not."""
    import pyarrow.parquet as pq

    from .parquet.footer import UNREADABLE

    try:
        footer = pq.read_metadata(file)
        place = footer.schema.names.index("id")
        groups = [footer.row_group(group).column(place) for group in range(footer.num_row_groups)]
        found = [group.statistics.max for group in groups if group.statistics is not None]
    except (*UNREADABLE, ValueError):
        return None  # whoever reads it says what is wrong with it
    return max(found) if found and len(found) == len(groups) and None not in found else None


def _exchanged_histories(spec: FeatureSpec) -> list[str]:
    """Look at names alone: what a column means, nothing in a dataset can tell."""
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
        + _what_follows(one, other)
        for group in by_size.values()
        for one, other in itertools.combinations(group, 2)
        if other.repeats_rows_of(one) and _same_bytes(directory / one.name, directory / other.name)
    ]


def _what_follows(one: NamedFile, other: NamedFile) -> str:
    if one.mapping == other.mapping:
        return "their rows count twice."
    return "a metric of rows that were trained on says little."


def _same_bytes(one: Path, other: Path) -> bool:
    # It compares piece by piece and ends at the first that differs.
    return filecmp.cmp(one, other, shallow=False)
