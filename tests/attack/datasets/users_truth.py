"""The samples of users' rows, made one by one in plain Python of what arrow reads.

The rules are those that the documentation gives; the random numbers are SplitMix64's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .arrow_truth import Truth, Unreadable, is_list, one_column
from .descriptions import Descriptions

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
PLACE_SALT = 0x91ACE
TWIN_SALT = 0x7713


def mix(value: int) -> int:
    """Scatter 64 bits (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators)."""
    value = (value + GOLDEN) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


@dataclass(frozen=True)
class User:
    """One row, and of each mapping from which position to which its samples are."""

    features: list[int]
    history: list[int]
    spans: dict[str, tuple[int, int]]


class Maker:
    """Makes samples as a spec says."""

    def __init__(self, facts: Descriptions, items: dict[str, list[int]]) -> None:
        """Lay out the items by id."""
        assert facts.layout is not None
        self.layout, self.facts = facts.layout, facts
        rows = dict(zip(items["id"], range(len(items["id"])), strict=True))
        by_id = [rows[each] for each in range(1, len(rows) + 1)]
        counts = [1 if self.layout.negatives == "uniform" else items["count"][r] for r in by_id]
        self._cumulative = [0, *accumulate(counts)]
        features = self.layout.item_features
        self._features = [[0, *(items[name][row] for row in by_id)] for name in features]
        self.longest = facts.length or 0

    def drawn(
        self, seed: int, user: int, position: int, label: int, draw: int, twin: int = 0
    ) -> int:
        """The item of a draw of a row."""
        key = mix(mix(mix(seed) ^ (user & MASK)) ^ (2 * position + label))
        key = mix(key ^ (TWIN_SALT + twin)) if twin else key
        bits = mix((key + draw * GOLDEN) & MASK)
        index = int(float(bits >> 11) * (1.0 / (1 << 53)) * float(self._cumulative[-1]))
        return bisect_right(self._cumulative, index)

    def target(self, user: User, position: int, slot: int) -> int:
        if slot == self.layout.negatives_per_positive:
            return user.history[position]
        return self.drawn(self.layout.seed, user.features[0], position, 0, 0, slot)

    def sample(self, user: User, position: int, slot: int) -> dict[str, Any]:
        """One sample by column: a negative of the position, or after them its positive."""
        label = int(slot == self.layout.negatives_per_positive)
        twin = 0 if label else slot
        seen = user.history[max(0, position - self.longest) : position]
        drawn = [
            self.drawn(self.layout.seed, user.features[0], position, label, place + 1, twin)
            for place in range(len(seen))
        ]
        return self._row(user, label, self.target(user, position, slot), seen, drawn)

    def stretch(self, user: User, begin: int, end: int, candidates: int) -> dict[str, Any]:
        """One row of users x candidates: the positions from ``begin`` to before ``end``."""
        first, count = max(0, begin - self.longest), end - begin
        seed = mix(PLACE_SALT ^ self.layout.seed)
        beside = [self.drawn(seed, user.features[0], p, 0, 0) for p in range(first, end - 1)]
        of = self.layout.negatives_per_positive + 1
        labels = [int(k % of == of - 1) for k in range(of * count)]
        fill = [0] * (candidates - len(labels))
        targets = [self.target(user, begin + k // of, k % of) for k in range(len(labels))]
        row = self._row(user, 0, 0, user.history[first : end - 1], beside)
        row |= self._items("target_item_features", [*targets, *fill])
        newest = self.longest + candidates // of - count
        return {
            **row,
            self.facts.channels["label"][0]: [*labels, *fill],
            "weight": [1] * len(labels) + fill,
            "history_end": [*(newest + k // of for k in range(len(labels))), *fill],
        }

    def _row(
        self, user: User, label: int, target: int, seen: list[int], drawn: list[int]
    ) -> dict[str, Any]:
        channels = self.facts.channels
        row: dict[str, Any] = {channels["label"][0]: label}
        row |= zip(channels["user_features"], user.features, strict=True)
        row |= ((name, ids[0]) for name, ids in self._items("target_item_features", [target]))
        row |= self._items("positive_history", seen)
        row |= self._items("negative_history", drawn)
        return row

    def _items(self, channel: str, items: list[int]) -> Iterator[tuple[str, list[int]]]:
        first, *others = self.facts.channels[channel]
        yield first, items
        for name, table in zip(others, self._features, strict=True):
            yield name, [table[item] for item in items]


def read_samples(directory: Path, mapping: str, facts: Descriptions) -> Truth:
    """Read all samples of a mapping, in the users' order, the twins before each positive."""
    truth = Truth(columns={name: [] for name in facts.columns})
    items, users = read_items(directory, facts, truth), read_users(directory, mapping, facts, truth)
    if truth.must_refuse:
        return truth
    maker = Maker(facts, items)
    for user in users:
        for position in range(*user.spans[mapping]):
            for slot in range(maker.layout.negatives_per_positive + 1):
                for name, value in maker.sample(user, position, slot).items():
                    truth.columns[name].append(value)
    if not truth.columns[facts.channels["label"][0]]:
        truth.wrong_files.append(("", "no samples"))
    return truth


def read_items(directory: Path, facts: Descriptions, truth: Truth) -> dict[str, list[int]]:
    """Read the table of items, and say what is wrong with it."""
    layout = facts.layout
    assert layout is not None
    largest = [facts.largest_of("target_item_features", k) for k in range(facts.items)]
    wanted = {"id": (1, largest[0]), "count": (0, 2**53)}
    wanted |= {n: (1, most) for n, most in zip(layout.item_features, largest[1:], strict=True)}
    file = _File(directory, layout.item_table, truth)
    columns = file.columns(dict.fromkeys(wanted, False))
    for name, cells in columns.items():
        for row, cell in enumerate(cells):
            low, high = wanted[name]
            if cell is None or not low <= cell <= high:
                truth.wrong_rows.append((layout.item_table, row, f"{name}: {cell}"))
    if columns and not _is_each_once(columns["id"], largest[0]):
        truth.wrong_files.append((layout.item_table, f"not each id from 1 to {largest[0]} once"))
    elif columns and layout.negatives == "popularity" and not any(columns["count"]):
        truth.wrong_files.append((layout.item_table, "no interactions"))
    return columns


def _is_each_once(ids: list[int], largest: int) -> bool:
    """Tell whether ids are 1 to ``largest`` in any order; a changed spec may name any number."""
    return len(ids) == largest and sorted(map(str, ids)) == sorted(map(str, range(1, largest + 1)))


def read_users(directory: Path, mapping: str, facts: Descriptions, truth: Truth) -> list[User]:
    """Read the users of a mapping's files, and say what is wrong with them."""
    users: list[User] = []
    for name in facts.files[mapping]:
        file = _File(directory, name, truth)
        for first_row, group in file.groups(mapping, facts):
            found = [_user(row, facts) for row in group]
            spans = [_span(row, mapping, facts) for row in group]
            faults = [fault for _, fault in found]
            feeds = any(span is not None and span[0] < span[1] for span in spans)
            for number, (span, fault) in enumerate(zip(spans, faults, strict=True)):
                if span is None or (fault and feeds):
                    said = fault or "positions"
                    truth.wrong_rows.append((name, first_row + number, said))
                elif fault:
                    truth.doubts.append(f"{name}: {fault} in rows without samples")
            users += [user for user, _ in found if user is not None and feeds]
    return users


def _span(row: dict[str, Any], mapping: str, facts: Descriptions) -> tuple[int, int] | None:
    assert facts.layout is not None
    begin, end = (row[name] for name in facts.layout.positions[mapping])
    return (begin, end) if None not in (begin, end) and 0 <= begin <= end else None


def _user(row: dict[str, Any], facts: Descriptions) -> tuple[User | None, str]:
    """Give the user of a row; or nothing, and what is wrong."""
    layout = facts.layout
    assert layout is not None
    for place, name in enumerate(facts.channels["user_features"]):
        largest = facts.largest_of("user_features", place)
        if row[name] is None or not 0 <= row[name] <= largest:
            return None, f"{name}: {row[name]}"
    history, last = row[layout.history], facts.largest_of("target_item_features", 0)
    if history is None or not all(item is not None and 1 <= item <= last for item in history):
        return None, f"{layout.history}: {history}"
    spans = {}
    taken: set[int] = set()
    for mapping, names in layout.positions.items():
        if not set(names) <= set(row):
            continue
        span = _span(row, mapping, facts)
        if span is None or span[1] > len(history) or taken & set(range(*span)):
            return None, f"{names}: {span} of {len(history)}"
        taken |= set(range(*span))
        spans[mapping] = span
    features = [row[name] for name in facts.channels["user_features"]]
    return User(features, history, spans), ""


class _File:
    """A file as arrow reads it."""

    def __init__(self, directory: Path, name: str, truth: Truth) -> None:
        self._path, self._name, self._truth = directory / name, name, truth

    def columns(self, wanted: dict[str, bool]) -> dict[str, list[Any]]:
        """Read columns, those that are to be lists among them; nothing where they cannot be."""
        try:
            file = pq.ParquetFile(self._path)
            found = {name: self._column(file, name, lists) for name, lists in wanted.items()}
            if len({len(cells) for cells in found.values()}) > 1:
                raise Unreadable("columns of unequal lengths")
        except (pa.ArrowException, OSError, ValueError, Unreadable) as error:
            self._truth.wrong_files.append((self._name, f"{type(error).__name__}: {error!s:.200}"))
            return {}
        return found

    def _column(self, file: pq.ParquetFile, name: str, lists: bool) -> list[Any]:
        names = file.schema_arrow.names
        if names.count(name) != 1:
            raise Unreadable(f"{names.count(name)} columns {name!r}")
        if [each.partition("\0")[0] for each in names].count(name) != 1:
            self._truth.doubts.append(f"another name is {name!r} up to a zero byte")
        array = one_column(file, name)
        kind = array.type.value_type if is_list(array.type) else array.type
        stored = file.schema_arrow.field(name).type
        if pa.types.is_dictionary(kind) or pa.types.is_dictionary(stored):
            self._truth.doubts.append(f"{name} is {stored}")
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if is_list(array.type) != lists or not pa.types.is_integer(kind):
            raise Unreadable(f"{name} is {array.type}")
        return list(array.to_pylist())

    def groups(
        self, mapping: str, facts: Descriptions
    ) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Give the rows of each row group, and the number of its first."""
        layout = facts.layout
        assert layout is not None
        wanted = dict.fromkeys(
            [*facts.channels["user_features"], *layout.positions[mapping]], False
        )
        try:
            file = pq.ParquetFile(self._path)
            stored, metadata = file.schema_arrow.names, file.metadata
        except (pa.ArrowException, OSError, ValueError):
            stored, metadata = [], None
        for names in layout.positions.values():
            wanted |= dict.fromkeys(names if set(names) <= set(stored) else [], False)
        columns = self.columns({**wanted, layout.history: True})
        if not columns and metadata is not None:
            yield from self._groups_that_feed(file, [*wanted, layout.history], mapping, layout)
        if not columns or metadata is None:
            return
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        first = 0
        for group in range(metadata.num_row_groups):
            count = metadata.row_group(group).num_rows
            yield first, rows[first : first + count]
            first += count

    def _groups_that_feed(
        self, file: pq.ParquetFile, names: list[str], mapping: str, layout: Any
    ) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Give the groups that can be read, where those that cannot have no sample of a mapping.

        Nobody looks at their pages, so the fault of the file is a doubt.
        """
        found, first, damaged = [], 0, False
        for group in range(file.metadata.num_row_groups):
            try:
                found.append((first, self._rows(file, group, names)))
            except (pa.ArrowException, OSError, ValueError, LookupError):
                damaged = True
                try:
                    rows = self._rows(file, group, layout.positions[mapping])
                except (pa.ArrowException, OSError, ValueError, LookupError):
                    return
                if any(begin != end for begin, end in (row.values() for row in rows)):
                    return
            first += file.metadata.row_group(group).num_rows
        if damaged:
            _, fault = self._truth.wrong_files.pop()
            self._truth.doubts.append(f"{self._name}: {fault} in rows without samples")
            yield from found

    def _rows(self, file: pq.ParquetFile, group: int, names: list[str]) -> list[dict[str, Any]]:
        columns = {}
        for name in names:
            table = file.read_row_group(group, columns=[name], use_threads=False)
            columns[name] = table.column(table.column_names.index(name)).to_pylist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
