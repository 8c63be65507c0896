"""What files in csv and tfrecord hold, read once more: by the csv module, and by checksums."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from .tfrecords import BadRecord, decoded, unframed
from .transcodes import SPEC

MAPPINGS = ("train", "test")


Rows = list[dict[str, Any]]


class Truth:
    """What the files hold, what is wrong with them, and what leaves a doubt."""

    def __init__(self, directory: Path) -> None:
        """Read everything."""
        self.columns: dict[tuple[str, str], list[Any]] = {}
        self.faults: list[str] = []
        self.rows: list[tuple[str, int]] = []
        """File and row or record (from 1) of what must be refused."""
        self.doubts: list[str] = []
        try:
            self._spec = yaml.safe_load((directory / SPEC).read_bytes())
            for mapping in MAPPINGS:
                self._read_mapping(directory, mapping)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error!s:.200}")

    def _read_mapping(self, directory: Path, mapping: str) -> None:
        lengths = set()
        for chunk in self._spec["source_spec"][mapping]:
            (name,) = chunk["files"]
            content = (directory / name).read_bytes()
            read = self._read_csv if chunk["type"] == "csv" else self._read_records
            columns = read(name, content, chunk["features"])
            for feature, cells in columns.items():
                self.columns[mapping, feature] = cells
                lengths.add(len(cells))
                for row, cell in enumerate(cells, start=1):
                    self._check(name, row, feature, cell)
        if len(lengths) > 1 and not self.rows and not self.doubts:
            self.faults.append(f"{mapping}: {lengths} rows")
        if lengths == {0}:
            self.doubts.append(f"{mapping}: no rows")

    def _stated(self, feature: str) -> dict[str, Any]:
        stated: dict[str, Any] = self._spec["feature_spec"][feature]
        return stated

    def _read_csv(self, name: str, content: bytes, features: list[str]) -> dict[str, list[Any]]:
        text = content.decode("utf-8")
        if '"' in text or "\r" in text or "\0" in text:
            self.doubts.append("quotes")
        columns: dict[str, list[Any]] = {feature: [] for feature in features}
        lines = [line for line in csv.reader(io.StringIO(text)) if line]
        for row, line in enumerate(lines, start=1):
            if len(line) != len(features):
                self.rows.append((name, row))
                continue
            for feature, cell in zip(features, line, strict=True):
                columns[feature].append(self._number(name, row, feature, cell))
        return columns

    def _number(self, name: str, row: int, feature: str, cell: str) -> Any:
        dtype = str(self._stated(feature)["dtype"])
        if re.fullmatch(r"-?(0|[1-9][0-9]*)", cell) and cell != "-0":
            return int(cell) if dtype.startswith(("int", "uint", "bool")) else float(cell)
        if re.fullmatch(r"-?[0-9]+\.[0-9]+(e-?[0-9]{1,2})?", cell):
            if dtype.startswith("float"):
                return float(cell)
            self.rows.append((name, row))
        elif not cell or re.fullmatch(r"[xé]+", cell):
            self.rows.append((name, row))
        else:
            self.doubts.append(f"{feature}: {cell!r:.40}")
        return None

    def _read_records(self, name: str, content: bytes, features: list[str]) -> dict[str, list[Any]]:
        columns: dict[str, list[Any]] = {feature: [] for feature in features}
        try:
            records = unframed(content)
        except BadRecord as error:
            self.rows.append((name, int(re.findall(r"\d+", str(error))[0])))
            return columns
        for number, record in enumerate(records, start=1):
            try:
                stored = decoded(record)
            except Exception:
                self.rows.append((name, number))
                continue
            if set(features) - set(stored):
                self.rows.append((name, number))
                continue
            self._take(name, number, stored, columns)
        return columns

    def _take(
        self, name: str, number: int, stored: dict[str, tuple[str, list[Any]]],
        columns: dict[str, list[Any]],
    ) -> None:  # fmt: skip
        singles = [f for f in columns if not self._stated(f).get("dimensions")]
        samples = {len(stored[feature][1]) for feature in singles}
        if len(samples) != 1 or samples == {0}:
            self.rows.append((name, number))
            return
        (count,) = samples
        for feature, cells in columns.items():
            kind, values = stored[feature]
            wanted = "float" if str(self._stated(feature)["dtype"]).startswith("float") else "int64"
            if values and kind != wanted:
                self.rows.append((name, number))
            dimensions = self._stated(feature).get("dimensions")
            if not dimensions:
                cells += values
                continue
            (longest,) = dimensions
            if count > 1 and len(values) != count * longest:
                self.rows.append((name, number))
                values = values[:0] + [0] * (count * longest)
            step = longest if count > 1 else max(1, len(values))
            pieces = [values[at : at + step] for at in range(0, len(values), step)] or [[]]
            cells += pieces

    def _check(self, name: str, row: int, feature: str, cell: Any) -> None:
        if cell is None:
            return
        fault = self._fault_of(feature, cell)
        if fault:
            # A record of many samples is named by its number, a row by its own.
            self.rows.append((name, row))
            self.faults.append(f"{name}, row {row}: {feature}: {fault}")

    def _fault_of(self, feature: str, cell: Any) -> str:
        stated = self._stated(feature)
        channels = self._spec["channel_spec"]
        values = cell if isinstance(cell, list) else [cell]
        if stated.get("dimensions") and len(values) > stated["dimensions"][0]:
            return f"{len(values)} values"
        dtype, largest = str(stated["dtype"]), stated.get("cardinality")
        first = 0 if "categorical" in channels else -1
        for value in values:
            if isinstance(value, float) and not math.isfinite(value):
                return f"{value}"
            if feature in channels["label"] and value not in (0, 1):
                return f"the label {value}"
            if dtype.startswith(("int", "uint")) and isinstance(value, int):
                limits = np.iinfo(dtype)
                if not limits.min <= value <= limits.max:
                    return f"{value} as {dtype}"
            if isinstance(largest, int) and not 0 <= value < largest - first:
                return f"the id {value} of {largest}"
            if largest == "auto" and value < 0:
                return f"the id {value}"
            if feature in channels.get("numerical", ()) and abs(value) > np.finfo(np.float32).max:
                return f"{value} in 32 bits"
        return ""
