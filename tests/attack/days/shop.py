"""A small shop's log: what it holds is drawn by one number, what happened by another."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from ..kinds import pick
from ..logs.raw_logs import Log

USER, ITEM, TIME, LABEL, DID = "who", "what", "when", "clicked", "did"
PLAIN, LABELS, BEHAVIOURS, BOTH = "plain", "labels", "behaviours", "both"
HISTORY, PREDICTED = ("view", "cart"), ("cart", "buy")
NEWEST = 30
"""The last time of the old day, and the first of the new one."""
LATEST = 50
SHORTEST, LONGEST = 3, 4
SMOOTHING = 20.0
FIRST_DAY = date(2024, 1, 1)
VALUES: dict[str, list[Any]] = {
    "price": [2.5, 3.0, 8.0, 12.5, None],
    "spent": [0.5, 4.0, 9.25, 77.0, None],
    "age": [19.0, 20.0, 33.0, 40.0, 71.5, None],
    "size": [1.0, 2.5, 12.0, None],
    "genres": ["a", "a|b", "b|c|a", "", "c"],
    "look": ["3|4", "-1|0.5", "0|0", None],
}
"""Column -> what stands in it."""
FEATURES: dict[str, dict[str, Any]] = {
    "price": {"type": "number", "of": "item", "operators": ["FillMedian", "LogOp"]},
    "spent": {
        "type": "number",
        "of": "interaction",
        "operators": [
            {"FillMissing": {"fill_val": 0}},
            {"Clip": {"min_value": 0, "max_value": 50}},
            "Normalize",
        ],
        "lags": [1, 2],
    },
    "age": {"type": "number", "of": "user", "buckets": [20, 40]},
    "size": {"type": "category", "of": "item"},
    "genres": {"type": "list", "of": "item", "longest": 2},
    "look": {"type": "vector", "of": "item", "size": 2},
}


@dataclass(frozen=True)
class Shop:
    """What a log holds, and how it is preprocessed."""

    number: int
    format: str
    kind: str
    dates: bool
    """Whether times are dates."""
    features: dict[str, Any]
    """As the YAML file says it; nothing for no file."""
    split: str
    """``none``, ``time`` or ``files``."""
    borders: tuple[int, int]
    """Where what validates begins, and what tests."""
    validates: bool
    users: bool
    """Whether a row of the dataset may be a user's."""
    lists: bool
    """Whether lists and vectors are lists of parquet; else they are text."""

    @classmethod
    def drawn(cls, number: int) -> Shop:
        """Draw what a log holds."""
        random = np.random.default_rng([number, 11])
        of_users = bool(random.random() < 0.2)
        kind = PLAIN if of_users else pick(random, [PLAIN, LABELS, LABELS, BEHAVIOURS, BOTH])
        first, second = sorted(int(t) for t in random.choice(np.arange(12, 28), 2, replace=False))
        dates = bool(random.random() < 0.4)
        form = pick(random, ["csv", "csv.gz", "parquet", "parquet"])
        return cls(
            number,
            form,
            kind,
            dates,
            _drawn_features(random, kind, dates, of_users) if random.random() < 0.75 else {},
            pick(random, ["none", "none", "time", "files"]),
            (first, second),
            bool(random.random() < 0.5),
            of_users,
            form == "parquet" and bool(random.random() < 0.5),
        )

    @property
    def labelled(self) -> bool:
        return self.kind in (LABELS, BOTH)

    @property
    def has_behaviours(self) -> bool:
        return self.kind in (BEHAVIOURS, BOTH)

    @property
    def stated(self) -> dict[str, Any]:
        """The features, by column."""
        found: dict[str, Any] = self.features.get("features", {})
        return found

    @property
    def columns(self) -> list[str]:
        """The log's columns."""
        more = [LABEL] * self.labelled + [DID] * self.has_behaviours
        return [USER, ITEM, TIME, *more, *(name for name in self.stated if name != TIME)]

    def time(self, moment: int) -> Any:
        """A moment as the log has it."""
        if not self.dates:
            return moment
        return date.fromordinal(FIRST_DAY.toordinal() + moment).isoformat()

    @property
    def words(self) -> list[str]:
        """The options of `preprocess log` that say what the log holds."""
        said = ["--user_column", USER, "--item_column", ITEM, "--timestamp_column", TIME]
        said += ["--label_column", LABEL] * self.labelled
        if self.has_behaviours:
            said += ["--behaviour_column", DID, "--history_behaviours", ",".join(HISTORY)]
            said += ["--target_behaviours", ",".join(PREDICTED)]
        said += ["--shortest_sequence_for_user", str(SHORTEST)]
        said += ["--max_sequence_length", str(LONGEST)]
        # What is fitted on all rows is what each user's last interaction would be left out of.
        said += ["--fit_on", "all"] * (self.split == "none")
        if self.split == "time":
            first, second = self.borders
            said += ["--validation_from", str(self.time(first))] * self.validates
            said += ["--test_from", str(self.time(second))]
        return said

    def mapping(self, moment: int) -> str:
        """Which mapping a moment's samples are of, where times or files are the split."""
        first, second = self.borders
        if moment >= second:
            return "test"
        return "validation" if self.validates and moment >= first else "train"


FILLS = [["FillMedian"], [{"FillMissing": {"fill_val": 3}}], ["FillMissing"]]
RANGES: list[list[Any]] = [
    *(["LogOp"], ["Normalize"], ["NormalizeMinMax"], [{"Clip": {"max_value": 9}}], []),
    *(["LogOp", "Normalize"], [{"Clip": {"min_value": 1, "max_value": 50}}, "NormalizeMinMax"]),
]


def _drawn_features(
    random: np.random.Generator, kind: str, dates: bool, of_users: bool
) -> dict[str, Any]:
    chosen = {name: {**what} for name, what in FEATURES.items() if random.random() < 0.5}
    for name in chosen.keys() & {"price", "spent"}:
        chosen[name]["operators"] = [*pick(random, FILLS), *pick(random, RANGES)]
    if "spent" in chosen:
        chosen["spent"]["lags"] = pick(random, [[1, 2], [1], [3, 1], [2]])
    if "genres" in chosen:
        chosen["genres"]["longest"] = int(random.integers(1, 4))
    unit_of_timestamp = {} if dates else {"timestamp_unit": "s"}  # days are counted from 0
    if of_users:
        chosen = {name: what for name, what in chosen.items() if name in ("age", "size")}
        found = {"features": chosen} if chosen else {}
        return {**found, "time_intervals": "hours", **unit_of_timestamp}
    if random.random() < 0.3:
        unit = {} if dates else {"unit": "s"}
        cycles = ["weekday", "month"]
        chosen[TIME] = {"type": "time", "of": "interaction", "cycles": cycles, **unit}
    found: dict[str, Any] = {"features": chosen} if chosen else {}
    if random.random() < 0.5 or not chosen:
        found["time_intervals"] = pick(random, ["seconds", "hours"])
        found |= unit_of_timestamp
    if random.random() < 0.4 and kind in (PLAIN, LABELS):
        found["encodings"] = {ITEM: ["count"] if kind == PLAIN else ["count", "target"]}
    if random.random() < 0.3:
        found["crosses"] = {"where": {"columns": [USER, ITEM], "buckets": 50}}
    return found


class DayLog(Log):
    """The log of one day, that is not written yet."""

    def __init__(self, shop: Shop, seed: int, users: int, items: int, moments: range) -> None:
        """Draw what happened; rows stand in any order, and many have one time."""
        random = np.random.default_rng([seed, 12])
        self.format, self.text, self.packed, self.metadata = shop.format, None, [], b""
        self.names = {name: name for name in shop.columns}
        self.kinds = {name: _stored(shop, name) for name in shop.columns}
        self.rows = []
        for user in range(users):
            for _ in range(int(random.integers(1, 11))):
                moment = int(random.integers(moments.start, moments.stop))
                for _ in range(int(random.choice([1, 1, 3]))):
                    self.rows.append(_row(shop, random, user, items, moment))
        random.shuffle(self.rows)

    def as_text(self) -> bytes:
        """The log as CSV, with a header where it has no row too."""
        if self.text is None and not self.rows:
            return (",".join(self.names) + "\n").encode()
        return super().as_text()

    def files(self, shop: Shop) -> list[DayLog]:
        """The log as the files of a split: what trains, validates and tests."""
        names = ["train", *(["validation"] if shop.validates else []), "test"]
        parts = []
        for name in names:
            part = object.__new__(DayLog)
            part.__dict__.update(self.__dict__)
            part.rows = [row for row in self.rows if shop.mapping(_moment(shop, row)) == name]
            parts.append(part)
        return parts


def _stored(shop: Shop, name: str) -> pa.DataType:
    """As what parquet has a column."""
    if name == TIME:
        return pa.string() if shop.dates else pa.int64()
    if shop.lists and name in ("genres", "look"):
        return pa.list_(pa.string() if name == "genres" else pa.float64())
    kinds = {LABEL: pa.int8(), **dict.fromkeys(("price", "spent", "age", "size"), pa.float64())}
    return kinds.get(name, pa.string())


def _row(
    shop: Shop, random: np.random.Generator, user: int, items: int, moment: int
) -> dict[str, Any]:
    item = int(random.integers(items))
    row: dict[str, Any] = {USER: f"u{user}", ITEM: f"i{item}", TIME: shop.time(moment)}
    if shop.labelled:
        row[LABEL] = int(random.random() < 0.6)
    if shop.has_behaviours:
        row[DID] = pick(random, ["view", "view", "cart", "buy", "return"])
    for name in shop.stated:
        if name != TIME:  # an item mostly has the same, a user too
            values, fixed = VALUES[name], {"age": user}.get(name, item)
            place = fixed if random.random() < 0.7 else int(random.integers(len(values)))
            row[name] = values[place % len(values)]
    if shop.lists:
        for name, read in (("genres", str), ("look", float)):
            if row.get(name) is not None:
                row[name] = [read(part) for part in row[name].split("|") if part]
    return row


def _moment(shop: Shop, row: dict[str, Any]) -> int:
    if not shop.dates:
        return int(row[TIME])
    return date.fromisoformat(row[TIME]).toordinal() - FIRST_DAY.toordinal()
