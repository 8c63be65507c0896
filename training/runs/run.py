"""A run from its configuration to its results: the one entry of the command line."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ... import __version__
from ...dataloader.open_loader import check_candidates, user_column
from ...foundation.cores import multiplies_bfloat16
from ...foundation.exceptions import MerlinSimError
from ...foundation.files import write_replacing, writing
from ...foundation.gpus import first_line
from ...foundation.process_wide import deterministic_operations
from ...foundation.ranks import Ranks, rank_batch_size
from ...models import build_model
from ...models.blocks.embeddings.sharded_tables import sharded_tables
from ...models.family import Family
from ...models.known_families import find_family
from ...parallel.checkpoints.checkpoint_store import (
    CheckpointError,
    CheckpointStore,
    SavedCheckpoint,
    choose_checkpoint,
)
from ...parallel.ranks import collectives
from ...parallel.ranks.arrival import EXIT_CODE
from ...parallel.ranks.run_lock import run_in
from ...parallel.ranks.watchdog import SILENCE_SECONDS, Watchdog
from ...parallel.steps.dropout_seeds import DropoutSeeds
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.fitted_record import fitted_on
from ...schemas.users_layout import usual_candidates
from ..checkpoints.run_state import check_run_metadata
from ..run_log import RUN_METADATA, RunLog
from .inference_run import InferenceRun
from .opened_dataset import open_dataset
from .run_config import SPREAD, RunConfig
from .table_plan import plan_of
from .training_run import TrainingRun


def settle_candidates(
    config: RunConfig, dataset: DatasetDirectory, family: Family, ranks: Ranks
) -> int:
    """Return how many candidates a row of a batch has: 1 where the run reads plain rows."""
    candidates = config.candidates
    if candidates is None:
        if dataset.users is None or not family.takes_candidates or config.positions_together:
            return 1
        candidates = usual_candidates(dataset.users)
        if config.mode == "train":
            check_candidates(dataset.users, config.global_batch_size, candidates, ranks)
        return candidates
    if candidates > 1 and not family.takes_candidates:
        raise MerlinSimError(
            f"`candidates` should be left out, or 1: {family.name} takes plain rows. "
            f"Received: {candidates}"
        )
    if dataset.users is not None:
        check_candidates(dataset.users, config.global_batch_size, candidates, ranks)
    return candidates


PACKAGES = ("tensorflow", "merlin-models", "merlin-dataloader", "horovod", "pyarrow", "numpy")
CONFIG = "config.yaml"


def run(config: RunConfig) -> dict[str, Any]:
    """Train or infer as configured, and return the results; all ranks of a run call this."""
    ranks = collectives.start()
    try:
        with Watchdog(ranks, config.stall_timeout) as watchdog:
            try:
                with _alone_in(config, ranks):
                    return Run(config, ranks, watchdog).run()
            except (tf.errors.OpError, RuntimeError) as error:
                raise _explained(error, config, ranks) from error
    except MerlinSimError as error:
        if ranks.is_first:
            raise
        raise SystemExit(error.exit_code) from error  # the first rank says it for all


@contextmanager
def _alone_in(config: RunConfig, ranks: Ranks) -> Iterator[None]:
    """Hold the directories that the run writes, by its first rank; refuse on all together."""
    with ExitStack() as held:
        directories = run_in(config.written_directories)
        collectives.on_first_rank(lambda: held.enter_context(directories), ranks)
        yield


def _explained(error: Exception, config: RunConfig, ranks: Ranks) -> Exception:
    if ranks.size > 1 and collectives.is_lost_connection(error):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher's; there is more to say
        time.sleep(SILENCE_SECONDS + 10)  # the watchdog, which knows the rank, ends the process
        return RankLost("another rank was lost; the last checkpoint is whole.")
    if isinstance(error, tf.errors.ResourceExhaustedError):
        size = config.global_batch_size
        return MerlinSimError(
            f"out of memory with `global_batch_size` = {size}: {first_line(error.message)}"
            f" A smaller batch needs less{'' if config.amp else ', and --amp about half'}."
        )
    return error


class RankLost(MerlinSimError):
    """A collective operation failed because a rank is gone."""

    exit_code = EXIT_CODE


@dataclass
class Run:
    """One run on one rank; a seed is drawn where the configuration has none."""

    config: RunConfig
    ranks: Ranks
    watchdog: Watchdog

    def run(self) -> dict[str, Any]:
        """Prepare, then train or infer."""
        rank_batch_size(self.config.global_batch_size, self.ranks)
        dataset = open_dataset(self.config)
        checkpoint = collectives.on_first_rank(self._find_checkpoint, self.ranks)
        self._settle(checkpoint, dataset)
        family = find_family(str(self.config.model_type))
        candidates = settle_candidates(self.config, dataset, family, self.ranks)
        with self._keras():
            return self._run(dataset, checkpoint, candidates)

    def _run(
        self, dataset: DatasetDirectory, checkpoint: SavedCheckpoint | None, candidates: int
    ) -> dict[str, Any]:
        resumed = self.config.load_checkpoint_path is not None and self.config.mode == "train"
        results = self.config.results_dir if self.ranks.is_first else None
        log = collectives.on_every_rank(
            lambda: RunLog(
                results,
                self.config.log_filename,
                self.config.tensorboard,
                resumed,
                log_format=self.config.log_format,
            ),
            self.ranks,
        )
        try:
            name = fingerprint(dataset)
            if self.ranks.is_first:
                self._write_run_metadata(dataset, name)
            on_gpu = bool(tf.config.list_physical_devices("GPU"))
            if self.config.amp and not on_gpu:
                log.say(
                    "no GPU: --amp computes float16 in software, many times slower than float32"
                )
            if self.config.precision == "bf16" and not on_gpu and not multiplies_bfloat16():
                log.say(
                    "neither a GPU nor a processor with bfloat16 (avx512_bf16): --precision bf16 "
                    "is slower than fp32"
                )
            if self.config.host_memory is not None and not on_gpu:
                log.say(
                    "no GPU: the tables that --host_memory is for share the memory that all else "
                    "is in"
                )
            options = self._model_options(checkpoint)
            with self._placement(dataset, options):
                model = build_model(str(self.config.model_type), dataset.schema, **options)
            kind: type[TrainingRun | InferenceRun]
            kind = TrainingRun if self.config.mode == "train" else InferenceRun
            parts = (self.config, self.ranks, self.watchdog, dataset, name, model, log)
            return kind(*parts, checkpoint, candidates).run()
        finally:
            log.close()

    def _placement(self, dataset: DatasetDirectory, options: dict[str, Any]) -> Any:
        """Let the model be built by a plan where its tables are spread."""
        if self.config.tables != SPREAD:
            return nullcontext()
        plan = plan_of(self.config, dataset, options, self.ranks.size)
        return sharded_tables(plan, self.ranks, self.config.xla)

    def _find_checkpoint(self) -> SavedCheckpoint | None:
        is_training = self.config.mode == "train"
        path = self.config.load_checkpoint_path or (self.config.warm_start if is_training else None)
        if path is None:
            return None

        def say(message: str) -> None:
            print(f"merlin-sim: {message}", flush=True)

        if is_training and self.config.load_checkpoint_path is not None:
            return CheckpointStore(path).load(say, check_run_metadata)
        return choose_checkpoint(path, self.config.step, say, check_run_metadata)

    def _model_options(self, checkpoint: SavedCheckpoint | None) -> dict[str, Any]:
        """Return the options given, and of the others those of a checkpoint's model.

        Where training goes on, those that are given must be the checkpoint's.
        """
        given = dict(self.config.model_options)
        if not self.config.begins_with_checkpoint:
            return given

        def read() -> dict[str, Any]:
            assert checkpoint is not None
            theirs = checkpoint.metadata["model_type"]
            if theirs != self.config.model_type:
                raise CheckpointError(
                    f"{checkpoint.path} is of another model: `model_type` should be {theirs}."
                    f" Received: {self.config.model_type}"
                )
            return dict(checkpoint.metadata["model_options"])

        read_options = collectives.on_first_rank(read, self.ranks)
        options = collectives.broadcast_object(read_options, self.ranks)
        return {**options, **given}

    def _settle(self, checkpoint: SavedCheckpoint | None, dataset: DatasetDirectory) -> None:
        """Take from the checkpoint what the configuration leaves open, or draw it."""
        seed, model_type = self.config.seed, self.config.model_type
        if checkpoint is not None:
            model_type = model_type or checkpoint.metadata["model_type"]
            if self.config.load_checkpoint_path is not None and seed is None:
                seed = checkpoint.metadata["order"].get("seed")
        if seed is None:
            seed = secrets.randbelow(2**31)
        seed, model_type = collectives.broadcast_object((seed, model_type), self.ranks)
        self.config = replace(self.config, seed=seed, model_type=model_type)
        find_family(str(model_type)).contract.check(dataset.spec)
        if self.config.save_scores and user_column(dataset.schema) is None:
            raise MerlinSimError(
                f"{dataset.path}: save_scores needs a column of users, by whom scores are "
                "compared; there is none."
            )

    @contextmanager
    def _keras(self) -> Iterator[None]:
        """Set Keras and TensorFlow up for the run; afterwards they are as the caller had them."""
        policy = tf.keras.mixed_precision.global_policy()
        tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        tf.config.experimental.enable_tensor_float_32_execution(self.config.tf32)
        tf.keras.mixed_precision.set_global_policy(self.config.policy)
        DropoutSeeds.prepare()
        tf.keras.utils.set_random_seed(self.config.seed)
        try:
            with deterministic_operations(self.config.deterministic):
                yield
        finally:
            tf.keras.mixed_precision.set_global_policy(policy)
            tf.config.experimental.enable_tensor_float_32_execution(tf32)

    def _write_run_metadata(self, dataset: DatasetDirectory, name: str) -> None:
        results = self.config.results_dir
        versions = {package: _version(package) for package in PACKAGES}
        metadata = {
            "merlin_sim": __version__,
            "python": platform.python_version(),
            **versions,
            "dataset": {
                "path": str(dataset.path),
                "fingerprint": name,
                "fitted_on": fitted_on(dataset.path),
            },
            "ranks": self.ranks.size,
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        with writing(results):
            self.config.write(results / CONFIG)
            write_replacing(results / RUN_METADATA, json.dumps(metadata, indent=1))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
