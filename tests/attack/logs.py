"""Raw logs: rows, the odd but legal forms that they are written in, and the samples they make."""

import csv
import gzip
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from .feeding import MAPPINGS

USER, ITEM, TIME, KIND, LABEL = "who", "what", "when", "kind", "clicked"
SHORTEST, LONGEST = 3, 4
FIRST_DAY = date(2024, 1, 1).toordinal()
USERS = ["u1", "u2", "NaN", "1e3", "007"]
ITEMS = ["i1", "a,b", 'q"u', "é\u2028", "x", "null", "-1"]
"""Keys are text, whatever they look like."""


class Row(NamedTuple):
    """An interaction; what kind an item is its name says."""

    user: str
    item: str
    time: int
    label: int

    @property
    def kind(self) -> str:
        return f"k{ord(self.item[-1]) % 3}"


def rows_of(latest: int = 30, earliest: int = 1, more: int = 0) -> st.SearchStrategy[list[Row]]:
    row = st.builds(
        Row,
        st.sampled_from([*USERS, *(f"n{number}" for number in range(more))]),
        st.sampled_from([*ITEMS, *(f"m{number}" for number in range(more))]),
        st.integers(earliest, latest),
        st.sampled_from([1, 1, 1, 0]),
    )
    few = st.lists(row, min_size=1, max_size=9)
    many = st.lists(row, min_size=25, max_size=60)
    return st.sampled_from([few, many, many, many]).flatmap(lambda rows: rows)


class Shape(NamedTuple):
    """What a log holds, how it is stored, and how it is split."""

    labelled: bool
    dates: bool
    form: str
    stored: dict[str, Any]
    split: tuple[int | None, int] | None
    """From where on samples validate, if any do, and test; None for each user's last."""

    def moment(self, time: int | str) -> Any:
        if isinstance(time, str):
            return time
        return date.fromordinal(FIRST_DAY + time).isoformat() if self.dates else time

    @property
    def words(self) -> list[str]:
        said = ["--user_column", USER, "--item_column", ITEM, "--timestamp_column", TIME]
        said += ["--item_feature_columns", KIND, *["--label_column", LABEL] * self.labelled]
        said += [f"--shortest_sequence_for_user={SHORTEST}", f"--max_sequence_length={LONGEST}"]
        if self.split is None:
            return [*said, "--fit_on", "all"]
        first, last = self.split
        if first is not None:
            said += ["--validation_from", str(self.moment(first))]
        return [*said, "--test_from", str(self.moment(last))]

    def mapping(self, time: int) -> str:
        first, last = self.split or (None, 0)
        if time >= last:
            return "test"
        return "validation" if first is not None and time >= first else "train"


SPLITS = st.sampled_from([None, None, (None, 20), (12, 19)])
CSV = st.fixed_dictionaries(
    {
        "line end": st.sampled_from(["\n", "\n", "\r\n"]),
        "quotes": st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
        "last line end": st.booleans(),
        "order": st.randoms(use_true_random=False),
        "spare": st.sampled_from([None, "", "a,b", 'q"u', "new\nline", "é\u2028"]),
        "label": st.sampled_from([["0", "1"], ["0.0", "1.0"], ["False", "true"]]),
    }
)
TEXTS = st.sampled_from([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
PARQUET = st.fixed_dictionaries(
    {
        "text": TEXTS,
        "item": TEXTS,
        "time": st.sampled_from([pa.int64(), pa.int32(), pa.uint32()]),
        "label": st.sampled_from([pa.int8(), pa.int64(), pa.bool_(), pa.string(), pa.float32()]),
        "row_group_size": st.integers(1, 70),
        "order": st.randoms(use_true_random=False),
        "spare": st.sampled_from([None, "", "é"]),
    }
)


@st.composite
def shapes(
    draw: st.DrawFn,
    splits: st.SearchStrategy[Any] = SPLITS,
    forms: tuple[str, ...] = ("csv", "csv.gz", "parquet", "parquet"),
) -> Shape:
    form = draw(st.sampled_from(forms))
    stored = draw(PARQUET if form == "parquet" else CSV)
    return Shape(draw(st.booleans()), draw(st.booleans()), form, stored, draw(splits))


def write_log(rows: Sequence[Row], shape: Shape, path: Path) -> Path:
    cells = {
        USER: [row.user for row in rows],
        ITEM: [row.item for row in rows],
        TIME: [shape.moment(row.time) for row in rows],
        KIND: [row.kind for row in rows],
        LABEL: [row.label for row in rows],
        "spare": [shape.stored["spare"]] * len(rows),
    }
    names = [USER, ITEM, TIME, KIND, *[LABEL] * shape.labelled]
    names += ["spare"] * (shape.stored["spare"] is not None)
    shape.stored["order"].shuffle(names)
    path = path.with_name(f"{path.name}.{shape.form}")
    write = _write_parquet if shape.form == "parquet" else _write_csv
    write({name: cells[name] for name in names}, shape, path)
    return path


def _write_parquet(cells: dict[str, list[Any]], shape: Shape, path: Path) -> None:
    stored = shape.stored
    kinds = dict.fromkeys(cells, stored["text"]) | {ITEM: stored["item"], LABEL: stored["label"]}
    kinds[TIME] = pa.string() if shape.dates else stored["time"]
    columns = {name: pa.array(values) for name, values in cells.items()}
    for name, array in columns.items():
        is_coded = pa.types.is_dictionary(kinds[name])
        columns[name] = array.dictionary_encode() if is_coded else array.cast(kinds[name])
    pq.write_table(pa.table(columns), path, row_group_size=stored["row_group_size"])


def _write_csv(cells: dict[str, list[Any]], shape: Shape, path: Path) -> None:
    stored = shape.stored
    if LABEL in cells:
        cells[LABEL] = [n if isinstance(n, str) else stored["label"][n] for n in cells[LABEL]]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=stored["line end"], quoting=stored["quotes"])
    writer.writerow(cells)
    writer.writerows(zip(*cells.values(), strict=True))
    text = out.getvalue() if stored["last line end"] else out.getvalue().rstrip("\r\n")
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


class Learned(NamedTuple):
    """What a fitted workflow knows."""

    users: frozenset[str]
    items: frozenset[str]


Sample = tuple[str, str | None, str, str, int, tuple[str, ...]]
"""Mapping, user, item, kind, label and history."""


class Refused(Exception):
    """No dataset can be made; with what a message may say of it beside the file's name."""


def joins(row: Row, shape: Shape) -> bool:
    return row.label == 1 or not shape.labelled


def kept_users(rows: Iterable[Row], shape: Shape) -> set[str]:
    counts = Counter(row.user for row in rows if joins(row, shape))
    return {user for user, count in counts.items() if count >= SHORTEST}


def learn(rows: Sequence[Row], shape: Shape) -> Learned:
    users = kept_users(rows, shape)
    kept = [row for row in rows if row.user in users]
    if not kept:
        raise Refused("No user has")
    fitted = [r for r in kept if shape.split is None or shape.mapping(r.time) == "train"]
    taken = {row.item for row in fitted if joins(row, shape)}
    if len(taken) < 2:
        raise Refused("two items")
    return Learned(frozenset(row.user for row in fitted), frozenset(row.item for row in fitted))


def samples_of(
    rows: Sequence[Row], shape: Shape, learned: Learned, earlier: Sequence[Row] = ()
) -> Counter[Sample]:
    """The samples of the users of a log who are kept, after what they did earlier."""
    users = kept_users([*earlier, *rows], shape) & {row.user for row in rows}
    found: Counter[Sample] = Counter()
    for user in users:
        mine = [(False, row) for row in earlier if row.user == user]
        mine += [(True, row) for row in rows if row.user == user]
        mine = sorted(mine, key=lambda each: each[1].time)  # stable: equal times as the log has
        mine = [each for each in mine if each[1].item in learned.items]
        indices = [p for p, (new, _) in enumerate(mine) if new]
        for index in indices:
            row = mine[index][1]
            # Of a log with labels, what was shown at one time tells nothing of itself.
            before = [r for _, r in mine[:index] if not shape.labelled or r.time < row.time]
            history = tuple(r.item for r in before if joins(r, shape))[-LONGEST:]
            is_last = index == indices[-1]
            mapping = shape.mapping(row.time) if shape.split else MAPPINGS[is_last]
            if history or (is_last and not shape.split):
                known = user if user in learned.users else None
                label = row.label if shape.labelled else 1
                found[mapping, known, row.item, row.kind, label, history] += 1
    return found


def stored_samples(dataset: Path, shape: Shape, rows_at: Path | None = None) -> Counter[Sample]:
    """The samples of a dataset directory, ids turned back into keys.

    Of a log without labels the positive ones alone: the others are drawn.
    """
    keys: dict[str, dict[int, Any]] = {}
    for name in (USER, ITEM, KIND):
        table = pq.read_table(dataset / f"categories/{name}.parquet").to_pydict()
        keys[name] = dict(zip(table["id"], table["key"], strict=True))
    found: Counter[Sample] = Counter()
    for mapping in (*MAPPINGS, "validation"):
        for path in sorted(((rows_at or dataset) / mapping).glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                items = [keys[ITEM][each] for each in row[f"{ITEM}_pos"]]
                assert len(row[f"{ITEM}_neg"]) == len(items)
                if row["label"] or shape.labelled:
                    user, item = keys[USER].get(row[USER]), keys[ITEM][row[f"{ITEM}_trgt"]]
                    kind = keys[KIND][row[f"{KIND}_trgt"]]
                    found[mapping, user, item, kind, row["label"], tuple(items)] += 1
    return found
