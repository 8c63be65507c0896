"""What logged requests hold, counted as the rows of a dataset are."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ...schemas.channels import HISTORY_TIME_INTERVALS, POSITIVE_HISTORY
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import domain_of, other_meanings
from ...serving.requests.logged_requests import LoggedFile
from .distances import Array
from .seen_columns import SeenColumns


class SeenRequests(NamedTuple):
    """Events that a server logged."""

    columns: SeenColumns
    """A user and a history count once for each event, candidates one by one."""
    scores: Array
    """Of all candidates."""
    events: int
    versions: list[int]
    """Of the models that answered."""
    hashed: bool
    """Whether hashes stand in place of users, in any of them."""


def see_requests(
    reference: DatasetDirectory,
    files: Sequence[LoggedFile],
    events: int,
    left_out: Collection[str],
    narrator: Narrator,
) -> SeenRequests:
    """Count what the newest events hold.

    Args:
        reference: The dataset that they are compared with.
        files: Of the log, oldest first.
        events: How many at most.
        left_out: Columns that are not looked at.
        narrator: Shows progress.

    Raises:
        MerlinSimError: Where ids mean something else than the reference's, or a line is damaged.
    """
    for file in files:
        _require_same_ids(file, reference)
    found: dict[str, list[Array]] = {}
    lengths: list[int] = []
    scores: list[Array] = []
    hashed = False
    channels = reference.channels
    histories = {*channels.get(POSITIVE_HISTORY, ()), *channels.get(HISTORY_TIME_INTERVALS, ())}
    first = next(iter(channels.get(POSITIVE_HISTORY, ())), None)
    with narrator.phase("counting requests", events) as report:
        for file, event in _newest(files, events):
            try:
                hashed |= isinstance(event["user"], str)
                for name, values in _columns(event).items():
                    if name not in left_out:
                        found.setdefault(name, []).append(_flat(values, name in histories))
                if first is not None:
                    lengths.append(len(event["histories"][first]))
                scores.append(np.asarray(event["scores"], np.float32).reshape(-1))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise MerlinSimError(
                    f"{file.path}: expected events as they were logged. Received: {error!r}"
                ) from error
            report(1, 1)
    columns = SeenColumns(labelled=False, lengths=np.array(lengths, np.int64))
    for name, parts in found.items():
        if name not in reference.schema.column_names:
            continue
        values = np.concatenate(parts)
        domain = domain_of(reference.schema[name])
        if domain is None:
            columns.numbers[name] = values.astype(np.float32)
        else:
            columns.counts[name] = _counted(values, name, domain[1])
    of_all = np.concatenate([np.zeros(0, np.float32), *scores])
    columns.rows = len(of_all)
    versions = sorted({file.version for file in files})
    return SeenRequests(columns, of_all, len(scores), versions, hashed)


def _require_same_ids(file: LoggedFile, reference: DatasetDirectory) -> None:
    problems = other_meanings(file.ids, reference.schema, reference.path)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise MerlinSimError(
            f"{file.path} cannot be compared with {reference.path}, which should be the dataset "
            f"that version {file.version} was trained on, or one that grew from it:\n{lines}"
        )


def _newest(
    files: Sequence[LoggedFile], events: int
) -> Iterator[tuple[LoggedFile, Mapping[str, Any]]]:
    left = events
    for file in reversed(files):
        of_file = list(file.events())[-left:]
        yield from ((file, event) for event in of_file)
        left -= len(of_file)
        if left <= 0:
            return


def _columns(event: Mapping[str, Any]) -> dict[str, Any]:
    user = {} if isinstance(event["user"], str) else event["user"]
    return {**user, **event["targets"], **event["histories"]}


def _flat(values: Any, is_history: bool) -> Array:
    """Make one number of each value: of a vector its length, as of those of a dataset."""
    found = np.asarray(values, np.float64)
    if found.ndim == 2 and not is_history:
        return np.asarray(np.linalg.norm(found, axis=1))
    return found.reshape(-1)


def _counted(values: Array, name: str, largest: int) -> Array:
    ids = values.astype(np.int64)
    if len(ids) and ((ids != values).any() or ids.min() < 0 or ids.max() > largest):
        raise MerlinSimError(f"{name}: expected logged ids from 0 to {largest:,}")
    return np.bincount(ids, minlength=largest + 1)
