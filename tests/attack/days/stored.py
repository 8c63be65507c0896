"""The rows of a dataset directory, ids turned back into keys, beside those that were expected."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from .expected import Sample
from .shop import ITEM, TIME, USER, Shop

MAPPINGS = ("train", "validation", "test")
TOLERANCE = 2e-4
"""Numbers are stored in 32 bits."""


def stored_samples(dataset: Path, samples: Path, shop: Shop) -> list[Sample]:
    """Read all rows; of a log without labels the positive ones alone, the others are drawn.

    Args:
        dataset: Where the vocabularies are.
        samples: Where the rows are.
        shop: What the dataset holds.
    """
    domains = [USER, ITEM, *(n for n in ("age", "size", "genres") if n in shop.stated)]
    keys: dict[str, dict[int, Any]] = {}
    for name in domains:
        table = pq.read_table(dataset / "categories" / f"{name}.parquet").to_pydict()
        keys[name] = dict(zip(table["id"], table["key"], strict=True))
    found = []
    for mapping in MAPPINGS:
        for path in sorted((samples / mapping).glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                if row["label"] or shop.labelled:
                    found.append(_sample(mapping, row, keys, shop))
    return found


def _sample(
    mapping: str, row: dict[str, Any], keys: dict[str, dict[int, Any]], shop: Shop
) -> Sample:
    items = keys[ITEM]
    history = [items[each] for each in row[f"{ITEM}_pos"]]
    facts: list[Any] = [mapping, keys[USER].get(row[USER]), items[row[f"{ITEM}_trgt"]]]
    facts += [row["label"], *history]
    if len(row[f"{ITEM}_neg"]) != len(history):
        facts.append("a negative history of another length")
    if "age" in shop.stated:
        facts.append(("age", keys["age"].get(row["age"])))
    if "size" in shop.stated:
        facts.append(("size", keys["size"][row["size_trgt"]]))
    if "genres" in shop.stated:
        facts.append(("genres", *(keys["genres"][each] for each in row["genres"] if each)))
    taken = {USER, "label", "age", "size_trgt", "genres", "where"}
    taken |= {f"{name}_{side}" for name in (ITEM, "size") for side in ("pos", "neg", "trgt")}
    numbers: dict[str, float] = {}
    for name, value in row.items():
        if name == f"{TIME}_since_pos":
            numbers |= {f"since {place}": each for place, each in enumerate(value)}
        elif name == "look_trgt":
            numbers |= {f"look {place}": each for place, each in enumerate(value)}
        elif name not in taken:
            numbers[name] = value
    crossed = None
    if "crosses" in shop.features:
        crossed = str(row["where"]), ""
    return Sample(tuple(facts), numbers, crossed)


def difference(found: list[Sample], wanted: list[Sample]) -> str:
    """Say in what rows differ from what is wanted; empty where in nothing."""
    counts = Counter(s.facts for s in found), Counter(s.facts for s in wanted)
    if counts[0] != counts[1]:
        missing, strange = counts[1] - counts[0], counts[0] - counts[1]
        return f"missing {list(missing)[:2]}, strange {list(strange)[:2]}"
    names = {name for s in (*found, *wanted) for name in s.numbers if "since" not in name}
    for sample in (*found, *wanted):
        lacking = names - set(sample.numbers)
        if lacking:
            return f"no column {lacking} of {sample.facts}"
    by_facts: dict[Any, tuple[list[Sample], list[Sample]]] = defaultdict(lambda: ([], []))
    for place, samples in enumerate((found, wanted)):
        for sample in samples:
            by_facts[sample.facts][place].append(sample)
    for facts, (mine, theirs) in by_facts.items():
        fault = _numbers_differ(mine, theirs)
        if fault:
            return f"{facts}: {fault}"
    return _crosses_differ(by_facts)


def _numbers_differ(found: list[Sample], wanted: list[Sample]) -> str:
    """Match each row with one that is expected: rows that say the same come in any order."""
    left = list(wanted)
    for sample in found:
        near = next((each for each in left if _are_near(sample.numbers, each.numbers)), None)
        if near is None:
            return f"{sample.numbers}, expected {[each.numbers for each in left[:2]]}"
        left.remove(near)
    return ""


def _are_near(found: dict[str, float], wanted: dict[str, float]) -> bool:
    if set(found) != set(wanted):
        return False
    for name, value in wanted.items():
        if math.isnan(value):
            if not math.isfinite(found[name]):
                return False
        elif not np.isclose(found[name], value, rtol=TOLERANCE, atol=TOLERANCE):
            return False
    return True


def _crosses_differ(by_facts: Any) -> str:
    """A user and an item have one cross, of 1 to 50, and an unknown user has 0."""
    seen: dict[Any, str] = {}
    for facts, (mine, _) in by_facts.items():
        for sample in mine:
            if sample.crossed is None:
                continue
            number = int(sample.crossed[0].strip("[]"))
            known = facts[1] is not None
            if not (1 <= number <= 50 if known else number == 0):
                return f"{facts}: the cross {number}"
            if known and seen.setdefault(facts[1:3], sample.crossed[0]) != sample.crossed[0]:
                return f"{facts}: crosses {number} and {seen[facts[1:3]]}"
    return ""
