"""The attack on days of click logs: `preprocess criteo` makes what its help says, or refuses.

The lines are read once more here, in plain Python.
"""

from __future__ import annotations

import gzip
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from ..attempt import Attempt, attempt
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.byte_mutations import changed, drawn_change
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan

DAYS, NUMBERS, KEYS = 3, 13, 26
FIELDS = 1 + NUMBERS + KEYS
THRESHOLD = 2
COLUMNS = ["label", *(f"num_{n}" for n in range(NUMBERS)), *(f"cat_{n}" for n in range(KEYS))]
ODD = [
    *("", "-", "-1", "-2", "-3", "2", "01", "+1", " 1", "1.5", "NaN", "1e3", "é", "\0", "a\rb"),
    *("9" * 18, "9" * 19, "0" * 30, "ffffffff", "100000000", "00000000ffffffff", "FFFFFFFF", "g"),
    *("0x1f", "68fd1e64", "x" * 70_000, "-0", "--1", "٣"),
]
LINES = ["", " ", "\t", "\t" * (FIELDS - 1), "0" + "\t" * (FIELDS - 1), "\r", "x" * 100_000, "1"]
CONTENTS: dict[str, bytes] = {
    "nothing": b"",
    "a line end": b"\n",
    "zeros": bytes(300),
    "not utf-8": b"\xff\xfe\x00\n",
    "parquet's magic": b"PAR1PAR1",
    "gzip's magic": b"\x1f\x8b",
}


class Days:
    """Files of lines that are not written yet."""

    def __init__(self, base: dict[str, Any]) -> None:
        """Draw lines: some numbers and keys are missing, keys come again."""
        random = np.random.default_rng(base["seed"])
        self.packed = bool(base["packed"])
        self.texts = [
            b"".join(_line(random) for _ in range(rows)) for rows in base["sizes"]["rows"]
        ]
        self.damages: list[dict[str, Any]] = []
        """Changes to the bytes of the written files."""

    def write(self, directory: Path) -> None:
        for day, text in enumerate(self.texts):
            path = directory / (f"day_{day}.gz" if self.packed else f"day_{day}")
            content = bytearray(gzip.compress(text, mtime=0) if self.packed else text)
            for each in self.damages:
                if each["day"] == day and content:
                    at = each["at"] % len(content)
                    changed(content, at, each["change"], each["count"], each["value"])
            path.write_bytes(content)


def _line(random: np.random.Generator) -> bytes:
    fields = [str(random.integers(2))]
    numbers = random.integers(-2, 1000, NUMBERS)
    fields += ["" if random.random() < 0.1 else str(number) for number in numbers]
    keys = random.integers(0, 9, KEYS) * 0x1234567
    fields += ["" if random.random() < 0.1 else f"{key:08x}" for key in keys]
    return "\t".join(fields).encode() + b"\n"


def set_field(days: Days, day: int, line: int, field: int, value: str) -> None:
    """Put another text in a field."""

    def change(lines: list[bytes]) -> None:
        fields = lines[line % len(lines)].split(b"\t")
        fields[field % len(fields)] = value.encode()
        lines[line % len(lines)] = b"\t".join(fields)

    _edit(days, day, change)


def change_line(days: Days, day: int, line: int, change: str, text: str) -> None:
    """Remove a line, repeat it, put another before it, or end it otherwise."""

    def edit(lines: list[bytes]) -> None:
        place = line % len(lines)
        if change == "remove":
            del lines[place]
        elif change == "repeat":
            lines.insert(place, lines[place])
        elif change == "insert":
            lines.insert(place, text.encode())
        else:
            lines[place] += b"\r" if change == "other line end" else b"\t1"

    _edit(days, day, edit)


def change_text(days: Days, day: int, change: str, at: int, count: int, value: int) -> None:
    content = bytearray(days.texts[day])
    if content:
        changed(content, at % len(content), change, count, value)
        days.texts[day] = bytes(content)


def put_day(days: Days, day: int, what: str) -> None:
    """Put other content in a day's place."""
    text = days.texts[day]
    days.texts[day] = {
        **CONTENTS,
        "other line ends": text.replace(b"\n", b"\r\n"),
        "no last line end": text.rstrip(b"\n"),
        "another day": days.texts[(day + 1) % DAYS],
    }[what]


def damage_file(days: Days, **change: Any) -> None:
    days.damages.append(change)


def _edit(days: Days, day: int, change: Callable[[list[bytes]], None]) -> None:
    lines = days.texts[day].split(b"\n")
    change(lines)
    days.texts[day] = b"\n".join(lines)


Random = np.random.Generator


def _day(random: Random) -> dict[str, Any]:
    return {"day": int(random.integers(DAYS))}


def _at(random: Random) -> dict[str, Any]:
    return {**_day(random), "line": int(random.integers(1 << 16))}


PUT = [*CONTENTS, "other line ends", "no last line end", "another day"]
LINE_CHANGES = ["remove", "repeat", "insert", "insert", "other line end", "one more field"]
DAY_KINDS = [
    MutationKind(
        "set a field",
        set_field,
        lambda r: {**_at(r), "field": int(r.integers(FIELDS)), "value": pick(r, ODD)},
        6,
    ),
    MutationKind(
        "change a line",
        change_line,
        lambda r: {**_at(r), "change": pick(r, LINE_CHANGES), "text": pick(r, LINES)},
        3,
    ),
    MutationKind("change the text", change_text, lambda r: {**_day(r), **drawn_change(r)}, 3),
    MutationKind("put in a day's place", put_day, lambda r: {**_day(r), "what": pick(r, PUT)}, 1),
    MutationKind("damage the file", damage_file, lambda r: {**_day(r), **drawn_change(r)}, 2),
]
KINDS = {kind.name: kind for kind in DAY_KINDS}


class ClickLogFamily:
    """Cases on days of click logs."""

    name = "click logs"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        from merlin_sim.workflows.criteo import build_criteo  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw three days and up to two changes."""
        count = int(random.choice([0, 1, 2], p=[0.05, 0.65, 0.3]))
        base = {
            "seed": int(random.integers(1 << 30)),
            "packed": bool(random.random() < 0.3),
            "skip": bool(random.random() < 0.3),
            "sizes": {"rows": [int(random.integers(1, 20)) for _ in range(DAYS)]},
        }
        return Plan(base, tuple(pick_kind(random, DAY_KINDS).drawn(random) for _ in range(count)))

    def write(self, plan: Plan, directory: Path) -> Path:
        """Write the days of a plan; gives their directory."""
        days = Days(plan.base)
        order = [kind.name for kind in DAY_KINDS]
        for mutation in sorted(plan.mutations, key=lambda each: order.index(each.name)):
            KINDS[mutation.name].change(days, **mutation.arguments)
        (directory / "days").mkdir()
        days.write(directory / "days")
        return directory / "days"

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the days, preprocess them, compare rows and vocabularies with the lines."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            days = self.write(plan, directory)
            phase("preprocess")
            tried = attempt(lambda: preprocess(days, directory / "dataset", plan.base["skip"]))
            phase("truth")
            return _judged(days, directory / "dataset", plan, tried)


def preprocess(days: Path, output: Path, skip: bool) -> None:
    """Run preprocess in this process."""
    from merlin_sim.workflows.criteo.build_criteo import CriteoBuilder
    from merlin_sim.workflows.criteo.click_graph import CriteoRules
    from merlin_sim.workflows.criteo.criteo_columns import KEY_COLUMNS
    from merlin_sim.workflows.criteo.criteo_log import find_days

    rules = CriteoRules((THRESHOLD,) * len(KEY_COLUMNS), "all")
    builder = CriteoBuilder(find_days(days), rules, on_bad_rows="skip" if skip else "fail")
    builder.build(output)


Row = list[Any]
"""A label, numbers and keys; None for what is missing."""


def _judged(days: Path, dataset: Path, plan: Plan, tried: Attempt) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    try:
        read = [_read_day(path) for path in sorted(days.iterdir())]
    except (OSError, EOFError, ValueError, gzip.zlib.error) as error:  # type: ignore[attr-defined]
        if tried.refusal is None:
            return Outcome("accepted what cannot be unpacked", str(error))
        named = str(days) in tried.refusal
        return Outcome(REFUSED if named else "refused without a file", tried.refusal[:300])
    bad = [(day, line) for day, (_, wrong) in enumerate(read) for line in wrong]
    if tried.refusal is not None:
        return _judged_refusal(days, tried.refusal, plan, read, bad)
    if bad and not plan.base["skip"]:
        return Outcome("accepted wrong lines", f"day and line {bad[:3]}")
    fault = _difference(dataset, [rows for rows, _ in read])
    return Outcome("wrong rows", fault) if fault else Outcome(READ)


def _judged_refusal(
    days: Path,
    refusal: str,
    plan: Plan,
    read: list[tuple[list[Row], list[int]]],
    bad: list[tuple[int, int]],
) -> Outcome:
    if not any(path.name in refusal for path in days.iterdir()):
        return Outcome("refused without a file", refusal[:300])
    last = len(read[-1][0])
    no_split = last == 0 or not any(rows for rows, _ in read[:-1])
    if bad and not plan.base["skip"]:
        said = [int(number) for number in re.findall(r"(?:row|line) (\d+)", refusal)]
        named = any(line in said and f"day_{day}" in refusal for day, line in bad)
        return Outcome(REFUSED if named else "refused with another line", refusal[:300])
    return Outcome(REFUSED if no_split else "refused good lines", refusal[:300])


def _read_day(path: Path) -> tuple[list[Row], list[int]]:
    """The rows of a day, and the lines (from 1) that are not rows."""
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    rows, wrong = [], []
    for number, line in enumerate(text.split(b"\n"), start=1):
        line = line.removesuffix(b"\r")
        if not line:
            continue
        row = _row(line.split(b"\t"))
        if row is None:
            wrong.append(number)
        else:
            rows.append(row)
    return rows, wrong


def _row(fields: list[bytes]) -> Row | None:
    if len(fields) != FIELDS or fields[0] not in (b"0", b"1"):
        return None
    row: Row = [int(fields[0])]
    for field in fields[1 : 1 + NUMBERS]:
        if field and not re.fullmatch(rb"-?[0-9]{1,18}", field):
            return None
        row.append(int(field) if field else None)
        if field and row[-1] < -2:
            return None
    for field in fields[1 + NUMBERS :]:
        if not re.fullmatch(rb"0*[0-9a-fA-F]{0,8}", field):
            return None
        row.append(f"{int(field, 16):08x}" if field else None)
    return row


def _difference(dataset: Path, days: list[list[Row]]) -> str:
    """Say in what a dataset differs from what the days' rows make; empty where in nothing."""
    half = len(days[-1]) // 2
    wanted = {"train": sum(days[:-1], []), "validation": days[-1][:half], "test": days[-1][half:]}
    everything = sum(days, [])
    ids = {}
    for place, name in enumerate(COLUMNS[1 + NUMBERS :], start=1 + NUMBERS):
        counts = Counter(row[place] for row in everything if row[place] is not None)
        kept = {key: count for key, count in counts.items() if count >= THRESHOLD}
        table = pq.read_table(dataset / f"categories/{name}.parquet").to_pydict()
        found = dict(zip(table["key"], table["count"], strict=True))
        by_id = sorted(zip(table["id"], table["count"], strict=True))
        falling = [count for _, count in by_id] == sorted(kept.values(), reverse=True)
        if found != kept or [i for i, _ in by_id] != [*range(1, len(kept) + 1)] or not falling:
            return f"{name}: keys {found}, in the lines {kept}"
        ids[name] = {None: 0, **dict(zip(table["key"], table["id"], strict=True))}
    sources = yaml.safe_load((dataset / "feature_spec.yaml").read_bytes())["source_spec"]
    for mapping, rows in wanted.items():
        files = [dataset / name for chunk in sources.get(mapping, []) for name in chunk["files"]]
        stored = [row for file in files for row in pq.read_table(file).to_pylist()]
        if len(stored) != len(rows):
            return f"{mapping}: {len(stored)} rows, in the lines {len(rows)}"
        for number, (row, lines) in enumerate(zip(stored, rows, strict=True)):
            for name, value in zip(COLUMNS, lines, strict=True):
                if not _is(row[name], name, value, ids):
                    return f"{mapping}, row {number}: {name} is {row[name]}, of {value}"
    return ""


def _is(found: Any, name: str, value: Any, ids: dict[str, dict[Any, int]]) -> bool:
    if name in ids:
        return bool(found == ids[name].get(value, 0))
    if name == "label":
        return bool(found == value)
    wanted = 0.0 if value is None else math.log(value + 3)
    return math.isclose(found, wanted, rel_tol=1e-5, abs_tol=1e-6)
