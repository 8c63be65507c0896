"""What a spec most likely does not mean, although it may: warned of, never refused."""

from __future__ import annotations

import filecmp
import itertools
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from ..foundation.exceptions import DatasetWarning
from .channels import NEGATIVE_HISTORY, POSITIVE_HISTORY
from .source_files import NamedFile, named_files
from .specs.feature_spec import FeatureSpec

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
