"""The older dataset of a run that replays one: which, how much of it, and whether it fits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ...foundation.exceptions import MerlinSimError
from ...schemas.dataset import DatasetDirectory
from ...schemas.known_keys import note_of, other_meanings


class BatchShares(NamedTuple):
    """Of how many rows of each a global batch consists."""

    new: int
    old: int


def parse_replay(text: str) -> tuple[Path, float]:
    """Read DIRECTORY:SHARE.

    >>> parse_replay("days/monday:0.2")
    (PosixPath('days/monday'), 0.2)

    Raises:
        ValueError: where it is something else, or the share does not lie between 0 and 1.
    """
    directory, _, number = text.rpartition(":")
    share = float(number)
    if not directory or not 0 < share < 1:
        raise ValueError(text)
    return Path(directory), share


def batch_shares(global_batch_size: int, share: float, unit: int) -> BatchShares:
    """Divide a global batch, in whole units that the ranks can share equally.

    >>> batch_shares(100, 0.25, 2)
    BatchShares(new=76, old=24)

    Raises:
        MerlinSimError: where that is further than a quarter from the share.
    """
    units = global_batch_size // unit
    if units < 2:
        raise MerlinSimError(
            f"`global_batch_size` should be {2 * unit} or more with `replay`, for a batch to hold "
            f"both. Received: {global_batch_size}"
        )
    old = min(max(1, round(share * units)), units - 1) * unit
    rows = share * global_batch_size
    if abs(old - rows) > rows / 4:
        raise MerlinSimError(
            f"`replay`: expected a share of a global batch of {global_batch_size} in parts of "
            f"{unit} samples (ranks x candidates): the nearest is {old / global_batch_size:.4g}. "
            f"Received: {share:g}. Larger batches come closer."
        )
    return BatchShares(global_batch_size - old, old)


def open_replayed(
    directory: Path, feature_spec: str, dataset: DatasetDirectory
) -> DatasetDirectory:
    """Open the older dataset, whose rows have to be ones that the new one could have."""
    old = DatasetDirectory.open(directory, feature_spec=feature_spec)
    old.stored_files("train")
    wanted, found = _columns(dataset), _columns(old)
    problems = [
        f"{name} should be {_described(wanted.get(name))}. Received: {_described(found.get(name))}"
        for name in dict.fromkeys([*wanted, *found])
        if wanted.get(name) != found.get(name)
    ]
    if (dataset.users is None) != (old.users is None):
        problems.append("one of them has a row for each user, the other a row for each sample")
    problems += other_meanings(note_of(old), dataset.schema, dataset.path)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise MerlinSimError(
            f"{old.path} cannot be replayed with {dataset.path}, which should have grown from it "
            f"(`preprocess --fitted --grow`):\n{lines}"
        )
    return old


def _columns(dataset: DatasetDirectory) -> dict[str, tuple[str, int | None]]:
    """Say of each column its type and, of a list, how long it is in a batch."""
    named = {name for names in dataset.channels.values() for name in names}
    columns = (column for column in dataset.schema if column.name in named)
    return {
        column.name: (
            str(column.dtype.name),
            int(column.value_count.max or 0) if column.is_list else None,
        )
        for column in columns
    }


def _described(column: tuple[str, int | None] | None) -> str:
    if column is None:
        return "no column"
    dtype, longest = column
    return dtype if longest is None else f"{dtype}, at most {longest} in a list"
