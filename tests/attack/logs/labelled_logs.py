"""The attack on logs of impressions and on splits: `preprocess log` makes what its help says.

Which rows are samples of which mapping, with which label and history, is said once more here in
plain Python.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ..attempt import Attempt, attempt
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.byte_mutations import drawn_change
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .raw_logs import (
    LINES,
    LONGEST,
    NAMES,
    ODD,
    PUT,
    SHORTEST,
    STORED,
    Log,
    change_line,
    change_text,
    damage_file,
    drop_field,
    put_text,
    read_plain,
    set_field,
    store_as,
)

LABEL = "clicked"
LABELLED = {**NAMES, "label": LABEL}
FORMATS = ["csv", "csv.gz", "parquet"]
WORDS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
LABELS: list[Any] = [
    *(None, "", 2, -1, 0.5, 1.0, 0.0, True, False, "yes", "TRUE", " 1 ", "01", "1.", "é", "\0"),
    *(float("nan"), 10**18, "x" * 70_000, "0", "1", "b'1'"),
]
LATEST = 50
"""Times are days, from 1 to before this."""


class LabelledLog(Log):
    """A log with a column of labels, that is not written yet."""

    names = LABELLED

    def __init__(self, base: dict[str, Any]) -> None:
        """Draw a log; say of each row whether its item was taken, or of all but one item not."""
        super().__init__(base)
        random = np.random.default_rng([base["seed"], 1])
        for row in self.rows:
            row[LABEL] = int(random.random() < 0.6)
            if base["one item"]:
                row[LABEL] = int(row[NAMES["item"]] == "i0")
            if base["dates"]:
                row[NAMES["time"]] = day(row[NAMES["time"]])


def day(time: int) -> str:
    """A time as a date."""
    return date.fromordinal(date(2024, 1, 1).toordinal() + time).isoformat()


def store_labels(log: Log, kind: str) -> None:
    """Store labels as truth values or as text."""
    change = {"truth": bool, "text": str, "words": lambda label: str(bool(label))}[kind]
    for row in log.rows:
        if type(row.get(LABEL)) is int:
            row[LABEL] = change(row[LABEL])


Random = np.random.Generator


def _field(random: Random) -> dict[str, Any]:
    return {"row": int(random.integers(1 << 16)), "field": pick(random, [*LABELLED, "label"])}


LABEL_KINDS = [
    MutationKind(
        "set a label",
        set_field,
        lambda r: {"row": int(r.integers(1 << 16)), "field": "label", "value": pick(r, LABELS)},
        6,
    ),
    MutationKind("set a field", set_field, lambda r: {**_field(r), "value": pick(r, ODD)}, 3),
    MutationKind("drop a field", drop_field, _field, 1),
    MutationKind(
        "store labels as", store_labels, lambda r: {"kind": pick(r, ["truth", "text", "words"])}, 2
    ),
    MutationKind(
        "store a column as",
        store_as,
        lambda r: {"field": pick(r, list(LABELLED)), "kind": pick(r, STORED)},
        1,
    ),
    MutationKind(
        "change a line",
        change_line,
        lambda r: {
            "line": int(r.integers(1 << 16)),
            "change": pick(r, ["remove", "repeat", "insert"]),
            "text": pick(r, [*LINES, "u1,i1,3,k1,1", "u1,i1,3,k1,7", "u1,i1,3,k1"]),
        },
        2,
    ),
    MutationKind("change the text", change_text, drawn_change, 2),
    MutationKind("put in the log's place", put_text, lambda r: {"what": pick(r, PUT)}, 0.5),
    MutationKind("damage the file", damage_file, drawn_change, 2),
]
KINDS = {kind.name: kind for kind in LABEL_KINDS}


class LabelledLogFamily:
    """Cases on logs with labels, and on splits of logs with and without."""

    name = "labelled logs"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        from merlin_sim.workflows.logs import table_log  # noqa: F401
        from merlin_sim.workflows.preprocess import preprocess_log  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a log, how it is split, and up to two changes."""
        count = int(random.choice([0, 1, 2], p=[0.1, 0.6, 0.3]))
        dates = bool(random.random() < 0.3)
        base = {
            "seed": int(random.integers(1 << 30)),
            "format": pick(random, FORMATS),
            "skip": bool(random.random() < 0.3),
            "labelled": bool(random.random() < 0.7),
            "one item": bool(random.random() < 0.03),
            "dates": dates,
            "split": _drawn_split(random, dates),
            "sizes": {"users": int(random.integers(1, 14)), "items": int(random.integers(2, 12))},
        }
        kinds = tuple(pick_kind(random, LABEL_KINDS).drawn(random) for _ in range(count))
        return Plan(base, kinds)

    def write(self, plan: Plan, directory: Path) -> Path:
        """Write the log of a plan; gives its file."""
        log = LabelledLog(plan.base)
        order = [kind.name for kind in LABEL_KINDS]
        for mutation in sorted(plan.mutations, key=lambda each: order.index(each.name)):
            KINDS[mutation.name].change(log, **mutation.arguments)
        return log.write(directory)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the log, preprocess it, compare the rows with the rules."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            path = self.write(plan, directory)
            phase("preprocess")
            tried = attempt(lambda: preprocess(path, directory / "dataset", plan.base))
            phase("truth")
            return _judged(path, directory / "dataset", plan, tried)


def _drawn_split(random: Random, dates: bool) -> dict[str, Any]:
    way = pick(random, ["none", "none", "time", "time", "users"])
    if way == "users":
        shares = {"test_users": 0.4, "validation_users": 0.3}
        return shares if random.random() < 0.5 else {"test_users": 0.5}
    if way == "none":
        return {}
    first, second = sorted(int(t) for t in random.choice(np.arange(10, LATEST), 2, replace=False))
    times = {"test_from": second, "validation_from": first}
    said = {name: day(time) if dates else str(time) for name, time in times.items()}
    return said if random.random() < 0.5 else {"test_from": said["test_from"]}


def preprocess(path: Path, output: Path, base: dict[str, Any]) -> None:
    """Run preprocess in this process."""
    from merlin_sim.workflows.behaviour.behaviour_columns import BehaviourColumns
    from merlin_sim.workflows.behaviour.rules import SampleRules
    from merlin_sim.workflows.logs.table_log import TableLog
    from merlin_sim.workflows.preprocess.preprocess_log import PreprocessLog

    rules = SampleRules(
        max_sequence_length=LONGEST,
        shortest_sequence_for_user=SHORTEST,
        negatives="none" if base["labelled"] else "popularity",
        equal_times="log",
        fit_on="all",
        **base["split"],
    )
    user, item, time, kind = NAMES.values()
    label = LABEL if base["labelled"] else None
    columns = BehaviourColumns(user, item, time, (), (kind,), label)
    policy = "skip" if base["skip"] else "fail"
    PreprocessLog(TableLog((path,), columns), rules, on_bad_rows=policy).write(output)


PlainRow = tuple[str, str, Any, int]
"""User, item, time and label."""


def _judged(path: Path, dataset: Path, plan: Plan, tried: Attempt) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    rows, bad = plain_rows(path, plan.base)
    if tried.refusal is not None:
        return _judged_refusal(path, tried.refusal, plan, rows, bad)
    if rows is None:
        return Outcome(READ, "not compared: rows in doubt")
    if bad and not plan.base["skip"]:
        return Outcome("accepted wrong labels", f"rows {bad[:3]}")
    if len({item for _, item, _, label in _kept(rows) if label}) == 1:
        return Outcome("accepted one taken item", "negative histories equal the positive ones")
    found, by_user = dataset_rows(dataset, plan.base["labelled"])
    return _compared(found, by_user, rows, plan.base)


def _compared(
    found: Counter[Any], by_user: dict[str, set[str]], rows: list[PlainRow], base: dict[str, Any]
) -> Outcome:
    split, is_labelled = base["split"], base["labelled"]
    if "test_users" in split:
        shared = [user for user, mappings in by_user.items() if len(mappings) > 1]
        if shared:
            return Outcome("a user in two mappings", f"{shared[:3]}")
        wanted = Counter(row[1:] for row in wanted_rows(rows, split, is_labelled).elements())
        found = Counter(row[1:] for row in found.elements())
    else:
        wanted = wanted_rows(rows, split, is_labelled)
    if found != wanted:
        missing, strange = wanted - found, found - wanted
        return Outcome("wrong rows", f"missing {list(missing)[:2]}, strange {list(strange)[:2]}")
    return Outcome(READ)


def _judged_refusal(
    path: Path, refusal: str, plan: Plan, rows: list[PlainRow] | None, bad: list[int]
) -> Outcome:
    if path.name not in refusal:
        return Outcome("refused without a file", refusal[:300])
    if rows is None:
        return Outcome(REFUSED, refusal[:300])
    if bad and not plan.base["skip"]:
        first = 1 if path.suffix == ".parquet" else 2
        said = [int(number) for number in re.findall(r"line (\d+)", refusal)]
        of_rows = {mutation.name for mutation in plan.mutations} <= {"set a label", "set a field"}
        if of_rows and not any(row + first in said for row in bad):
            return Outcome("refused without the row", f"{refusal[:300]}, rows {bad[:3]}")
        return Outcome(REFUSED, refusal[:300])
    kept = _kept(rows)
    if len({item for _, item, _, label in kept if label}) < 2:
        return Outcome(REFUSED, refusal[:300])
    wanted = wanted_rows(rows, plan.base["split"], plan.base["labelled"])
    names = {"train", "test"} | ({"validation"} if len(plan.base["split"]) == 2 else set())
    empty = "test_users" in plan.base["split"] or {row[0] for row in wanted} != names
    harmless = not plan.mutations or bool(bad) or all(m.name in HARMLESS for m in plan.mutations)
    if harmless and not (empty and "expected samples in" in refusal):
        return Outcome("refused a good file", refusal[:300])
    return Outcome(REFUSED, refusal[:300])


HARMLESS = ("set a label", "store labels as")


def _kept(rows: list[PlainRow]) -> list[PlainRow]:
    """The rows of users who took enough."""
    counts = Counter(user for user, _, _, label in rows if label)
    return [row for row in rows if counts[row[0]] >= SHORTEST]


def plain_rows(path: Path, base: dict[str, Any]) -> tuple[list[PlainRow] | None, list[int]]:
    """The good rows, None where any leaves a doubt; and which rows (from 0) are bad.

    Bad is a row without a label, and one without a kind where kinds are numbers: a missing text
    is a kind of its own.
    """
    try:
        stored = list(read_plain(path))
    except Exception:
        return None, []
    rows, bad = [], []
    kind = NAMES["kind"]
    numbers = any(isinstance(row, dict) and type(row.get(kind)) is int for row in stored)
    for place, row in enumerate(stored):
        if not isinstance(row, dict):
            return None, []
        user, item, time = (row.get(NAMES[name]) for name in ("user", "item", "time"))
        time = _plain_time(time, base["dates"])
        known = all(isinstance(v, str) and v and v.isascii() and v.isalnum() for v in (user, item))
        if not known or time is None or (base["labelled"] and LABEL not in row):
            return None, []
        label = _plain_label(row.get(LABEL)) if base["labelled"] else 1
        if label is None or (numbers and row.get(kind) is None):
            bad.append(place)
        else:
            rows.append((str(user), str(item), time, label))
    return rows, bad


def _plain_time(time: Any, dates: bool) -> Any:
    if dates:
        is_date = isinstance(time, str) and re.fullmatch(r"2024-\d\d-\d\d", time)
        return time if is_date else None
    if isinstance(time, str) and time.isascii() and time.isdigit():
        time = int(time)
    return time if type(time) is int and 0 < time < 10**12 else None


def _plain_label(label: Any) -> int | None:
    if isinstance(label, str):
        return WORDS.get(label.strip().lower())
    return int(label) if label in (0, 1) else None


Row = tuple[str, str, str, int, tuple[str, ...]]


def wanted_rows(rows: list[PlainRow], split: dict[str, Any], is_labelled: bool) -> Counter[Row]:
    """The samples of each mapping; of a split by users all in one: a hash says whose they are."""
    by_user: dict[str, list[PlainRow]] = {}
    for row in _kept(rows):
        by_user.setdefault(row[0], []).append(row)
    wanted: Counter[Row] = Counter()
    for user, entries in by_user.items():
        entries.sort(key=lambda row: row[2])  # stable: the log's order among those of one time
        history: list[str] = []
        for place, (_, item, time, label) in enumerate(entries):
            is_last = place == len(entries) - 1
            mapping = _mapping(time, split) if split else ("test" if is_last else "train")
            if is_labelled:  # what was shown at one time tells nothing of itself
                before = [entry for entry in entries[:place] if entry[2] < time]
                history = [each for _, each, _, taken in before if taken]
            if history or (is_last and not split):
                wanted[mapping, user, item, label, tuple(history[-LONGEST:])] += 1
            if label and not is_labelled:
                history.append(item)
    return wanted


def _mapping(time: Any, split: dict[str, Any]) -> str:
    if "test_users" in split:
        return "any"
    kind = type(time)
    if time >= kind(split["test_from"]):
        return "test"
    first = split.get("validation_from")
    return "validation" if first is not None and time >= kind(first) else "train"


def dataset_rows(dataset: Path, labelled: bool) -> tuple[Counter[Row], dict[str, set[str]]]:
    """The rows of a dataset directory, ids turned back into keys; and each user's mappings.

    Of a log without labels the positive rows alone: the others are drawn.
    """
    user, item = NAMES["user"], NAMES["item"]
    keys = {}
    for name in (user, item):
        table = pq.read_table(dataset / "categories" / f"{name}.parquet").to_pydict()
        keys[name] = dict(zip(table["id"], table["key"], strict=True))
    rows: Counter[Row] = Counter()
    by_user: dict[str, set[str]] = {}
    for mapping in ("train", "validation", "test"):
        for path in sorted((dataset / mapping).glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                label = next(iter(row.values()))
                who = keys[user][row[user]]
                by_user.setdefault(who, set()).add(mapping)
                if label or labelled:
                    history = tuple(keys[item][each] for each in row[f"{item}_pos"])
                    rows[mapping, who, keys[item][row[f"{item}_trgt"]], label, history] += 1
    return rows, by_user
