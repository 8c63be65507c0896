"""Write planted behaviour as raw files in the layout of the Amazon Books 2014 logs."""

from __future__ import annotations

import gzip
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError
from .planted_behaviour import (
    Interactions,
    PlantedBehaviour,
    category_starts,
    plant_interactions,
)

REVIEWS_FILE = "reviews_Books.json"
METADATA_FILE = "meta_Books.json"
ROWS_PER_WRITE = 1_000_000
SECONDS_PER_DAY = 86_400
WORDS = "a slow and tender book about the sea which I have read twice and lent to my sister. "
SUBJECTS = ("History", "Fiction", "Travel", "Poetry", "Cooking", "Science", "Children's Books")


@dataclass(frozen=True)
class RawFiles:
    """What `synthesize` wrote, in numbers."""

    interactions: int
    users: int
    items_in_log: int
    items_with_metadata: int


def synthesize(
    directory: Path,
    behaviour: PlantedBehaviour,
    *,
    missing_metadata: float = 0.05,
    review_text: int = 0,
    compress: bool = False,
) -> RawFiles:
    """Write ``reviews_Books.json`` and ``meta_Books.json`` into an existing directory.

    Args:
        directory: Where to write.
        behaviour: What the users do.
        missing_metadata: Share of items without a line in the metadata file.
        review_text: Characters of review text per line; the real log has about 700.
        compress: Write ``.json.gz``.
    """
    if not 0 <= missing_metadata <= 1:
        raise MerlinSimError(
            "`missing_metadata` should lie between 0 and 1. "
            f"Received: `missing_metadata` = {missing_metadata}."
        )
    rng = np.random.default_rng([behaviour.seed, 1 << 32])
    # Keys in random order, so that neither file order nor key order tells what was planted.
    item_number = rng.permutation(behaviour.items)
    user_number = rng.permutation(behaviour.users)
    has_metadata = rng.random(behaviour.items) >= missing_metadata
    interactions = plant_interactions(behaviour)
    with _open_all(directory, compress) as (reviews, metadata):
        _write_reviews(reviews, interactions, item_number, user_number, review_text)
        _write_metadata(metadata, behaviour, item_number, has_metadata)
    return RawFiles(
        interactions=len(interactions),
        users=behaviour.users,
        items_in_log=len(np.unique(interactions.item)),
        items_with_metadata=int(has_metadata.sum()),
    )


class _open_all(ExitStack):
    """Both files, open for writing, compressed or not."""

    def __init__(self, directory: Path, compress: bool) -> None:
        super().__init__()
        self.paths = [directory / REVIEWS_FILE, directory / METADATA_FILE]
        self.compress = compress

    def __enter__(self) -> tuple[IO[bytes], IO[bytes]]:  # type: ignore[override]
        super().__enter__()
        reviews, metadata = (self.enter_context(self._open(path)) for path in self.paths)
        return reviews, metadata

    def _open(self, path: Path) -> IO[bytes]:
        if not self.compress:
            return open(path, "wb")
        # Without a time in the header the same seed gives the same bytes.
        compressed = path.with_name(path.name + ".gz")
        return cast("IO[bytes]", gzip.GzipFile(compressed, "wb", compresslevel=1, mtime=0))


def _numbered(prefix: str, number: npt.NDArray[np.int64], digits: int) -> pa.Array:
    """Keys such as ``A0000000012`` for a whole array of numbers."""
    powers = 10 ** np.arange(digits - 1, -1, -1, dtype=np.int64)
    letters = (number[:, None] // powers % 10 + ord("0")).astype(np.uint8)
    head = np.broadcast_to(np.frombuffer(prefix.encode(), np.uint8), (len(number), len(prefix)))
    width = len(prefix) + digits
    text = np.ascontiguousarray(np.concatenate([head, letters], axis=1))
    offsets = np.arange(len(number) + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(len(number), pa.py_buffer(offsets), pa.py_buffer(text))


def _write_lines(file: IO[bytes], parts: list[str | pa.Array], rows: int) -> None:
    """Join text and columns into lines; arrow lays them out one after the other."""
    lines = pc.binary_join_element_wise(
        *[part if isinstance(part, pa.Array) else pa.scalar(part) for part in parts], ""
    )
    offsets = np.frombuffer(lines.buffers()[1], np.int32, rows + 1)
    file.write(memoryview(lines.buffers()[2])[offsets[0] : offsets[-1]])


def _write_reviews(
    file: IO[bytes],
    interactions: Interactions,
    item_number: npt.NDArray[np.int64],
    user_number: npt.NDArray[np.int64],
    review_text: int,
) -> None:
    text = (WORDS * (review_text // len(WORDS) + 1))[:review_text]
    for first in range(0, len(interactions), ROWS_PER_WRITE):
        part = slice(first, first + ROWS_PER_WRITE)
        day = interactions.day[part]
        known_days, known = np.unique(day, return_inverse=True)
        dates = pc.strftime(
            pa.array(known_days.astype("datetime64[D]").astype("datetime64[s]")),
            format="%m %d, %Y",
        )
        user = _numbered("A", user_number[interactions.user[part]], 12)
        parts: list[str | pa.Array] = [
            '{"reviewerID": "',
            user,
            '", "asin": "',
            _numbered("", item_number[interactions.item[part]], 10),
            '", "helpful": [0, 0], "reviewText": "' + text + '", "overall": 5.0, "summary": "Read'
            ' it", "unixReviewTime": ',
            pc.cast(pa.array(day.astype(np.int64) * SECONDS_PER_DAY), pa.string()),
            ', "reviewTime": "',
            dates.take(pa.array(known)),
            '"}\n',
        ]
        _write_lines(file, parts, len(day))


def category_names(categories: int) -> list[str]:
    """The last name of each category's path.

    >>> category_names(2)
    ['History 0', 'Fiction 1']
    """
    return [f"{SUBJECTS[category % len(SUBJECTS)]} {category}" for category in range(categories)]


def _write_metadata(
    file: IO[bytes],
    behaviour: PlantedBehaviour,
    item_number: npt.NDArray[np.int64],
    has_metadata: npt.NDArray[np.bool_],
) -> None:
    names = category_names(behaviour.categories)
    # repr() is how the real file was written: names with an apostrophe stand in double quotes.
    paths = pa.array(
        [
            repr([["Books", SUBJECTS[number % len(SUBJECTS)], name], ["Books", "Used"]])
            for number, name in enumerate(names)
        ]
    )
    bounds = category_starts(behaviour.items, behaviour.categories)
    category = np.repeat(np.arange(behaviour.categories), np.diff(bounds))
    items = np.flatnonzero(has_metadata)
    for first in range(0, len(items), ROWS_PER_WRITE):
        part = items[first : first + ROWS_PER_WRITE]
        number = item_number[part]
        parts: list[str | pa.Array] = [
            "{'asin': '",
            _numbered("", number, 10),
            "', 'title': \"A Reader's Book, No. ",
            pc.cast(pa.array(number), pa.string()),
            "\", 'price': 9.99, 'salesRank': {'Books': ",
            pc.cast(pa.array(number), pa.string()),
            "}, 'categories': ",
            paths.take(pa.array(category[part])),
            "}\n",
        ]
        _write_lines(file, parts, len(part))
