"""The attack on requests: events and ids, as serving reads them before it asks the model.

A good event is answered with the ids that its keys have in the vocabularies; anything else is
refused, or gives ids that the model has.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ..attempt import attempt
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.byte_mutations import changed, drawn_change
from ..mutations.file_mutations import ODD_VALUES, nodes_of
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .good_servable import good_servable

VALUES: list[Any] = [
    *ODD_VALUES,
    *("i3", "u1", "none", "\0", "é\u2028", float("nan"), {"item": "i1"}, ["i1"] * 20_000, [[]]),
]


class Requests:
    """Texts of events that are not sent yet, and the inputs of a request of ids."""

    def __init__(self, base: dict[str, Any], user: str) -> None:
        """Draw good events."""
        random = np.random.default_rng(base["seed"])
        self.texts = []
        for _ in range(base["sizes"]["events"]):
            items = [f"i{int(item)}" for item in random.integers(0, 14, 9)]
            count = int(random.integers(0, 7))
            event = {user: f"u{int(random.integers(14))}"}
            event |= {"history": items[:count], "candidates": items[count:]}
            self.texts.append(json.dumps(event).encode())
        self.arrays: list[dict[str, Any]] = []
        """Changes to the arrays."""


def change_node(requests: Requests, event: int, node: int, change: str, value: Any) -> None:
    """Change one node of an event."""
    event %= len(requests.texts)
    try:
        tree = json.loads(requests.texts[event])
        nodes = list(nodes_of(tree))
    except (ValueError, TypeError, RecursionError):
        return
    if not nodes:
        return
    holder, key = nodes[node % len(nodes)]
    if change == "remove":
        del holder[key]
    elif change == "repeat" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[key] = value
    requests.texts[event] = json.dumps(tree).encode()


def change_text(
    requests: Requests, event: int, change: str, at: int, count: int, value: int
) -> None:
    """Change an event's bytes."""
    event %= len(requests.texts)
    content = bytearray(requests.texts[event])
    if content:
        changed(content, at % len(content), change, count, value)
    requests.texts[event] = bytes(content)


def put_text(requests: Requests, event: int, text: str) -> None:
    """Put another text in an event's place."""
    requests.texts[event % len(requests.texts)] = TEXTS[text]


def change_array(requests: Requests, **change: Any) -> None:
    """Change one input of the request of ids."""
    requests.arrays.append(change)


TEXTS: dict[str, bytes] = {
    "nothing": b"",
    "brackets": b"[" * 200_000,
    "braces": b'{"a":' * 100_000,
    "a list": b"[]",
    "a number": b"1" * 5000,
    "not utf-8": b"\xff\xfe",
    "a surrogate": b'{"user": "\\ud800", "history": [], "candidates": ["\\ud800"]}',
}
Random = np.random.Generator
Draw = Callable[[Random], dict[str, Any]]


def _with(draw: Draw) -> Draw:
    return lambda random: {"event": int(random.integers(1 << 16)), **draw(random)}


REQUEST_KINDS = [
    MutationKind(
        "change a node",
        change_node,
        _with(
            lambda r: {
                "node": int(r.integers(1 << 16)),
                "change": pick(r, ["remove", "repeat", "replace", "replace"]),
                "value": pick(r, VALUES),
            }
        ),
        5,
    ),
    MutationKind("change the text", change_text, _with(drawn_change), 2),
    MutationKind("put a text", put_text, _with(lambda r: {"text": pick(r, list(TEXTS))}), 1),
    MutationKind(
        "change an array",
        change_array,
        lambda r: {
            "number": int(r.integers(1 << 16)),
            "how": pick(r, ["value", "value", "dtype", "shape", "longer", "shorter", "missing"]),
            "at": int(r.integers(1 << 16)),
            "value": pick(r, [-1, 0, 1, 5, 13, 10**6, -(2**31), 2**31 - 1]),
        },
        4,
    ),
]
KINDS = {kind.name: kind for kind in REQUEST_KINDS}


class RequestFamily:
    """Cases on requests, in this process."""

    name = "requests"

    def prepare(self) -> None:
        """Read the vocabularies once."""
        from merlin_sim.serving.events.event_encoder import EventEncoder
        from merlin_sim.serving.servables.servable import Servable

        servable = Servable.open(good_servable() / "servable")
        self._encoder = EventEncoder(servable)
        self._ids = {}
        for column in (*self._encoder.columns.users, self._encoder.columns.targets[0]):
            table = pq.read_table(servable.path / "categories" / f"{column.domain}.parquet")
            keys = table["key"].to_pylist()
            self._ids[column.name] = dict(zip(keys, table["id"].to_pylist(), strict=True))

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw events and up to two changes."""
        count = int(random.choice([0, 1, 2], p=[0.05, 0.6, 0.35]))
        base = {
            "seed": int(random.integers(1 << 30)),
            "sizes": {"events": int(random.integers(1, 5))},
        }
        kinds = tuple(pick_kind(random, REQUEST_KINDS).drawn(random) for _ in range(count))
        return Plan(base, kinds)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Change the texts and the arrays, and have both read."""
        user = self._encoder.columns.users[0].name
        requests = Requests(plan.base, user)
        for mutation in plan.mutations:
            KINDS[mutation.name].change(requests, **mutation.arguments)
        phase("events")
        outcome = self._judge_events(requests)
        if outcome.failed:
            return outcome
        phase("ids")
        other = self._judge_ids(Requests(plan.base, user), requests.arrays)
        return other if other.failed or other.kind == REFUSED else outcome

    def _judge_events(self, requests: Requests) -> Outcome:
        from merlin_sim.serving.workers.event_texts import encode_events

        texts = np.array(requests.texts, object).reshape(-1, 1)
        tried = attempt(lambda: encode_events(self._encoder, texts))
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        wanted = [self._wanted(text) for text in requests.texts]
        if tried.refusal is not None:
            if all(each is not None for each in wanted):
                return Outcome("refused a good event", tried.refusal[:300])
            bad = min(place for place, each in enumerate(wanted, start=1) if each is None)
            # An event that leaves a doubt may be answered: the first that is refused is named.
            if len(wanted) > 1 and f"event {bad}" > tried.refusal[: len(f"event {bad}")]:
                return Outcome("refused without the event", tried.refusal[:300])
            return Outcome(REFUSED, tried.refusal)
        return self._compared(tried.result, wanted)

    def _compared(self, found: list[Any], wanted: list[Any]) -> Outcome:
        columns = self._encoder.columns
        for place, (event, ids) in enumerate(zip(found, wanted, strict=True), start=1):
            got = [event.users, event.histories, event.targets]
            lists = [group[columns_[0].name].tolist() for group, columns_ in zip(
                got, (columns.users, columns.histories, columns.targets), strict=True)]  # fmt: skip
            if ids is not None and lists != ids:
                return Outcome("wrong ids", f"event {place}: {lists}, by arrow {ids}")
            for column in (*columns.users, *columns.histories, *columns.targets):
                values = {**event.users, **event.histories, **event.targets}[column.name]
                largest = column.largest_id
                if largest is not None and not ((values >= 0) & (values <= largest)).all():
                    return Outcome("an id beyond", f"event {place}: {column.name}: {values}")
        return Outcome(READ)

    def _wanted(self, text: bytes) -> list[list[int]] | None:
        """User, history and candidates of an event as ids; None where it leaves any doubt."""
        columns = self._encoder.columns
        user, item = columns.users[0].name, columns.targets[0].name
        try:
            event = json.loads(text.decode("utf-8"))
            keys = [event[user]]
            history, candidates = event["history"], event["candidates"]
        except (ValueError, TypeError, LookupError, RecursionError):
            return None
        plain = isinstance(history, list) and isinstance(candidates, list)
        if not plain or not all(type(k) is str and k for k in (*keys, *history, *candidates)):
            return None
        if max(len(history), len(candidates)) > 10_000:
            return None
        seen = [self._ids[item][key] for key in history if key in self._ids[item]]
        return [
            [self._ids[user].get(keys[0], 0)],
            seen[-columns.longest :],
            [self._ids[item].get(key, 0) for key in candidates],
        ]

    def _judge_ids(self, good: Requests, changes: list[dict[str, Any]]) -> Outcome:
        from merlin_sim.serving.limits import Limits
        from merlin_sim.serving.scoring.ids_request import check_request
        from merlin_sim.serving.scoring.signature_inputs import plain_batch
        from merlin_sim.serving.workers.event_texts import encode_events

        columns = self._encoder.columns
        texts = np.array(good.texts, object).reshape(-1, 1)
        arrays: dict[str, Any] = dict(plain_batch(encode_events(self._encoder, texts), columns))
        for change in changes:
            change_array_of(arrays, **change)
        tried = attempt(lambda: check_request(arrays, columns, Limits()))
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        if tried.refusal is not None:
            kind = REFUSED if changes else "refused a good request"
            names = ["the user's columns", *(name.partition("__")[0] for name in columns.inputs)]
            named = any(name in tried.refusal for name in names)
            return Outcome(kind if named else "refused without an input", tried.refusal[:300])
        fault = _fault_of(arrays, columns)
        return Outcome("accepted wrong ids", fault) if fault else Outcome(READ)


def change_array_of(arrays: dict[str, Any], number: int, how: str, at: int, value: float) -> None:
    """Change one of the arrays of a request."""
    if not arrays:
        return
    name = sorted(arrays)[number % len(arrays)]
    array = np.array(arrays[name])
    if how == "missing":
        del arrays[name]
    elif how == "dtype":
        kinds = ["float32", "int32", "int64", "object", "bool"]
        arrays[name] = array.astype(kinds[at % len(kinds)])
    elif how == "shape":
        arrays[name] = array.reshape(1, *array.shape) if at % 2 else array.reshape(*array.shape, 1)
    elif how == "longer":
        arrays[name] = np.concatenate([array, array[-1:]])
    elif how == "shorter":
        arrays[name] = array[:-1]
    elif array.size and array.dtype.kind in ("f" if isinstance(value, float) else "if"):
        array.flat[at % array.size] = value
        arrays[name] = array


def _fault_of(arrays: dict[str, Any], columns: Any) -> str:
    """What the model could not take of a request that was accepted."""
    rows = len(arrays[columns.targets[0].name])
    for column in (*columns.users, *columns.targets):
        if not _within(arrays[column.name], column.largest_id):
            return f"{column.name}: {arrays[column.name]}"
        if len(arrays[column.name]) not in (1, rows):
            return f"{column.name}: {len(arrays[column.name])} rows, {rows} candidates"
    starts = []
    for column in columns.histories:
        values, offsets = arrays[f"{column.name}__values"], arrays[f"{column.name}__offsets"]
        starts.append(offsets.tolist())
        if not _within(values, column.largest_id):
            return f"{column.name}: {values}"
        if offsets[0] != 0 or offsets[-1] != len(values) or (np.diff(offsets) < 0).any():
            return f"{column.name}: offsets {offsets} of {len(values)} values"
    return "" if all(each == starts[0] for each in starts) else f"offsets {starts}"


def _within(ids: Any, largest: int | None) -> bool:
    return bool(largest is None or ((ids >= 0) & (ids <= largest)).all())
