"""The attack on the published split_binary: what `transcode` makes of it is what numpy reads.

The files have no header: only their lengths and the spec say what a byte means.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import yaml

from ..attempt import Attempt, attempt
from ..datasets.clicks_form import CHANNELS, NUMBERS
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.file_mutations import FILE_KINDS
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan

CATEGORIES = {"site": (100, "int8"), "device": (7, "int16"), "city": (40_000, "int32")}
STEMS = {"clicked": ["clicked"], "numerical": NUMBERS, **{name: [name] for name in CATEGORIES}}
MAPPINGS = ("train", "test")
SPEC = "feature_spec.yaml"
TYPES = {
    **{name: name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")},
    **{"float16": "float16", "float32": "float32", "float64": "float64", "bool": "uint8"},
}
ODD_TYPES = [*TYPES, "string", "complex64", "datetime64[s]", "", 7, None]


def plain_spec() -> dict[str, Any]:
    """The spec as YAML holds it."""
    features: dict[str, Any] = {"clicked": {"dtype": "bool"}}
    features |= {name: {"dtype": "float16"} for name in NUMBERS}
    for name, (cardinality, dtype) in CATEGORIES.items():
        features[name] = {"dtype": dtype, "cardinality": cardinality}
    sources = {
        mapping: [
            {"type": "split_binary", "features": names, "files": [f"{mapping}/{stem}.bin"]}
            for stem, names in STEMS.items()
        ]
        for mapping in MAPPINGS
    }
    channels = {**CHANNELS, "categorical": list(CATEGORIES)}
    return {"feature_spec": features, "source_spec": sources, "channel_spec": channels}


def write(directory: Path, base: dict[str, Any]) -> None:
    """Write a good directory."""
    random = np.random.default_rng(base["seed"])
    for mapping, rows in zip(MAPPINGS, base["sizes"]["rows"], strict=True):
        (directory / mapping).mkdir()
        arrays = {
            "clicked": random.integers(0, 2, rows).astype(np.uint8),
            "numerical": random.standard_normal((rows, len(NUMBERS))).astype(np.float16),
        }
        for name, (cardinality, dtype) in CATEGORIES.items():
            arrays[name] = random.integers(0, cardinality, rows).astype(dtype)
        for stem, array in arrays.items():
            array.tofile(directory / mapping / f"{stem}.bin")
    (directory / SPEC).write_text(yaml.safe_dump(plain_spec(), sort_keys=False))


def state(directory: Path, feature: str, key: str, value: Any) -> None:
    """Say something else of a feature: its type, its cardinality."""
    try:
        spec = yaml.safe_load((directory / SPEC).read_bytes())
        spec["feature_spec"][feature][key] = value
    except (OSError, yaml.YAMLError, LookupError, TypeError, RecursionError):
        return
    (directory / SPEC).write_text(yaml.safe_dump(spec, sort_keys=False))


def change_length(directory: Path, mapping: str, stem: str, size: int) -> None:
    """Take bytes from a file's end, or add some."""
    path = directory / mapping / f"{stem}.bin"
    if path.is_file():
        content = path.read_bytes()
        path.write_bytes(content[:size] if size < 0 else content + bytes(size))


def set_bytes(directory: Path, mapping: str, stem: str, at: int, value: bytes | list[int]) -> None:
    """Put other bytes somewhere."""
    path = directory / mapping / f"{stem}.bin"
    if path.is_file() and (content := bytearray(path.read_bytes())):
        at %= len(content)
        content[at : at + len(value)] = bytes(value)[: len(content) - at]
        path.write_bytes(content)


Random = np.random.Generator


def _file(random: Random) -> dict[str, Any]:
    return {"mapping": pick(random, MAPPINGS), "stem": pick(random, list(STEMS))}


def _feature(random: Random) -> str:
    return pick(random, ["clicked", *NUMBERS, *CATEGORIES])


OWN_KINDS = [
    MutationKind(
        "state a type",
        state,
        lambda r: {"feature": _feature(r), "key": "dtype", "value": pick(r, ODD_TYPES)},
        3,
    ),
    MutationKind(
        "state a cardinality",
        state,
        lambda r: {
            "feature": pick(r, list(CATEGORIES)),
            "key": "cardinality",
            "value": pick(r, [1, 6, 8, 99, 128, 129, 2**15, 2**31, 0, -1, "auto", None, 1.5]),
        },
        2,
    ),
    MutationKind(
        "change a length",
        change_length,
        lambda r: {**_file(r), "size": pick(r, [-4, -3, -2, -1, 1, 2, 3, 4, 100])},
        3,
    ),
    MutationKind(
        "set bytes",
        set_bytes,
        lambda r: {
            **_file(r),
            "at": int(r.integers(1 << 20)),
            "value": pick(r, [[255], [2], [0, 124], [127] * 4, [0, 128], [0] * 8]),
        },
        4,
    ),
]
SPLIT_KINDS = [*OWN_KINDS, *FILE_KINDS]
KINDS = {kind.name: kind for kind in SPLIT_KINDS}


class SplitBinaryFamily:
    """Cases on directories of split_binary."""

    name = "split_binary"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        from merlin_sim.workflows.transcoding import transcode  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw a directory and up to three changes."""
        count = int(random.choice([0, 1, 2, 3], p=[0.05, 0.5, 0.3, 0.15]))
        rows = [int(random.integers(1, 300)) for _ in MAPPINGS]
        base = {"seed": int(random.integers(1 << 30)), "sizes": {"rows": rows}}
        kinds = tuple(
            pick_kind(random, OWN_KINDS if random.random() < 0.6 else FILE_KINDS).drawn(random)
            for _ in range(count)
        )
        return Plan(base, kinds)

    def write(self, plan: Plan, directory: Path) -> None:
        """Write the directory of a plan."""
        write(directory, plan.base)
        for mutation in plan.mutations:
            KINDS[mutation.name].change(directory, **mutation.arguments)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write, transcode there and back, compare."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory, parquet, back = (Path(parent) / name for name in ("d", "parquet", "back"))
            directory.mkdir()
            self.write(plan, directory)
            phase("transcode")
            tried = attempt(lambda: transcode(directory, parquet, "parquet"))
            phase("truth")
            outcome, wanted = _judged(directory, parquet, plan, tried)
            if outcome.kind != READ:
                return outcome
            phase("back")
            tried = attempt(lambda: transcode(parquet, back, "split_binary"))
            if tried.fault is not None or tried.refusal is not None:
                return _judged_back(tried, wanted)
            return outcome if _same(_read(back)[0], wanted) else Outcome("other rows back", "")


def transcode(source: Path, output: Path, form: str) -> None:
    """Do what the command does."""
    from merlin_sim.foundation.progress import Silence
    from merlin_sim.schemas.specs.spec_file import read_spec
    from merlin_sim.workflows.transcoding.transcode import Transcoder

    Transcoder(read_spec(source / SPEC), source, Silence(), form).transcode(output)


Rows = dict[tuple[str, str], np.ndarray]
"""By mapping and feature."""


def _read(directory: Path) -> tuple[Rows, str, str]:
    """Give the rows, what is wrong with them, and whether the row (from 1) has to be named."""
    rows: Rows = {}
    spec = yaml.safe_load((directory / SPEC).read_bytes())
    for mapping, chunks in spec["source_spec"].items():
        for chunk in chunks:
            (file,) = chunk["files"]
            stated = [spec["feature_spec"][name]["dtype"] for name in chunk["features"]]
            if len(set(stated)) > 1 or stated[0] not in TYPES:
                return rows, f"{file}: the types {stated}", ""
            dtype, count = np.dtype(TYPES[stated[0]]), len(stated)
            content = (directory / file).read_bytes()
            if len(content) % (dtype.itemsize * count):
                return rows, f"{file}: {len(content)} bytes", ""
            values = np.frombuffer(content, dtype).reshape(-1, count)
            for place, name in enumerate(chunk["features"]):
                rows[mapping, name] = values[:, place]
    fault = _fault_of(rows, spec)
    return rows, *fault


def _fault_of(rows: Rows, spec: dict[str, Any]) -> tuple[str, str]:
    for mapping in spec["source_spec"]:
        lengths = {len(values) for (of, _), values in rows.items() if of == mapping}
        if len(lengths) > 1:
            return f"{mapping}: {lengths} rows", ""
    for (mapping, name), values in rows.items():
        stated = spec["feature_spec"][name]
        largest = stated.get("cardinality")
        if isinstance(largest, int):
            if values.dtype.kind in "iu" and largest > np.iinfo(values.dtype).max + 1:
                return f"{name}: {largest} in {values.dtype}", ""
            wrong = (values < 0) | (values >= largest)
        elif largest is not None:
            wrong = values < 0
        else:
            wrong = (values > 1) if stated["dtype"] == "bool" else np.zeros(len(values), bool)
        if wrong.any():
            rows_at_fault = ",".join(str(row + 1) for row in np.flatnonzero(wrong))
            return f"{mapping}: {name}: {values[wrong][0]}", rows_at_fault
    return "", ""


def _judged(directory: Path, parquet: Path, plan: Plan, tried: Attempt) -> tuple[Outcome, Rows]:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault), {}
    try:
        wanted, fault, at = _read(directory)
    except Exception as error:
        wanted, fault, at = {}, f"{type(error).__name__}: {error!s:.200}", ""
    if tried.refusal is not None:
        if str(directory) not in tried.refusal:
            return Outcome("refused without a file", tried.refusal[:300]), wanted
        if not plan.mutations:
            return Outcome("refused a good file", tried.refusal[:300]), wanted
        said = set(re.findall(r"row (\d+)", tried.refusal))
        about_rows = at and SPEC not in tried.refusal and len(plan.mutations) == 1
        if about_rows and not said & set(at.split(",")):
            return Outcome("refused without the row", f"{tried.refusal[:300]} {fault}"), wanted
        return Outcome(REFUSED, tried.refusal[:300]), wanted
    if fault:
        return Outcome("accepted wrong data", fault), wanted
    spec = yaml.safe_load((parquet / SPEC).read_bytes())
    found: Rows = {}
    for mapping, (chunk,) in spec["source_spec"].items():
        table = [pq.read_table(parquet / file) for file in chunk["files"]]
        for name in chunk["features"]:
            found[mapping, name] = np.concatenate([np.asarray(part[name]) for part in table])
    same = _same(found, wanted)
    return (Outcome(READ) if same else Outcome("wrong values", "")), wanted


def _same(found: Rows, wanted: Rows) -> bool:
    return found.keys() == wanted.keys() and all(
        np.array_equal(found[place].astype(np.float64), values.astype(np.float64), equal_nan=True)
        for place, values in wanted.items()
    )


def _judged_back(tried: Attempt, wanted: Rows) -> Outcome:
    """Other labels, numbers that float16 does not hold, and what is not counted may be refused."""
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    numbers = [wanted[mapping, name] for mapping in MAPPINGS for name in NUMBERS]
    with np.errstate(over="ignore"):
        finite = all(np.isfinite(values.astype(np.float16)).all() for values in numbers)
    labels = all(np.isin(wanted[mapping, "clicked"], (0, 1)).all() for mapping in MAPPINGS)
    whole = all(wanted[m, name].dtype.kind in "iu" for m in MAPPINGS for name in CATEGORIES)
    good = finite and labels and whole and "cardinality" not in str(tried.refusal)
    kind = "refused a good file" if good else REFUSED
    return Outcome(kind, str(tried.refusal)[:300])
