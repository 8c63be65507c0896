"""The attack on requests to DLRM's servable: rows of numbers and categories, and arrays of both.

A good row is answered with the ids that its keys have in the vocabularies, and with the numbers
that the click log's rule makes; anything else is refused, or gives what the model has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ..attempt import attempt
from ..kinds import MutationKind, pick, pick_kind
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .good_servable import good_servable
from .requests import REQUEST_KINDS, change_array, change_array_of

NUMBERS, KEYS = 13, 26
LARGEST_FLOAT = float(np.finfo(np.float32).max)
FIELDS = [*(f"num_{n}" for n in range(NUMBERS)), *(f"cat_{n}" for n in range(KEYS))]
ODD: list[Any] = [
    *(None, "", -2, -2.0, -3, -2.5, 0, 1.5, 10**30, 2**70, 10**400, 1e38, 1e39, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), True, False, "7", "x", [], [1], {}, {"a": 1}),
    *("01234567", "ffffffff", "é", "\0", "x" * 70_000, 2**31, -(2**63), 2**64),
]
ARRAY_VALUES = [-1, 0, 1, 5, 10**6, 2**31 - 1, -3.5, float("nan"), float("inf"), float("-inf")]


class Rows:
    """Texts of rows that are not sent yet, and changes to the arrays of them."""

    def __init__(self, base: dict[str, Any]) -> None:
        """Draw good rows: some numbers are missing, some keys are unknown."""
        random = np.random.default_rng(base["seed"])
        self.texts = []
        for _ in range(base["sizes"]["events"]):
            row: dict[str, Any] = {}
            for name in FIELDS[:NUMBERS]:
                row[name] = None if random.random() < 0.1 else int(random.integers(-2, 1000))
            for name in FIELDS[NUMBERS:]:
                row[name] = f"{int(random.integers(0, 12)) * 0x1234567:08x}"
            self.texts.append(json.dumps(row).encode())
        self.arrays: list[dict[str, Any]] = []


def set_field(rows: Rows, event: int, field: int, value: Any) -> None:
    """Put another value in a field."""
    place = event % len(rows.texts)
    try:
        row = json.loads(rows.texts[place])
        row[FIELDS[field % len(FIELDS)]] = value
    except (ValueError, TypeError, RecursionError):
        return
    rows.texts[place] = json.dumps(row).encode()


ROW_KINDS = [
    MutationKind(
        "set a field",
        set_field,
        lambda r: {
            "event": int(r.integers(1 << 16)),
            "field": int(r.integers(len(FIELDS))),
            "value": pick(r, ODD),
        },
        6,
    ),
    *(kind for kind in REQUEST_KINDS if kind.change is not change_array),
    MutationKind(
        "change an array",
        change_array,
        lambda r: {
            "number": int(r.integers(1 << 16)),
            "how": pick(r, ["value", "value", "value", "dtype", "shape", "longer", "missing"]),
            "at": int(r.integers(1 << 16)),
            "value": pick(r, ARRAY_VALUES),
        },
        4,
    ),
]
KINDS = {kind.name: kind for kind in ROW_KINDS}


class ClickRequestFamily:
    """Cases on requests of rows, in this process."""

    name = "click requests"

    def prepare(self) -> None:
        """Read the vocabularies once."""
        from merlin_sim.serving.events.row_encoder import open_encoder
        from merlin_sim.serving.servables.servable import Servable

        servable = Servable.open(good_servable() / "click servable")
        self._encoder = open_encoder(servable)
        self._ids = {}
        for name in FIELDS[NUMBERS:]:
            table = pq.read_table(servable.path / "categories" / f"{name}.parquet").to_pydict()
            self._ids[name] = dict(zip(table["key"], table["id"], strict=True))

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw rows and up to two changes."""
        count = int(random.choice([0, 1, 2], p=[0.05, 0.6, 0.35]))
        base = {
            "seed": int(random.integers(1 << 30)),
            "sizes": {"events": int(random.integers(1, 5))},
        }
        return Plan(base, tuple(pick_kind(random, ROW_KINDS).drawn(random) for _ in range(count)))

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Change the texts and the arrays, and have both read."""
        rows = Rows(plan.base)
        for mutation in plan.mutations:
            KINDS[mutation.name].change(rows, **mutation.arguments)
        phase("rows")
        outcome = self._judge_rows(rows)
        if outcome.failed:
            return outcome
        phase("arrays")
        other = self._judge_arrays(Rows(plan.base), rows.arrays)
        return other if other.failed or other.kind == REFUSED else outcome

    def _judge_rows(self, rows: Rows) -> Outcome:
        tried = attempt(lambda: encoded_rows(self._encoder, rows.texts))
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        wanted = [self._wanted(text) for text in rows.texts]
        bad = [place for place, each in enumerate(wanted, start=1) if isinstance(each, str)]
        if tried.refusal is not None:
            if all(isinstance(each, dict) for each in wanted):
                return Outcome("refused a good row", tried.refusal[:300])
            if len(wanted) > 1 and not tried.refusal.startswith("event "):
                return Outcome("refused without the row", tried.refusal[:300])
            return Outcome(REFUSED, tried.refusal[:300])
        if bad:
            return Outcome("accepted a wrong row", f"row {bad[0]}: {wanted[bad[0] - 1]}")
        for place, (event, row) in enumerate(zip(tried.result, wanted, strict=True), start=1):
            fault = self._fault_of(event.targets, row)
            if fault:
                return Outcome("wrong values", f"row {place}: {fault}")
        return Outcome(READ)

    def _wanted(self, text: bytes) -> dict[str, Any] | str | None:
        """What a row becomes; what is wrong with it; None where it leaves any doubt."""
        try:
            row = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError):
            return "no JSON"
        if not isinstance(row, dict):
            return "no object"
        missing = [name for name in FIELDS if name not in row]
        if missing:
            return f"no {missing[0]}"
        values: dict[str, Any] = {}
        for name in FIELDS:
            found = self._value(name, row[name])
            if found is None or isinstance(found, str):
                return found
            values[name] = found
        return values

    def _value(self, name: str, value: Any) -> float | str | None:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if name in self._ids:
            if value is None or value == "":
                return 0
            if not isinstance(value, str):
                return f"{name}: the key {value!r:.40}"
            return int(self._ids[name].get(value, 0))
        if value is None:
            return 0.0
        if not plain:
            return f"{name}: the number {value!r:.40}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name}: {value}"
        if value < -2 or value > LARGEST_FLOAT:
            return f"{name}: {value!r:.40}"
        return math.log(value + 3)

    def _fault_of(self, found: dict[str, Any], wanted: Any) -> str:
        for column in self._encoder.columns.targets:
            (value,) = found[column.name].tolist()
            if column.largest_id is not None and not 0 <= value <= column.largest_id:
                return f"{column.name}: the id {value}"
            if not math.isfinite(value):
                return f"{column.name}: {value}"
            if wanted is not None and not math.isclose(
                value, wanted[column.name], rel_tol=1e-5, abs_tol=1e-6
            ):
                return f"{column.name}: {value}, not {wanted[column.name]}"
        return ""

    def _judge_arrays(self, good: Rows, changes: list[dict[str, Any]]) -> Outcome:
        from merlin_sim.serving.limits import Limits
        from merlin_sim.serving.scoring.ids_request import check_request

        columns = self._encoder.columns
        arrays = arrays_of(self._encoder, good.texts)
        for change in changes:
            change_array_of(arrays, **change)
        tried = attempt(lambda: check_request(arrays, columns, Limits()))
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        fault = _fault_of_arrays(arrays, columns)
        if tried.refusal is not None:
            if not fault:
                return Outcome("refused a good request", tried.refusal[:300])
            named = any(name in tried.refusal for name in columns.inputs)
            return Outcome(REFUSED if named else "refused without an input", tried.refusal[:300])
        return Outcome("accepted wrong values", fault) if fault else Outcome(READ)


def encoded_rows(encoder: Any, texts: list[bytes]) -> list[Any]:
    """Have rows read as serving reads them."""
    from merlin_sim.serving.workers.event_texts import encode_events

    return encode_events(encoder, np.array(texts, object).reshape(-1, 1))


def arrays_of(encoder: Any, texts: list[bytes]) -> dict[str, Any]:
    """The arrays that a request of these rows is to the model."""
    from merlin_sim.serving.scoring.signature_inputs import plain_batch

    return dict(plain_batch(encoded_rows(encoder, texts), encoder.columns))


def _fault_of_arrays(arrays: dict[str, Any], columns: Any) -> str:
    """What the model cannot take of a request of arrays."""
    lengths = set()
    for column in columns.targets:
        if column.name not in arrays:
            return f"{column.name}: missing"
        values = arrays[column.name]
        if values.dtype != column.dtype or values.ndim != 1:
            return f"{column.name}: {values.dtype}, shape {values.shape}"
        lengths.add(len(values))
        largest = column.largest_id
        if largest is not None and not ((values >= 0) & (values <= largest)).all():
            return f"{column.name}: {values}"
        if not np.isfinite(values).all():
            return f"{column.name}: {values}"
    return "" if len(lengths) == 1 else f"lengths {lengths}"
