"""Log of a run: log.json for programs, one live line per epoch for a person, TensorBoard.

The published log is a line ``DLLL {...}`` for each step, epoch and run, as DLLogger writes it:

    {"timestamp": ..., "datetime": ..., "elapsedtime": ..., "type": "LOG", "step": ..., "data": ...}

``step`` is [epoch, step] of a step, [epoch] of an epoch and [] of the run, each counted from 0.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from ..foundation.exceptions import MerlinSimError
from ..foundation.files import writing
from ..foundation.progress import StepsLine, steps_line

LOG, EVALUATION, RUN_METADATA = "log.json", "evaluation.json", "run.json"
"""Files of a results directory."""
JSON, DLLOGGER = LOG_FORMATS = ("json", "dllogger")

Entry = dict[str, Any]

PREFIX = "DLLL "
LOOKED_AT = 1 << 16
"""Bytes of a log that are looked at together for its last line."""
UNITS = {
    "test_auc": None,
    "latency_p90": "ms",
    "train_loss": None,
    "time_to_train": "s",
    "throughput": "samples/s",
}
"""The metadata of metrics with which the published log begins."""
NAMES = {"seconds": "time"}
"""How values of ours are called there."""
POSITION = ("epoch", "step")
"""Values that stand in ``step``, not in ``data``."""


class PublishedLines:
    """Makes the lines of one log; time counts from its making."""

    def __init__(self) -> None:
        self.started = datetime.now()

    def head(self) -> list[str]:
        """Return the lines that give the units."""
        return [
            self._line("METADATA", metric=metric, metadata={"unit": unit})
            for metric, unit in UNITS.items()
        ]

    def line(self, position: Sequence[int], values: Mapping[str, Any]) -> str:
        """Return the line of some values."""
        data = {
            NAMES.get(name, name): value for name, value in values.items() if name not in POSITION
        }
        return self._line("LOG", step=list(position), data=data)

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
    steps_an_epoch = 1 + max(
        (position[1] for position, _ in logged if len(position) == 2), default=0
    )
    return [_own(position, data, steps_an_epoch) for position, data in logged]


def _own(position: tuple[int, ...], data: Entry, steps_an_epoch: int) -> Entry:
    if not position:
        return {"type": "result", **data}
    if len(position) > 2:
        raise ValueError(position)
    epoch = {"epoch": position[0] + 1}
    if len(position) == 1:
        named = {"seconds": data.get("time"), "total_loss": data.get("train_loss")}
        return {"type": "epoch", **epoch, "step": epoch["epoch"] * steps_an_epoch, **named, **data}
    kind = "step" if "samples/s" in data or "total_loss" in data else "evaluation"
    return {"type": kind, **epoch, "step": position[0] * steps_an_epoch + position[1] + 1, **data}


def whole_lines(path: Path) -> int:
    """Count the bytes of a log's lines, without one that a killed run or a full disk left."""
    with open(path, "rb") as file:
        begin = os.fstat(file.fileno()).st_size
        while begin > 0:
            end, begin = begin, max(0, begin - LOOKED_AT)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
    return 0


def _end_with_a_line(path: Path) -> None:
    """Cut off the part of a line that stands at the end; a whole one without an end gets it."""
    if not path.exists():
        return
    end = whole_lines(path)
    with open(path, "rb+") as file:
        rest = os.pread(file.fileno(), os.fstat(file.fileno()).st_size - end, end)
        if not rest:
            return
        try:
            json.loads(rest.removeprefix(PREFIX.encode()))
        except ValueError:
            file.truncate(end)
        else:
            file.seek(0, os.SEEK_END)
            file.write(b"\n")


class RunLog:
    """Writes what happens; only the first rank has one that writes.

    Without ``results_dir`` it writes nothing and says nothing. A resumed run appends. A person
    reads ``stream``, standard output by default. ``tensorboard`` writes summaries to
    ``results_dir/tensorboard`` too; of the format ``dllogger`` the file has the published lines.
    """

    def __init__(
        self,
        results_dir: Path | None,
        filename: str = LOG,
        tensorboard: bool = False,
        append: bool = False,
        stream: TextIO | None = None,
        log_format: str = JSON,
    ) -> None:
        self.path = results_dir / filename if results_dir else None
        self._file: TextIO | None = None
        self._reported: set[str] = set()
        self._writer: Any = None
        self._published = PublishedLines() if log_format == DLLOGGER else None
        self.console = Console(
            file=stream or sys.stdout, quiet=results_dir is None, highlight=False, soft_wrap=True
        )
        if results_dir is None or self.path is None:
            return
        with writing(results_dir):
            results_dir.mkdir(parents=True, exist_ok=True)
            if append:
                _end_with_a_line(self.path)
            self._file = open(self.path, "a" if append else "w", encoding="utf-8")
        if self._published is not None:
            self._write_lines(self._published.head())
        if tensorboard:
            self._summaries = results_dir / "tensorboard"
            self._writer = self._open_summaries()

    def write(self, kind: str, position: Sequence[int] = (), /, **values: Any) -> None:
        """Append one JSON object; numbers also go to TensorBoard under their step.

        ``position`` is the published log's ``step``: epoch and step, epoch, or nothing.
        """
        if self._file is None:
            return
        plain = {key: _plain(value) for key, value in values.items()}
        entry = {"type": kind, **plain}
        published = self._published
        line = json.dumps(entry) if published is None else published.line(position, plain)
        self._write_lines([line])
        if self._writer is not None:
            self._summarize(kind, entry)

    def _write_lines(self, lines: list[str]) -> None:
        assert self._file is not None and self.path is not None
        with writing(self.path):
            self._file.writelines(f"{line}\n" for line in lines)
            self._file.flush()

    def _open_summaries(self) -> Any:
        import tensorflow as tf

        with self._writing_summaries():
            return tf.summary.create_file_writer(str(self._summaries))

    def _summarize(self, kind: str, entry: dict[str, Any]) -> None:
        import tensorflow as tf

        step = int(entry.get("step", entry.get("epoch", 0)) or 0)
        with self._writing_summaries(), self._writer.as_default():
            for name, value in entry.items():
                if isinstance(value, int | float) and name not in ("step", "epoch"):
                    tf.summary.scalar(f"{kind}/{name}", value, step=step)
            self._writer.flush()

    @contextlib.contextmanager
    def _writing_summaries(self) -> Iterator[None]:
        """Turn TensorFlow's error of a directory or disk into ours."""
        import tensorflow as tf

        try:
            yield
        except tf.errors.OpError as error:
            reason = error.message.splitlines()[0].split("}} ")[-1]
            raise MerlinSimError(f"{self._summaries}: cannot be written: {reason}") from error

    def say(self, message: str) -> None:
        """Show the person one line."""
        self.console.print(message, markup=False)

    def say_once(self, message: str) -> None:
        """Show the person one line, if it was not shown yet."""
        if message not in self._reported:
            self._reported.add(message)
            self.say(message)

    def close(self) -> None:
        """Close the files."""
        file, self._file = self._file, None
        if file is not None and self.path is not None:
            with writing(self.path):  # what could not be written before is tried once more
                file.close()
        if self._writer is not None:
            with self._writing_summaries():
                self._writer.close()

    def progress(self, title: str, steps: int, done: int = 0) -> AbstractContextManager[StepsLine]:
        """Show how far a pass has come: live on a terminal, now and then in a log."""
        return steps_line(self.console, title, steps, done)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no NaN
    return value
