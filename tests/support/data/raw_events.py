"""Raw events for a dataset's test rows, rebuilt from the raw logs alone."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq


def read_histories(reviews: Path) -> dict[str, list[str]]:
    """Each user's items in the order of time, ties by key: the rule of the workflow."""
    histories = defaultdict(list)
    with open(reviews) as file:
        for line in file:
            fields = json.loads(line)
            entry = (fields["unixReviewTime"], fields["asin"])
            histories[fields["reviewerID"]].append(entry)
    return {user: [item for _, item in sorted(entries)] for user, entries in histories.items()}


def events_of_test_rows(dataset: Path, reviews: Path) -> list[dict]:
    """One event for each row of test: the user's history before the last interaction.

    The row's negative candidate is not in the log: its id is turned back into a key.
    """
    histories = read_histories(reviews)
    keys = {}
    for domain in ("user_id", "item_id"):
        table = pq.read_table(dataset / "categories" / f"{domain}.parquet").to_pydict()
        keys[domain] = dict(zip(table["id"], table["key"], strict=True))
    rows = pq.read_table(dataset / "test").to_pydict()
    events = []
    for user_id, item_id, label in zip(
        rows["user_id"], rows["item_id_trgt"], rows["label"], strict=True
    ):
        user, candidate = keys["user_id"][user_id], keys["item_id"][item_id]
        *history, last = histories[user]
        assert (candidate == last) or label == 0
        events.append({"user_id": user, "history": history, "candidates": [candidate]})
    return events
