"""From an opened dataset directory to batches of exactly the columns that a model reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from merlin.schema import Schema, Tags

from ..foundation.exceptions import MerlinSimError
from ..foundation.ranks import Ranks, rank_batch_size
from ..schemas.dataset import DatasetDirectory
from ..schemas.parquet import require_whole_footer
from ..schemas.users_layout import UsersLayout
from .loader import DATA_MEMORY_MB, Loader
from .row_check import DataError, readable
from .row_loader import RowLoader
from .sample_loader import SampleLoader
from .stored_rows import in_order
from .user_rows import UserRows


def open_loader(
    dataset: DatasetDirectory,
    mapping: str,
    columns: list[str],
    global_batch_size: int,
    ranks: Ranks,
    *,
    shuffle: bool = False,
    seed: int = 0,
    window_rows: int = 65536,
    drop_last: bool = False,
    parallel_calls: int | None = None,
    positions_together: int | None = None,
    fresh_negatives: bool = False,
    candidates: int | None = None,
    negatives_read: int | None = None,
    data_memory_mb: int = DATA_MEMORY_MB,
    contiguous: bool = False,
) -> Loader:
    """Open this rank's loader of ``train`` or ``test``; histories come padded on the left.

    Where the files have one row per user, samples are made of them: the batches have the same form.

    Args:
        dataset: the opened directory.
        mapping: a name in its source_spec.
        columns: what is read of each row.
        global_batch_size: rows per step over all ranks.
        ranks: the run.
        shuffle: a new order in each epoch.
        seed: of the orders.
        window_rows: rows shuffled together.
        drop_last: leave out the rows that do not fill a global batch.
        parallel_calls: of rows per sample, threads that decode them on a CPU (None: one per core).
        positions_together: of a dataset of users (None: its default), see
            :class:`~.sample_loader.SampleLoader`.
        fresh_negatives: see there.
        candidates: of a dataset of users, give batches of ``global_batch_size / candidates`` users
            x so many candidates; see
            :meth:`~.behaviour_samples.BehaviourSamples.candidates_of_users`.
            1, or None, for rows.
        negatives_read: of a dataset of users, so many of the newest positions of a negative history
            are drawn (None: all), the others are 0.
        data_memory_mb: memory for the data on the device, in MB: see
            :class:`~.loader.Loader`.
        contiguous: see there.

    Raises:
        DataError: naming a file that cannot be read as parquet.
        MerlinSimError: where negatives are stored and should be drawn anew.
    """
    files = dataset.stored_files(mapping)
    for file in files:
        _require_parquet(file)
    schema = Schema([dataset.schema[name] for name in columns])
    source = in_order([str(file.absolute()) for file in files], schema)
    options: dict[str, Any] = {
        "shuffle": shuffle,
        "global_size": ranks.size,
        "global_rank": ranks.rank,
        "drop_last": drop_last,
        "seed": seed,
        "window_rows": window_rows,
        "data_memory_mb": data_memory_mb,
        "contiguous": contiguous,
    }
    made = _making_options(dataset, positions_together, fresh_negatives, candidates)
    batch_size = rank_batch_size(global_batch_size, ranks)
    loader: Loader
    if dataset.users is None:
        loader = RowLoader(source, batch_size, parallel_calls=parallel_calls, **options)
    else:
        check_candidates(dataset.users, global_batch_size, candidates, ranks)
        of_row = made.get("candidates", 1)
        if of_row > 1 and positions_together is not None:
            raise MerlinSimError(
                "`positions_together` should be left out with `candidates`: those of a row stay "
                f"together. Received: `positions_together` = {positions_together}."
            )
        options |= {**made, "negatives_read": negatives_read}
        loader = SampleLoader(
            source, batch_size // of_row, directory=dataset, mapping=mapping, **options
        )
    loader.directory = dataset
    _require_a_step(loader, dataset, mapping)
    return loader


def _making_options(
    dataset: DatasetDirectory,
    positions_together: int | None,
    fresh_negatives: bool,
    candidates: int | None,
) -> dict[str, Any]:
    """Return the options of how samples are made; refuse them where samples are stored."""
    of_users = {
        "positions_together": positions_together,
        "fresh_negatives": fresh_negatives or None,
        "candidates": None if candidates == 1 else candidates,
    }
    given = {name: value for name, value in of_users.items() if value is not None}
    if given and dataset.users is None:
        raise MerlinSimError(
            f"{dataset.path}: `{next(iter(given))}` should be left out: it is of datasets with one "
            "row per user (`preprocess --layout users`), this one has one row per sample."
        )
    return given


def _require_a_step(loader: Loader, dataset: DatasetDirectory, mapping: str) -> None:
    plan = loader.plan(0)
    if plan.steps == 0:
        rows = plan.rows
        missing = f"{rows} rows are fewer than one global batch" if rows else "there are no rows"
        raise DataError(f"{dataset.path}: {mapping} has nothing to feed: {missing}.")


def check_candidates(
    layout: UsersLayout, global_batch_size: int, candidates: int | None, ranks: Ranks
) -> None:
    """Refuse what no batch of users x candidates can be made of."""
    if candidates is None or candidates == 1:
        return
    of_position = layout.samples_per_position
    if candidates < 1 or candidates % of_position:
        negatives = f"{of_position - 1} negatives" if of_position > 2 else "a negative"
        number = f"multiple of {of_position}" if of_position > 2 else "even number"
        raise MerlinSimError(
            f"`candidates` should be a positive {number}, or 1 for plain rows: a position has a "
            f"positive and {negatives}. Received: `candidates` = {candidates}."
        )
    changing = sorted(set(layout.item_features) & set(layout.item_changes))
    if changing and candidates != of_position:
        raise MerlinSimError(
            f"`candidates` should be {of_position}, the samples of one position, or 1 for plain "
            f"rows: histories hold {', '.join(changing)} as known at each sample's time. Received: "
            f"`candidates` = {candidates}."
        )
    if global_batch_size % (candidates * ranks.size):
        of_ranks = f" x {ranks.size} ranks" if ranks.size > 1 else ""
        raise MerlinSimError(
            f"`global_batch_size` should be a multiple of `candidates`{of_ranks}, the samples that "
            f"share a user's history; 1 for plain rows. Received: {global_batch_size} with "
            f"`candidates` = {candidates}."
        )


def _require_parquet(file: Any) -> None:
    with readable(file), pq.ParquetFile(file) as opened:
        require_whole_footer(opened)
        names = [name.partition("\0")[0] for name in opened.schema_arrow.names]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:  # pandas ends a name at a zero byte
        raise DataError(
            f"{file}: one column {twice[0]} was expected. Received: {len(names)}"
            f" columns, of which {names.count(twice[0])} are called so."
        )


def user_column(schema: Schema) -> str | None:
    """Name the column whose ids identify users: tagged user_id, else the first of a user."""
    for tag in (Tags.USER_ID, Tags.USER):
        for column in schema.select_by_tag(tag):
            if not column.is_list:
                return str(column.name)
    return None


def open_scored(
    dataset: DatasetDirectory,
    mapping: str,
    columns: list[str],
    global_batch_size: int,
    ranks: Ranks,
    *,
    candidates: int,
    parallel_calls: int | None = None,
    data_memory_mb: int = DATA_MEMORY_MB,
) -> Loader:
    """Open this rank's part of the samples that are scored, in the stored order.

    A row has as many candidates as some user has. Of test, a user has often one position alone: in
    rows for more, most would be fillers. What is scored does not depend on how it is cut.

    Args:
        dataset: an opened directory.
        mapping: what is scored.
        columns: what is read of each row.
        global_batch_size: samples of a batch at most, or of one row for each rank.
        ranks: the run.
        candidates: of a row at most; 1 for plain rows, which stay as they are.
        parallel_calls: see :func:`open_loader`.
        data_memory_mb: see there.
    """
    if candidates > 1 and dataset.users is not None:
        counts = UserRows(dataset, mapping).part_positions
        of_position = dataset.users.samples_per_position
        most = of_position * max((int(np.max(of_part)) for of_part in counts), default=1)
        candidates = min(candidates, most)
        step = candidates * ranks.size
        global_batch_size = step * max(1, global_batch_size // step)
    return open_loader(
        *(dataset, mapping, columns, global_batch_size, ranks),
        parallel_calls=parallel_calls,
        candidates=candidates,
        data_memory_mb=data_memory_mb,
        contiguous=True,
    )
