"""The histories that a dataset keeps of its users: raw keys, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...foundation.exceptions import MerlinSimError
from ...schemas.parquet import type_in_words
from ...schemas.users_layout import JOINS
from ...workflows.behaviour.behaviour_columns import ROLE
from ...workflows.behaviour.rules import ITEM_ORDER
from ...workflows.preprocess.fitted import FittedWorkflow


@dataclass(frozen=True)
class History:
    """What is known of a user."""

    user: dict[str, Any]
    """Raw keys of the user's columns, as the newest interaction has them."""
    items: list[Any]
    """Items as an event has them, raw keys or objects with keys, oldest first."""


class Histories(Protocol):
    """Where histories come from."""

    def keys(self, texts: Sequence[str]) -> list[Any]:
        """Return users' raw keys of texts."""

    def of(self, users: Sequence[Any]) -> dict[Any, History]:
        """Return the history of each user who has one, by raw key."""


class DatasetHistories:
    """The newest interactions that a dataset of a behaviour log keeps in ``history/``.

    Args:
        directory: The dataset.

    Raises:
        MerlinSimError: Where it keeps none.
    """

    def __init__(self, directory: Path) -> None:
        """Read what the dataset says of them."""
        workflow = FittedWorkflow.load(directory)
        if workflow.kept is None:
            raise MerlinSimError(
                f"{directory}: keeps no histories of its users. `merlin-sim preprocess` writes them"
                " of logs of behaviour."
            )
        self.kept = workflow.kept
        self.columns = workflow.columns
        self.by_item = workflow.rules.equal_times == ITEM_ORDER

    def some(self, most: int) -> list[History]:
        """Return the histories of some users, the first that are stored."""
        users: list[Any] = []
        with pq.ParquetFile(self.kept.paths[0]) as file:
            for batch in file.iter_batches(columns=[self.columns.user]):
                users = list(dict.fromkeys([*users, *batch.column(0).to_pylist()]))
                if len(users) >= most:
                    break
        return list(self.of(users[:most]).values())

    def keys(self, texts: Sequence[str]) -> list[Any]:
        """Return users' raw keys, of the type that the log has, of texts.

        Raises:
            MerlinSimError: Naming the first that is none.
        """
        kind = pq.read_schema(self.kept.paths[0]).field(self.columns.user).type
        found = []
        for text in texts:
            try:
                found.append(pa.array([text]).cast(kind)[0].as_py())
            except pa.ArrowInvalid as error:
                raise MerlinSimError(
                    f"a user should be {type_in_words(kind)}, as in the log. Received: {text!r}"
                ) from error
        return found

    def of(self, users: Sequence[Any]) -> dict[Any, History]:
        """Return the history of each user who has one, by raw key.

        Raises:
            MerlinSimError: Where a file is not the one that the dataset was written with.
        """
        found: dict[Any, History] = {}
        for path in self.kept.paths:
            found |= self._in_file(path, users)
        return found

    def _in_file(self, path: Path, users: Sequence[Any]) -> dict[Any, History]:
        columns = self.columns
        of_users = (columns.user, *columns.user_features)  # a context is that of the request
        names = [*of_users, columns.item, columns.timestamp]
        table = self.kept.read(path, [*names, ROLE], [(columns.user, "in", list(users))])
        table = table.filter(np.asarray(table[ROLE]) & JOINS > 0)
        keys = [(columns.timestamp, "ascending")]
        if self.by_item:
            keys.append((columns.item, "ascending"))
        # The row's own number keeps the log's order within one time.
        table = table.append_column("row", pa.array(np.arange(table.num_rows)))
        table = table.sort_by([*keys, ("row", "ascending")])
        found: dict[Any, History] = {}
        for row in table.select([*of_users, columns.item]).to_pylist():
            item = row.pop(columns.item)
            history = found.setdefault(row[columns.user], History({}, []))
            history.user.update(row)
            history.items.append(item)
        return found
