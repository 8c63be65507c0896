"""How good a trained model's search stage is on the rows of test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...dataloader.loader import ONCE_MB
from ...dataloader.open_loader import open_loader
from ...foundation.exceptions import MerlinSimError
from ...foundation.progress import Narrator
from ...foundation.ranks import Ranks
from ...models.known_families import families
from ...models.registry import family_of
from ...models.search_report import SearchRow, search_report
from ...schemas.dataset import DatasetDirectory

ROWS_PER_BATCH = 1024


def search_rows(
    model: Any,
    dataset: DatasetDirectory,
    most: int,
    category_feature: str | None,
    narrator: Narrator,
    best: int | None = None,
) -> list[SearchRow]:
    """Compare the search stage with exact attention on test data."""
    if not family_of(model).has_search:
        having = ", ".join(name for name, family in families().items() if family.has_search)
        raise MerlinSimError(
            f"expected a model with a search stage (`model_type` {having}). "
            f"Received: {type(model).__name__}."
        )
    columns = list(model.channels.served)
    feed = open_loader(dataset, "test", columns, ROWS_PER_BATCH, Ranks(), data_memory_mb=ONCE_MB)
    rows = min(most, feed.plan(0).rows)

    def batches() -> Iterator[dict[str, Any]]:
        done = 0
        try:
            for batch, _ in feed:
                count = min(rows - done, len(next(iter(batch.values()))))
                yield {name: values[:count] for name, values in batch.items()}
                done += count
                report(count, count)
                if done == rows:
                    return
        finally:
            feed.stop()

    with narrator.phase("searching", rows) as report:
        return search_report(model, batches(), category_feature, best=best)
