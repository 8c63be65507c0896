"""Whether a run reads users x candidates, and how many of them share a row."""

from __future__ import annotations

from ...dataloader.open_loader import check_candidates
from ...foundation.exceptions import MerlinSimError
from ...foundation.ranks import Ranks
from ...models.families.family import Family
from ...schemas.dataset import DatasetDirectory
from ...schemas.users_layout import UsersLayout, usual_candidates
from .run_config import RunConfig


def settle_candidates(
    config: RunConfig, dataset: DatasetDirectory, family: Family, ranks: Ranks
) -> int:
    """Return how many candidates a row of a batch has: 1 where the run reads plain rows.

    Raises:
        MerlinSimError: where what is asked for does not fit dataset, model or batch.
    """
    candidates = config.candidates
    if candidates is None:
        if dataset.users is None or not family.takes_candidates or config.positions_together:
            return 1
        return _default(config, dataset.users, ranks)
    if candidates > 1 and not family.takes_candidates:
        raise MerlinSimError(
            f"`candidates` should be left out, or 1: {family.name} takes plain rows. "
            f"Received: {candidates}"
        )
    if dataset.users is not None:
        check_candidates(dataset.users, config.global_batch_size, candidates, ranks)
    return candidates


def _default(config: RunConfig, layout: UsersLayout, ranks: Ranks) -> int:
    candidates = usual_candidates(layout)
    if config.mode == "train":
        check_candidates(layout, config.global_batch_size, candidates, ranks)
    return candidates
