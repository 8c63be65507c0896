"""The published log: a line ``DLLL {...}`` for each step, epoch and run, as DLLogger writes it.

    {"timestamp": ..., "datetime": ..., "elapsedtime": ..., "type": "LOG", "step": ..., "data": ...}

``step`` is [epoch, step] of a step, [epoch] of an epoch and [] of the run, each counted from 0.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

JSON, DLLOGGER = LOG_FORMATS = ("json", "dllogger")

Entry = dict[str, Any]

PREFIX = "DLLL "
UNITS = {
    "test_auc": None,
    "latency_p90": "ms",
    "train_loss": None,
    "time_to_train": "s",
    "throughput": "samples/s",
}
"""What the published log says of its metrics before all else."""
NAMES = {"seconds": "time"}
"""How values of ours are called there."""
PLACES = ("epoch", "step")
"""Values that stand in ``step``, not in ``data``."""


class PublishedLines:
    """Makes the lines of one log; time counts from its making."""

    def __init__(self) -> None:
        """Start the clock."""
        self.started = datetime.now()

    def head(self) -> list[str]:
        """Return the lines that tell the units."""
        return [
            self._line("METADATA", metric=metric, metadata={"unit": unit})
            for metric, unit in UNITS.items()
        ]

    def line(self, place: Sequence[int], values: Mapping[str, Any]) -> str:
        """Return the line of some values.

        Args:
            place: What becomes ``step``.
            values: By our names.
        """
        data = {
            NAMES.get(name, name): value for name, value in values.items() if name not in PLACES
        }
        return self._line("LOG", step=list(place), data=data)

    def _line(self, kind: str, **rest: Any) -> str:
        now = datetime.now()
        entry = {
            "timestamp": str(now.timestamp()),
            "datetime": str(now),
            "elapsedtime": str((now - self.started).total_seconds()),
            "type": kind,
            **rest,
        }
        return PREFIX + json.dumps(entry)


def own_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Turn the objects of published lines into the entries of our own log.

    >>> step = {"type": "LOG", "step": [1, 0], "data": {"total_loss": 0.5}}
    >>> end = {"type": "LOG", "step": [], "data": {"time_to_train": 9.0}}
    >>> for entry in own_entries([step, end]):
    ...     print(entry)
    {'type': 'step', 'epoch': 2, 'step': 2, 'total_loss': 0.5}
    {'type': 'result', 'time_to_train': 9.0}

    Raises:
        KeyError, TypeError, ValueError: Where one is not of that form.
    """
    logged = [
        (tuple(int(n) for n in entry["step"]), dict(entry["data"]))
        for entry in entries
        if entry["type"] == "LOG"
    ]
    steps_an_epoch = 1 + max((place[1] for place, _ in logged if len(place) == 2), default=0)
    return [_own(place, data, steps_an_epoch) for place, data in logged]


def _own(place: tuple[int, ...], data: Entry, steps_an_epoch: int) -> Entry:
    if not place:
        return {"type": "result", **data}
    if len(place) > 2:
        raise ValueError(place)
    epoch = {"epoch": place[0] + 1}
    if len(place) == 1:
        named = {"seconds": data.get("time"), "total_loss": data.get("train_loss")}
        return {"type": "epoch", **epoch, "step": epoch["epoch"] * steps_an_epoch, **named, **data}
    kind = "step" if "samples/s" in data or "total_loss" in data else "evaluation"
    return {"type": kind, **epoch, "step": place[0] * steps_an_epoch + place[1] + 1, **data}
