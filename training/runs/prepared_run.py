"""Parts that training and inference share: a model, its test data, and where results go."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ...dataloader.loader import Loader
from ...dataloader.open_loader import open_scored, user_column
from ...foundation.files import write_replacing, writing
from ...foundation.ranks import Ranks
from ...models.family import Family
from ...models.known_families import find_family
from ...parallel.checkpoints.checkpoint_files import SavedCheckpoint, read_checkpoint
from ...parallel.ranks import collectives
from ...parallel.ranks.watchdog import Watchdog
from ...schemas.dataset import DatasetDirectory
from ..evaluation.evaluate import EvaluationResult, LocationFinder
from ..evaluation.prediction import Predictor
from ..evaluation.scored_rows import TEST_SCORES
from ..run_log import EVALUATION, RunLog
from .affinity import shares_operations
from .run_config import SPREAD, RunConfig


@dataclass
class RunParts:
    """Parts of a run when its model is built."""

    config: RunConfig
    ranks: Ranks
    watchdog: Watchdog
    dataset: DatasetDirectory
    fingerprint: str
    model: Any
    log: RunLog
    checkpoint: SavedCheckpoint | None
    """What to go on from; on the first rank only."""
    candidates: int = 1
    """Samples of a user that share a row of a batch; 1 for plain rows."""

    @property
    def resumed(self) -> bool:
        """Whether the run goes on from a checkpoint, on any rank."""
        return self.config.load_checkpoint_path is not None

    @property
    def family(self) -> Family:
        """What the model is one of."""
        return find_family(str(self.config.model_type))

    @property
    def user(self) -> str | None:
        """The column by which GAUC groups."""
        return user_column(self.dataset.schema)

    def checkpoint_of_every_rank(self) -> SavedCheckpoint | None:
        """Open the first rank's checkpoint, which that one has checked, on all."""
        ours = self.checkpoint
        known = None if ours is None else (ours.path, ours.sums)
        known = collectives.broadcast_object(known, self.ranks)
        if known is None:
            return None

        def read() -> SavedCheckpoint:
            return self.checkpoint or read_checkpoint(*known)

        return collectives.on_every_rank(read, self.ranks)

    @property
    def compiles_all(self) -> bool:
        """Whether XLA compiles all that is computed; of spread tables' models it does a part."""
        return self.config.xla and self.config.tables != SPREAD

    def predictor(self) -> Predictor:
        """Make the compiled forward pass."""
        parts = not shares_operations() and not tf.config.list_logical_devices("GPU")
        parts = parts and self.config.tables != SPREAD  # ranks must call the model equally often
        return Predictor(self.model, self.compiles_all, parts)

    def test_feed(self, columns: list[str] | None = None, mapping: str = "test") -> Loader:
        """Open this rank's rows of the test data, or of another mapping, as stored."""
        if columns is None:
            channels = self.dataset.channels
            columns = [*self.family.served_columns(channels), self.family.label(channels)]
            if self.user and self.user not in columns:
                columns.append(self.user)
        feed = open_scored(
            self.dataset,
            mapping,
            columns,
            self.config.global_batch_size,
            self.ranks,
            candidates=self.candidates,
            parallel_calls=self.config.num_parallel_calls,
            data_memory_mb=self.config.data_memory_mb,
        )
        return feed if self.config.mode == "train" else self.with_threads_reported(feed)

    def benchmark_steps(self, in_a_pass: int) -> tuple[int, int]:
        """Return how many steps a benchmark has, and how many of them are its warm-up."""
        config, warmup = self.config, self.config.benchmark_warmup_steps
        if config.benchmark_steps is None:
            return in_a_pass, min(warmup, in_a_pass - 1)
        return config.benchmark_steps + warmup, warmup

    def locations_to_save(self, feed: Loader) -> LocationFinder | None:
        """Find the samples of the test feed in the dataset, where their scores are saved."""
        return LocationFinder.of(feed, self.dataset) if self.config.save_scores else None

    def with_threads_reported(self, feed: Loader) -> Loader:
        """Say where no threads of ours decode what is read, though so many were asked for."""
        if self.config.num_parallel_calls is not None and not feed.decodes_in_threads:
            self.log.say("--num_parallel_calls: no effect, Merlin's loader reads the data.")
        return feed

    def write_evaluation(self, evaluation: EvaluationResult | None) -> None:
        """Write the last evaluation, curves included, for reports."""
        if evaluation is None or not self.ranks.is_first:
            return
        results = self.config.results_dir
        with writing(results):
            write_replacing(results / EVALUATION, json.dumps(evaluation.to_dict()))
        if evaluation.scored is not None:
            evaluation.scored.write(results / TEST_SCORES)
