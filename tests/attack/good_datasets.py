"""Small good datasets: what their columns hold, rows of them drawn at random, and how they lie."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from merlin_sim.schemas.dataset import write_documents
from merlin_sim.schemas.spec_file import spec_from_plain

SPEC, SCHEMA, METADATA = DOCUMENTS = ("feature_spec.yaml", "schema.pbtxt", "metadata.json")
NUMBERS = {"numerical", "user_numerical", "target_item_numerical", "history_time_intervals"}
HISTORIES = {"positive_history", "negative_history", "history_time_intervals"}


class Column(NamedTuple):
    """What is said of a column."""

    channel: str
    largest: int | None = None
    """The largest id of its table; None for what is no id."""
    length: int | None = None
    """The longest list; None for one value a row."""


LONGEST, WIDTH = 9, 2
SIM = {
    "label": Column("label"),
    "who": Column("user_features", 50),
    "where": Column("user_features", 5),
    "thing": Column("target_item_features", 60),
    "kind": Column("target_item_features", 7),
    "thing_seen": Column("positive_history", 60, LONGEST),
    "kind_seen": Column("positive_history", 7, LONGEST),
    "thing_unseen": Column("negative_history", 60, LONGEST),
    "kind_unseen": Column("negative_history", 7, LONGEST),
}
FEATURED = {
    **SIM,
    "age": Column("user_numerical"),
    "price": Column("target_item_numerical"),
    "look": Column("target_item_numerical", None, WIDTH),
    "genres": Column("target_item_lists", 11, 3),
    "ago": Column("history_time_intervals", None, LONGEST),
}
CLICKS = {
    "clicked": Column("label"),
    "site": Column("categorical", 39),
    "device": Column("categorical", 6),
    "constant": Column("categorical", 0),
    "city": Column("categorical", 299),
    "age": Column("numerical"),
    "price": Column("numerical"),
}
FORMS: dict[str, dict[str, Column]] = {"sim": SIM, "featured": FEATURED, "clicks": CLICKS}


def model_of(form: str) -> str:
    return "dlrm" if form == "clicks" else "sim"


def make_table(form: str, rows: int, seed: int, padded: bool = False) -> pa.Table:
    random = np.random.default_rng([seed, rows])
    lengths = {
        channel: random.integers(0, LONGEST + 1, rows)
        for channel in ("positive_history", "negative_history")
    }
    lengths["history_time_intervals"] = lengths["positive_history"]
    table = {}
    for name, (channel, largest, length) in FORMS[form].items():
        sizes = np.ones(rows, int)
        if length:
            sizes = lengths.get(channel, np.full(rows, length))
        count = int(sizes.sum())
        if channel == "label":
            values = random.integers(0, 2, count).astype(np.float32)
        elif channel in NUMBERS:
            values = random.standard_normal(count).astype(np.float16).astype(np.float32)
        else:
            values = random.integers(int(channel != "categorical"), largest + 1, count)
        if channel == "history_time_intervals":
            values = np.abs(values) + 1
        if length is None:
            table[name] = pa.array(values)
            continue
        cells = [part.tolist() for part in np.split(values, np.cumsum(sizes)[:-1])][:rows]
        if padded and channel in HISTORIES:
            cells = [[values.dtype.type(0).item()] * (length - len(c)) + c for c in cells]
        table[name] = pa.array(cells, pa.list_(pa.from_numpy_dtype(values.dtype)))
    return pa.table(table)


def make_spec(form: str, files: Mapping[str, list[str]]) -> dict[str, Any]:
    features: dict[str, dict[str, Any]] = {}
    channels: dict[str, list[str]] = {}
    for name, column in FORMS[form].items():
        is_id = column.largest is not None
        features[name] = {"dtype": "int64" if is_id else "float32"}
        if is_id:  # those of categories begin at 0
            features[name]["cardinality"] = column.largest + (column.channel == "categorical")
        if column.length:
            features[name]["dimensions"] = [column.length]
        channels.setdefault(column.channel, []).append(name)
    chunk = {"type": "parquet", "features": list(features)}
    sources = {mapping: [{**chunk, "files": names}] for mapping, names in files.items()}
    return {"feature_spec": features, "source_spec": sources, "channel_spec": channels}


WRITING = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "version": st.sampled_from(["1.0", "2.4", "2.6"]),
        "use_dictionary": st.booleans(),
        "write_statistics": st.booleans(),
        "row_group_size": st.sampled_from([1, 2, 3, 7, 16, 64, 1000]),
        "data_page_size": st.sampled_from([1, 10, 100, 1000]),
        "dictionary_pagesize_limit": st.sampled_from([1, 16, 100]),
        "write_batch_size": st.sampled_from([1, 3, 10]),
        "use_compliant_nested_type": st.booleans(),
        "store_schema": st.booleans(),
    },
)


class Good(NamedTuple):
    """A good dataset that is not written yet."""

    form: str
    tables: dict[str, pa.Table]
    writing: dict[str, dict[str, Any]]

    def __repr__(self) -> str:
        rows = {name: table.num_rows for name, table in self.tables.items()}
        return f"Good({self.form!r}, rows {rows}, {self.writing})"

    def write(self, directory: Path) -> None:
        for name, table in self.tables.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, directory / name, **self.writing.get(name, {}))
        files = {m: [n for n in self.tables if n.startswith(m)] for m in ("train", "test")}
        write_documents(directory, spec_from_plain(make_spec(self.form, files)))


@st.composite
def good_datasets(draw: st.DrawFn, forms: tuple[str, ...] = tuple(FORMS)) -> Good:
    form, padded = draw(st.sampled_from(forms)), draw(st.booleans())
    seed = draw(st.integers(0, 2**32 - 1))
    names = ["train/part.0.parquet", "train/part.1.parquet", "test/part.0.parquet"]
    tables = {
        name: make_table(form, draw(st.integers(1, 80)), seed + number, padded)
        for number, name in enumerate(names)
    }
    return Good(form, tables, {name: draw(WRITING) for name in names})
