"""The attack on raw logs: preprocess makes what the published rules say, or refuses.

The rules are read once more here, with json, csv and arrow alone, for logs of a few users.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..attempt import Attempt, attempt
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.byte_mutations import changed, drawn_change
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan

FORMATS = ["json", "json.gz", "csv", "csv.gz", "parquet"]
NAMES = {"user": "reviewerID", "item": "asin", "time": "unixReviewTime", "kind": "kind"}
SHORTEST, LONGEST = 3, 6
METADATA = "meta_Books.json"
ODD: list[Any] = [
    *(None, "", -5, 1.5, "x", [], {}, True, 10**30, "\0", "é", "a,b", 'q"u', "new\nline", " u1"),
    *("y" * 200_000, "NaN", "-", "1e3", "2014-01-01", 0, "\u2028", float("nan"), float("inf")),
]
LINES = ["", " ", "{}", "[]", "null", "{", ",,,", "a,b", '"', "\0", "\ufeff", "x" * 100_000]
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a line end": b"\n",
    "zeros": bytes(300),
    "brackets": b"[" * 200_000,
    "not utf-8": b"\xff\xfe\x00{\n",
    "parquet's magic": b"PAR1PAR1",
    "gzip's magic": b"\x1f\x8b",
}


class Log:
    """A log that is not written yet."""

    names = NAMES
    """Field -> its column."""

    def __init__(self, base: dict[str, Any]) -> None:
        """Draw users and what they did."""
        random = np.random.default_rng(base["seed"])
        self.format: str = base["format"]
        items = base["sizes"]["items"]
        self.rows: list[dict[str, Any]] = []
        for user in range(base["sizes"]["users"]):
            for _ in range(int(random.integers(1, 9))):
                item = int(random.integers(items))
                row = [f"u{user}", f"i{item}", int(random.integers(1, 50)), f"k{item % 3}"]
                self.rows.append(dict(zip(NAMES.values(), row, strict=True)))
        self.kinds: dict[str, pa.DataType] = {}
        self.text: bytes | None = None
        """The text once it was changed as such; rows are not looked at any more."""
        self.metadata = "".join(
            repr({"asin": f"i{item}", "categories": [["Books", f"k{item % 3}"]]}) + "\n"
            for item in range(items)
        ).encode()
        self.packed: list[dict[str, Any]] = []
        """Changes to the bytes of the written file."""

    def as_text(self) -> bytes:
        if self.text is not None:
            return self.text
        if self.format.startswith("json"):
            return "".join(json.dumps(row) + "\n" for row in self.rows).encode()
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        writer.writerow(names)
        writer.writerows([row.get(name, "") for name in names] for row in self.rows)
        return out.getvalue().encode("utf-8", "surrogatepass")

    def write(self, directory: Path) -> Path:
        """Write the files; gives the log's."""
        path = directory / f"reviews.{self.format}"
        if self.format == "parquet" and self.text is None:
            pq.write_table(self._table(), path, row_group_size=20)
        else:
            text = self.as_text()
            path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
        content = bytearray(path.read_bytes())
        for change in self.packed:
            if content:
                at = change["at"] % len(content)
                changed(content, at, change["change"], change["count"], change["value"])
        path.write_bytes(content)
        (directory / METADATA).write_bytes(self.metadata)
        return path

    def _table(self) -> pa.Table:
        columns = {}
        for name in self.names.values():
            cells = [row.get(name) for row in self.rows]
            try:
                columns[name] = pa.array(cells, self.kinds.get(name))
            except (pa.ArrowException, OverflowError):
                columns[name] = pa.array([None if c is None else str(c)[:99] for c in cells])
        return pa.table(columns)


def set_field(log: Log, row: int, field: str, value: Any) -> None:
    if log.rows:
        log.rows[row % len(log.rows)][log.names[field]] = value


def drop_field(log: Log, row: int, field: str) -> None:
    if log.rows:
        log.rows[row % len(log.rows)].pop(log.names[field], None)


def store_as(log: Log, field: str, kind: str) -> None:
    """Store a column as another type, where the values allow it."""
    numbers = {"user": "u", "item": "i", "kind": "k"}
    kinds = {"text in a dictionary": pa.dictionary(pa.int32(), pa.string())}
    if kind.startswith("int") or kind == "double":
        for row in log.rows:
            value = row.get(log.names[field])
            if isinstance(value, str) and value.startswith(numbers.get(field, " ")):
                row[log.names[field]] = int(value[1:])
        kinds[kind] = getattr(pa, {"double": "float64"}.get(kind, kind))()
    elif kind == "timestamp":
        kinds[kind] = pa.timestamp("s")
    elif kind == "large text":
        kinds[kind] = pa.large_string()
    log.kinds[log.names[field]] = kinds[kind]


def change_line(log: Log, line: int, change: str, text: str) -> None:
    lines = log.as_text().split(b"\n")
    line %= len(lines)
    if change == "remove":
        del lines[line]
    elif change == "repeat":
        lines.insert(line, lines[line])
    else:
        lines.insert(line, text.encode())
    log.text = b"\n".join(lines)


def change_text(log: Log, change: str, at: int, count: int, value: int) -> None:
    content = bytearray(log.as_text())
    if content:
        changed(content, at % len(content), change, count, value)
        log.text = bytes(content)


def put_text(log: Log, what: str) -> None:
    """Put other content in the log's place."""
    text = log.as_text()
    log.text = {
        **CONTENTS,
        "its first line": text.split(b"\n")[0] + b"\n",
        "other line ends": text.replace(b"\n", b"\r\n"),
        "a byte order mark": b"\xef\xbb\xbf" + text,
        "no last line end": text.rstrip(b"\n"),
    }[what]


def change_metadata(log: Log, change: str, at: int, count: int, value: int) -> None:
    content = bytearray(log.metadata)
    if content:
        changed(content, at % len(content), change, count, value)
        log.metadata = bytes(content)


def put_metadata(log: Log, what: str) -> None:
    log.metadata = CONTENTS[what]


def damage_file(log: Log, **change: Any) -> None:
    log.packed.append(change)


Random = np.random.Generator


def _field(random: Random) -> dict[str, Any]:
    return {"row": int(random.integers(1 << 16)), "field": pick(random, list(NAMES))}


PUT = [*CONTENTS, "its first line", "other line ends", "a byte order mark", "no last line end"]
STORED = ["int64", "int32", "double", "timestamp", "large text", "text in a dictionary"]
LOG_KINDS = [
    MutationKind("set a field", set_field, lambda r: {**_field(r), "value": pick(r, ODD)}, 5),
    MutationKind("drop a field", drop_field, _field, 1),
    MutationKind(
        "store a column as",
        store_as,
        lambda r: {"field": pick(r, list(NAMES)), "kind": pick(r, STORED)},
        2,
    ),
    MutationKind(
        "change a line",
        change_line,
        lambda r: {
            "line": int(r.integers(1 << 16)),
            "change": pick(r, ["remove", "repeat", "insert"]),
            "text": pick(r, LINES),
        },
        3,
    ),
    MutationKind("change the text", change_text, drawn_change, 3),
    MutationKind("put in the log's place", put_text, lambda r: {"what": pick(r, PUT)}, 1),
    MutationKind("change the metadata", change_metadata, drawn_change, 1),
    MutationKind(
        "put in the metadata's place", put_metadata, lambda r: {"what": pick(r, list(CONTENTS))}, 1
    ),
    MutationKind("damage the file", damage_file, drawn_change, 3),
]
KINDS = {kind.name: kind for kind in LOG_KINDS}


class LogFamily:
    """Cases on raw logs."""

    name = "raw logs"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        from merlin_sim.workflows.amazon import amazon_books  # noqa: F401
        from merlin_sim.workflows.logs import table_log  # noqa: F401
        from merlin_sim.workflows.preprocess import preprocess_log  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a log, now and then of one item only, and up to two changes."""
        count = int(random.choice([0, 1, 2], p=[0.05, 0.65, 0.3]))
        sizes = {
            "users": int(random.integers(1, 12)),
            "items": int(random.choice([1, 2, 12], p=[0.05, 0.05, 0.9])),
        }
        base = {
            "seed": int(random.integers(1 << 30)),
            "format": pick(random, FORMATS),
            "skip": bool(random.random() < 0.3),
            "sizes": sizes,
        }
        return Plan(base, tuple(pick_kind(random, LOG_KINDS).drawn(random) for _ in range(count)))

    def write(self, plan: Plan, directory: Path) -> Path:
        """Write the log of a plan; gives its file."""
        log = Log(plan.base)
        order = [kind.name for kind in LOG_KINDS]
        for mutation in sorted(plan.mutations, key=lambda each: order.index(each.name)):
            KINDS[mutation.name].change(log, **mutation.arguments)
        return log.write(directory)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the log, preprocess it, compare the rows with the rules."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            path = self.write(plan, directory)
            phase("preprocess")
            tried = attempt(lambda: preprocess(path, directory / "dataset", plan.base["skip"]))
            phase("truth")
            return _judged(path, directory / "dataset", plan, tried)


def preprocess(path: Path, output: Path, skip: bool, layout: str = "samples") -> list[str]:
    """Run preprocess in this process; gives what it says at its end."""
    from merlin_sim.foundation.progress import Silence
    from merlin_sim.workflows.amazon.amazon_books import AmazonReviews, read_categories
    from merlin_sim.workflows.behaviour.behaviour_columns import BehaviourColumns
    from merlin_sim.workflows.behaviour.rules import SampleRules
    from merlin_sim.workflows.engine.schedulers import SingleProcess
    from merlin_sim.workflows.logs.table_log import TableLog
    from merlin_sim.workflows.preprocess.preprocess_log import PreprocessLog

    policy = "skip" if skip else "fail"
    rules = SampleRules(
        max_sequence_length=LONGEST,
        shortest_sequence_for_user=SHORTEST,
        equal_times="item",
        fit_on="all",
    )
    source: Any
    if ".json" in path.name:
        source = AmazonReviews(path)
        metadata = path.with_name(METADATA)
        program = PreprocessLog(
            source,
            rules,
            on_bad_rows=policy,
            given=lambda: read_categories(metadata, SingleProcess(), Silence(), policy),
        )
    else:
        columns = BehaviourColumns(
            NAMES["user"], NAMES["item"], NAMES["time"], (), (NAMES["kind"],)
        )
        source = TableLog((path,), columns)
        program = PreprocessLog(source, rules, on_bad_rows=policy, layout=layout)
    return list(program.write(output).lines())


def _judged(path: Path, dataset: Path, plan: Plan, tried: Attempt) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    rows = plain_rows(path)
    if tried.refusal is not None:
        return _judged_refusal(path, tried.refusal, plan, rows)
    if rows is None:
        return Outcome(READ, "not compared: rows in doubt")
    items = {item for _, item, _ in rows}
    if len(items) == 1:
        return Outcome("accepted a log of one item", "negatives equal to the positives")
    found, wanted = dataset_rows(dataset), wanted_rows(rows)
    if found != wanted:
        missing, strange = wanted - found, found - wanted
        return Outcome("wrong rows", f"missing {list(missing)[:2]}, strange {list(strange)[:2]}")
    return Outcome(READ)


def _judged_refusal(
    path: Path, refusal: str, plan: Plan, rows: list[tuple[str, str, Any]] | None
) -> Outcome:
    named = path.name in refusal or METADATA in refusal
    counts = Counter(user for user, _, _ in rows or [])
    too_short = rows is not None and max(counts.values(), default=0) < SHORTEST
    one_item = rows is not None and len({item for _, item, _ in rows}) == 1
    if not named and not too_short and not one_item and "No user has" not in refusal:
        return Outcome("refused without a file", refusal[:300])
    if not plan.mutations and not too_short and not one_item:
        return Outcome("refused a good file", refusal[:300])
    return Outcome(REFUSED, refusal)


def plain_rows(path: Path) -> list[tuple[str, str, Any]] | None:
    """User, item and time of every row; None where any of them leaves a doubt."""
    try:
        rows = list(read_plain(path))
    except Exception:
        return None
    plain = []
    for row in rows:
        if not isinstance(row, dict):
            return None
        user, item, time = (row.get(NAMES[name]) for name in ("user", "item", "time"))
        if isinstance(time, str) and time.isascii() and time.isdigit():
            time = int(time)
        known = all(isinstance(v, str) and v and v.isascii() and v.isalnum() for v in (user, item))
        if not known or type(time) is not int or not 0 < time < 10**12:
            return None
        plain.append((str(user), str(item), time))
    return plain


def read_plain(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return list(pq.ParquetFile(path).read().to_pylist())
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
    if ".json" in path.name:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    lines = list(csv.reader(io.StringIO(text), strict=True))
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:] if line]


Row = tuple[str, str, str, tuple[str, ...]]


def wanted_rows(rows: list[tuple[str, str, Any]]) -> Counter[Row]:
    """The positive rows of train and test by the published rules."""
    by_user: dict[str, list[tuple[Any, str]]] = {}
    for user, item, time in rows:
        by_user.setdefault(user, []).append((time, item))
    wanted: Counter[Row] = Counter()
    for user, entries in by_user.items():
        if len(entries) < SHORTEST:
            continue
        items = [item for _, item in sorted(entries)]
        for position in range(1, len(items)):
            mapping = "test" if position == len(items) - 1 else "train"
            history = tuple(items[max(0, position - LONGEST) : position])
            wanted[mapping, user, items[position], history] += 1
    return wanted


def dataset_rows(dataset: Path) -> Counter[Row]:
    """The positive rows of a dataset directory, ids turned back into keys."""
    keys = {}
    for name in ("user", "item"):
        found = sorted((dataset / "categories").glob("*.parquet"))
        path = next(p for p in found if p.stem in (NAMES[name], f"{name}_id"))
        table = pq.read_table(path).to_pydict()
        keys[name] = dict(zip(table["id"], table["key"], strict=True))
    rows: Counter[Row] = Counter()
    for mapping in ("train", "test"):
        for path in sorted((dataset / mapping).glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                cells = list(row.values())
                user = next(n for n in row if n in (NAMES["user"], "user_id"))
                item = next(n for n in row if n in (f"{NAMES['item']}_trgt", "item_id_trgt"))
                seen = next(n for n in row if n in (f"{NAMES['item']}_pos", "item_id_pos"))
                if cells[0] != 1:
                    continue
                history = tuple(keys["item"][each] for each in row[seen] if each)
                rows[mapping, keys["user"][row[user]], keys["item"][row[item]], history] += 1
    return rows
