"""Small dataset directories with one row per user, and their samples worked out one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from drawn_by_hand import drawn, key_of

from merlin_sim.schemas.dataset import write_documents
from merlin_sim.workflows.behaviour_columns import BehaviourColumns
from merlin_sim.workflows.dataset_spec import samples_schema, users_layout_of, users_spec
from merlin_sim.workflows.feature import FeatureSet
from merlin_sim.workflows.rules import SampleRules

SAME_TIME_BEFORE = "same_time_before"
ALL_BEFORE, EARLIER = "all that stands before", "earlier times"
"""What a sample sees of its user."""
COLUMNS = BehaviourColumns("user", "thing", "when", ("country",), ("kind",), steady=("country",))
ITEMS, KINDS, COUNTRIES, LONGEST = 50, 7, 3, 6
RULES = SampleRules(max_sequence_length=LONGEST, seed=99)


def item_table() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "id": np.arange(1, ITEMS + 1),
        "count": random.integers(0, 20, ITEMS),
        "kind": random.integers(1, KINDS + 1, ITEMS),
    }


def user_table(
    lengths: list[int],
    first: int,
    least: int = 1,
    with_times: bool = False,
    with_baskets: bool = False,
) -> pa.Table:
    """Users numbered from ``first``; the last interaction is test, those before it train.

    With baskets, an interaction has the time of the one before it more often than not.
    """
    random = np.random.default_rng([7, first])
    lengths = np.array(lengths, np.int64)
    last = np.maximum(lengths - 1, 0)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = random.integers(1, ITEMS + 1, offsets[-1]).astype(np.int32)
    of_users = pa.array(offsets, pa.int32())
    times = {}
    if with_times:  # some of them equal, not all of them whole seconds
        seconds = [np.sort(random.integers(0, 4 * n, n)) / 2 for n in lengths]
        seconds = np.concatenate([np.empty(0), *seconds]) + 1.5e9
        times = {"when": pa.ListArray.from_arrays(of_users, pa.array(seconds))}
    if with_baskets:
        goes_on = random.random(offsets[-1]) < 0.7
        goes_on[offsets[:-1][lengths > 0]] = False
        index = np.arange(offsets[-1])
        begins = np.maximum.accumulate(np.where(goes_on, 0, index))
        before = pa.array((index - begins).astype(np.int32))
        times[SAME_TIME_BEFORE] = pa.ListArray.from_arrays(of_users, before)
    return pa.table(
        {
            "user": first + np.arange(len(lengths)),
            "country": random.integers(1, COUNTRIES + 1, len(lengths)),
            "train_begin": np.minimum(least, last),
            "train_end": last,
            "test_begin": last,
            "test_end": lengths,
            "thing": pa.ListArray.from_arrays(of_users, pa.array(items)),
            **times,
        }
    )


def write_users_dataset(
    directory: Path,
    files: list[list[list[int]]],
    rules: SampleRules = RULES,
    time_intervals: str | None = None,
    with_baskets: bool = False,
) -> Path:
    """Write, for each file and row group, users with so many interactions."""
    columns = replace(
        COLUMNS,
        features=FeatureSet(time_intervals=time_intervals),
        own_time_excluded=with_baskets,
    )
    more = {"with_times": time_intervals is not None, "with_baskets": with_baskets}
    (directory / "users").mkdir(parents=True)
    (directory / "categories").mkdir()
    first, names = 1, []
    for number, groups in enumerate(files):
        names.append(f"users/part.{number}.parquet")
        schema = user_table([], 1, **more).schema
        with pq.ParquetWriter(directory / names[-1], schema) as writer:
            for lengths in groups:
                writer.write_table(user_table(lengths, first, **more))
                first += len(lengths)
    pq.write_table(pa.table(item_table()), directory / "categories/thing.parquet")
    sizes = {"user": max(1, first - 1), "country": COUNTRIES, "thing": ITEMS, "kind": KINDS}
    schema = samples_schema(columns, sizes, rules.max_sequence_length)
    layout = replace(users_layout_of(columns, rules), user_hash=None)  # all have ids
    write_documents(directory, users_spec(schema, layout, names))
    return directory


def samples_of(
    directory: Path, mapping: str, seed: int = RULES.seed, negatives_drawn: int = 1
) -> dict[str, np.ndarray]:
    """The samples in the users' order, made one by one; histories padded on the left."""
    table = pa.concat_tables([pq.read_table(p) for p in sorted(directory.glob("users/*"))])
    items = item_table()
    counts = [0, *items["count"].tolist()]
    kind_of = np.concatenate([[0], items["kind"]])
    rows = []
    for user in table.to_pylist():
        for position in range(user[f"{mapping}_begin"], user[f"{mapping}_end"]):
            seen = position - user.get(SAME_TIME_BEFORE, [0] * len(user["thing"]))[position]
            window = slice(max(0, seen - LONGEST), seen)
            before = user["thing"][window]
            for slot in range(negatives_drawn + 1):
                is_own = slot == negatives_drawn
                key = key_of(seed, user["user"], position, is_own, 0 if is_own else slot)
                target = user["thing"][position] if is_own else drawn(key, 0, counts)
                negatives = [drawn(key, number + 1, counts) for number in range(len(before))]
                histories = [
                    np.array([0] * (LONGEST - len(values)) + values, np.int64)
                    for values in (before, negatives)
                ]
                ids = (user["user"], user["country"], target)
                since = np.zeros(LONGEST)
                if "when" in user and before:
                    times = user["when"][window]
                    since[-len(before) :] = user["when"][position] - np.array(times)
                rows.append((slot == negatives_drawn, *ids, *histories, since))
    label, user, country, target, positive, negative, since = (
        np.array([row[index] for row in rows]) for index in range(7)
    )
    times = {"when_since_pos": since} if "when" in table.column_names else {}
    return {
        **times,
        "label": label, "user": user, "country": country,
        "thing_trgt": target, "kind_trgt": kind_of[target],
        "thing_pos": positive, "kind_pos": kind_of[positive],
        "thing_neg": negative, "kind_neg": kind_of[negative],
    }  # fmt: skip


def as_rows(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Join columns to one row of numbers a sample, in the columns' alphabetical order."""
    count = len(columns["label"])
    return np.concatenate(
        [np.asarray(columns[name]).reshape(count, -1) for name in sorted(columns)], axis=1
    ).astype(np.float64)


def in_order(rows: np.ndarray) -> np.ndarray:
    """Sort rows, so that two orders of the same rows are equal."""
    return rows[np.lexsort(rows.T)]
