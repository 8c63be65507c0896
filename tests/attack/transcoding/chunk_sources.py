"""The attack on datasets in csv and tfrecord: brought to parquet, then fed, as training does."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..attempt import Attempt, attempt
from ..datasets.clicks_form import clicks_spec, make_clicks
from ..datasets.comparison import as_array
from ..datasets.dataset_family import read_dataset
from ..datasets.draft import make_table, plain_spec
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.file_mutations import FILE_KINDS
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .chunk_truth import MAPPINGS, Rows, Truth
from .tfrecords import decoded, encoded, framed, unframed
from .transcodes import SPEC, transcode

FORMS = ["csv", "two csv", "records", "records of samples", "csv and records"]


ODD_CELLS = [
    *("", "-1", "2", "999", "3.7", "5.0", "x", "nan", "NaN", "inf", "1e3", "1e400", "+1", " 1"),
    *("0x1", "2147483648", "9223372036854775808", "null", "NULL", "true", '"', '"3"', "1\n2", "é"),
    *("\0", "1,2", "-0", "007"),
]


ODD_LISTS: list[Any] = [
    *([], [-1], [0], [1], [2], [1, 1], [999], [2**31], [-(2**63)], [2**63 - 1], [3.7], [1.0]),
    *([float("nan")], [float("inf")], [1e39], [b"1"], [b""], None, list(range(12))),
]


LINES = ["", " ", ",", "1", "0,1,1,0,1,0.5,0.5", "0,1,1,0,1,0.5,0.5,9", '"', "x" * 70_000]


class Source:
    """A dataset in csv or records that is not written yet."""

    def __init__(self, base: dict[str, Any]) -> None:
        """Draw rows, and lay them out in chunks."""
        self.form: str = base["form"]
        of_samples = self.form == "records of samples"
        self.spec = plain_spec() if of_samples else clicks_spec()
        if of_samples:
            self.spec["feature_spec"]["label"]["dtype"] = "bool"
        self.batch = int(base["batch"])
        self.rows: dict[str, Rows] = {}
        for number, (mapping, rows) in enumerate(zip(MAPPINGS, base["sizes"]["rows"], strict=True)):
            seed = base["seed"] + number
            padded = self.batch > 0
            table = make_table(rows, seed, padded) if of_samples else make_clicks(rows, seed)
            self.rows[mapping] = table.to_pylist()
            self.spec["source_spec"][mapping] = self._chunks(mapping)

    def _chunks(self, mapping: str) -> list[dict[str, Any]]:
        names = list(self.spec["feature_spec"])
        half = len(names) // 2
        parts = {
            "csv": [("csv", names)],
            "two csv": [("csv", names[half:]), ("csv", names[:half])],
            "csv and records": [("csv", names[half:]), ("tfrecord", names[:half])],
        }.get(self.form, [("tfrecord", names)])
        return [
            {"type": kind, "features": part, "files": [f"{mapping}/part_{number}.{kind}"]}
            for number, (kind, part) in enumerate(parts)
        ]

    def write(self, directory: Path) -> None:
        for mapping, rows in self.rows.items():
            (directory / mapping).mkdir()
            for chunk in self.spec["source_spec"][mapping]:
                parts = [{name: row[name] for name in chunk["features"]} for row in rows]
                text = self._csv(parts) if chunk["type"] == "csv" else self._records(parts)
                (directory / chunk["files"][0]).write_bytes(text)
        (directory / SPEC).write_text(yaml.safe_dump(self.spec, sort_keys=False))

    def _csv(self, rows: Rows) -> bytes:
        return "".join(",".join(map(_text, row.values())) + "\n" for row in rows).encode()

    def _records(self, rows: Rows) -> bytes:
        size = max(1, self.batch)
        groups = [rows[at : at + size] for at in range(0, len(rows), size)]
        return framed(encoded(self._joined(group)) for group in groups)

    def _joined(self, rows: Rows) -> Any:
        joined = {}
        for name in rows[0]:
            values: list[Any] = []
            for row in rows:
                values += row[name] if isinstance(row[name], list) else [row[name]]
            is_float = self.spec["feature_spec"][name]["dtype"].startswith("float")
            kind = "float" if is_float else "int64"
            joined[name] = (kind, [float(v) if is_float else int(v) for v in values])
        return joined


def _text(value: Any) -> str:
    return repr(value)


def set_cell(directory: Path, file: int, line: int, field: int, value: str) -> None:
    """Put another text in a cell of a csv file."""

    def edit(lines: list[bytes]) -> None:
        cells = lines[line % len(lines)].split(b",")
        cells[field % len(cells)] = value.encode()
        lines[line % len(lines)] = b",".join(cells)

    _edit_lines(directory, file, edit)


def change_line(directory: Path, file: int, line: int, change: str, text: str) -> None:
    """Remove a line of a csv file, repeat it, or put another before it."""

    def edit(lines: list[bytes]) -> None:
        place = line % len(lines)
        if change == "remove":
            del lines[place]
        elif change == "repeat":
            lines.insert(place, lines[place])
        else:
            lines.insert(place, text.encode())

    _edit_lines(directory, file, edit)


def _edit_lines(directory: Path, file: int, edit: Callable[[list[bytes]], None]) -> None:
    found = sorted(path for path in directory.rglob("*.csv") if path.is_file())
    if found:
        path = found[file % len(found)]
        lines = path.read_bytes().split(b"\n")
        edit(lines)
        path.write_bytes(b"\n".join(lines))


def change_record(directory: Path, file: int, record: int, change: str, feature: int,
                  values: list[Any] | None) -> None:  # fmt: skip
    """Remove a record, repeat it, or change one of its features."""
    found = sorted(path for path in directory.rglob("*.tfrecord") if path.is_file())
    if not found:
        return
    path = found[file % len(found)]
    try:
        records = unframed(path.read_bytes())
        place = record % len(records)
        features = decoded(records[place])
        name = sorted(features)[feature % len(features)]
    except Exception:
        return
    if change == "remove":
        del records[place]
    elif change == "repeat":
        records.insert(place, records[place])
    elif change == "other bytes":
        records[place] = records[place][::-1]
    else:
        if change == "drop":
            del features[name]
        elif change == "rename":
            features[f"{name}.x"] = features.pop(name)
        elif change == "one more":
            features[f"{name}.x"] = features[name]
        elif change == "shorter":
            features[name] = (features[name][0], features[name][1][:-1])
        elif change == "one value":
            features[name] = _with_value(features[name], record, values)
        else:
            features[name] = _typed(values)
        records[place] = encoded(features)
    path.write_bytes(framed(records))


def _typed(values: list[Any] | None) -> tuple[str, list[Any]]:
    if not values:
        return ("" if values is None else "int64", [])
    kinds = {int: "int64", float: "float", bytes: "bytes"}
    return kinds[type(values[0])], values


def _with_value(
    feature: tuple[str, list[Any]], place: int, values: list[Any] | None
) -> tuple[str, list[Any]]:
    """Put one value of the same kind in the place of one that is there."""
    kind, stored = feature
    wanted = [v for v in values or [] if (kind, type(v)) in (("int64", int), ("float", float))]
    if stored and wanted:
        stored[place % len(stored)] = wanted[0]
    return kind, stored


def state(directory: Path, feature: int, key: str, value: Any) -> None:
    """Say something else of a feature."""
    try:
        spec = yaml.safe_load((directory / SPEC).read_bytes())
        features = spec["feature_spec"]
        name = list(features)[feature % len(features)]
        features[name][key] = value
    except (OSError, yaml.YAMLError, LookupError, TypeError, ArithmeticError, RecursionError):
        return
    (directory / SPEC).write_text(yaml.safe_dump(spec, sort_keys=False))


Random = np.random.Generator


def _numbers(random: Random, *names: str) -> dict[str, Any]:
    return {name: int(random.integers(1 << 16)) for name in names}


STATED: dict[str, list[Any]] = {
    "dtype": ["int8", "int16", "int64", "uint8", "float32", "float64", "bool", "string", "", 7],
    "cardinality": [1, 2, 6, 39, 41, 301, 2**31, 0, -1, "auto", 1.5],
}


def _stated(random: Random) -> dict[str, Any]:
    key = pick(random, list(STATED))
    return {**_numbers(random, "feature"), "key": key, "value": pick(random, STATED[key])}


OWN_KINDS = [
    MutationKind(
        "set a cell",
        set_cell,
        lambda r: {**_numbers(r, "file", "line", "field"), "value": pick(r, ODD_CELLS)},
        5,
    ),
    MutationKind(
        "change a line",
        change_line,
        lambda r: {
            **_numbers(r, "file", "line"),
            "change": pick(r, ["remove", "repeat", "insert"]),
            "text": pick(r, LINES),
        },
        2,
    ),
    MutationKind(
        "change a record",
        change_record,
        lambda r: {
            **_numbers(r, "file", "record", "feature"),
            "change": pick(r, RECORD_CHANGES),
            "values": pick(r, ODD_LISTS),
        },
        5,
    ),
    MutationKind("state otherwise", state, _stated, 2),
]


RECORD_CHANGES = [
    *("remove", "repeat", "other bytes", "drop", "rename", "one more", "shorter"),
    *("values", "values", "one value", "one value", "one value"),
]


CHUNK_KINDS = [*OWN_KINDS, *FILE_KINDS]


KINDS = {kind.name: kind for kind in CHUNK_KINDS}


class ChunkSourceFamily:
    """Cases on datasets in csv and tfrecord."""

    name = "chunk sources"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        import merlin_sim.workflows.transcoding.tfrecord
        import merlin_sim.workflows.transcoding.transcode  # noqa: F401

        from ..datasets import feed_reading  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a dataset and up to three changes."""
        count = int(random.choice([0, 1, 2, 3], p=[0.08, 0.6, 0.22, 0.1]))
        base = {
            "seed": int(random.integers(1 << 30)),
            "form": pick(random, FORMS),
            "batch": int(random.choice([0, 0, 1, 3, 16])),
            "sizes": {"rows": [int(random.integers(1, 60)) for _ in MAPPINGS]},
        }
        chosen = [OWN_KINDS if random.random() < 0.75 else FILE_KINDS for _ in range(count)]
        return Plan(base, tuple(pick_kind(random, each).drawn(random) for each in chosen))

    def write(self, plan: Plan, directory: Path) -> None:
        """Write the dataset of a plan."""
        Source(plan.base).write(directory)
        for mutation in plan.mutations:
            KINDS[mutation.name].change(directory, **mutation.arguments)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write, bring to parquet, feed; compare with what stands in the files."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory, place = Path(parent) / "d", Path(parent) / "cache"
            directory.mkdir()
            self.write(plan, directory)
            model = "sim" if plan.base["form"] == "records of samples" else "dlrm"
            phase("transcode")
            tried = attempt(lambda: _read(directory, place, model))
            phase("truth")
            truth = Truth(directory)
            return _judged(parent, plan, tried, truth)


def _read(directory: Path, place: Path, model: str) -> dict[str, dict[str, np.ndarray]]:
    transcode(directory, place)
    return read_dataset(place, model)


def _judged(parent: str, plan: Plan, tried: Attempt, truth: Truth) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    if tried.refusal is not None:
        if parent not in tried.refusal:
            return Outcome("refused without a file", tried.refusal[:400])
        if not plan.mutations:
            return Outcome("refused a good file", tried.refusal[:400])
        names = {mutation.name for mutation in plan.mutations}
        if truth.rows and not truth.doubts and names <= {"set a cell", "change a record"}:
            said = [int(n) for n in re.findall(r"(?i)(?:row|record|line)s? #?(\d+)", tried.refusal)]
            if not said:
                return Outcome("refused without the row", f"{tried.refusal[:300]} {truth.rows[:3]}")
        return Outcome(REFUSED, tried.refusal[:400])
    if truth.faults or truth.rows:
        if truth.doubts:
            return Outcome(READ, "not compared: cells in doubt")
        return Outcome("accepted wrong data", f"{truth.faults[:2]} {truth.rows[:3]}")
    if truth.doubts:
        return Outcome(READ, "not compared: cells in doubt")
    for (mapping, feature), cells in truth.columns.items():
        length = (truth._stated(feature).get("dimensions") or [None])[0]
        wanted = as_array(cells, length)
        found = tried.result[mapping].get(feature)
        if found is None:
            continue  # a feature of no channel
        same = [_same(f, w) for f, w in zip(found.tolist(), wanted.tolist(), strict=False)]
        if len(found) != len(wanted) or not all(same):
            return Outcome("wrong values", f"{mapping}: {feature}: {len(found)}, {len(wanted)}")
    return Outcome(READ)


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return bool(np.float32(found) == np.float32(wanted))
    return bool(found == wanted)
