"""Training: Keras's ``fit`` with the callbacks of a run, resumed where asked to."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ...dataloader.loader import Loader
from ...dataloader.open_loader import open_loader
from ...dataloader.sample_loader import POSITIONS_TOGETHER
from ...foundation.exceptions import MerlinSimError
from ...foundation.gpu_forms import has_gpu_forms
from ...models.compiled_metrics import states_over_ranks
from ...models.loader_steps import FitProgress, LoaderSteps
from ...models.registry import trainable
from ...models.saving import named_variables, table_names
from ...models.trainable_model import STEPS_ON_GPU, TrainableModel
from ...parallel.checkpoints.checkpoint_store import CheckpointStore
from ...parallel.ranks import collectives
from ...parallel.ranks.interruption import StopRequest
from ...parallel.steps.optimizers import ScaledRows, WarmUpAndDecay, make_optimizer
from ...parallel.steps.sample_batch import SampleBatch
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import note_of
from ...schemas.layout_names import VALIDATION
from ..callbacks import (
    Benchmark,
    Checkpoint,
    Evaluation,
    Heartbeat,
    JSONLogger,
    MaxSteps,
    StopOnNaN,
    StopOnSignal,
    Throughput,
)
from ..callbacks.checkpoint import set_states
from ..callbacks.json_logger import describe
from ..checkpoints.run_state import Position, RunMetadata, RunState
from ..checkpoints.warm_start import WarmStart
from ..evaluation.best_so_far import BestSoFar
from ..evaluation.metrics import AUC, GAUC
from ..evaluation.throughput import peak_memory
from ..run_log import DLLOGGER
from .opened_dataset import selection
from .prepared_run import RunParts
from .replay import ReplayFeed, TrainFeed
from .replayed import BatchShares, batch_shares, open_replayed, parse_replay

KINDS = {"callback": tf.keras.callbacks.Callback, "metric": tf.keras.metrics.Metric}
"""What an option names."""


def named_objects(option: str, names: str | None) -> list[Any]:
    """Import what an option names, by commas; what can be called is called for one.

    >>> made = named_objects("metric", "tensorflow.keras.metrics:Precision")
    >>> [type(metric).__name__ for metric in made]
    ['Precision']
    """
    named = [name.strip() for name in (names or "").split(",")]
    return [_named_object(option, name) for name in named if name]


def _named_object(option: str, name: str) -> Any:
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise MerlinSimError(f"`{option}` should be package.module:NAME. Received: {name}")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise MerlinSimError(f"`{option}`: {name} cannot be found: {error}") from error
    try:
        made = found() if callable(found) else found
    except Exception as error:  # whatever one's own code raises
        raise MerlinSimError(
            f"`{option}`: expected what is made without arguments, as by a function of your own. "
            f"Found: {name}() raises {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, KINDS[option]):
        raise MerlinSimError(
            f"`{option}`: expected a {option} of Keras. Found: {name} gives {type(made).__name__}."
        )
    return made


FEW_STEPS = 100
"""Updates below which a run reports that smaller batches would train it further."""


class TrainingRun(RunParts):
    """Trains a model by Keras's ``fit`` with the callbacks of a run, or measures throughput."""

    def run(self) -> dict[str, Any]:
        """Train, or measure if asked to."""
        of_ones_own = named_objects("callback", self.config.callback)
        state = self._state()
        if self.family.counts_targets:
            self.model.take_target_counts(self._target_counts())
        if self.config.benchmark:
            return self._benchmark()
        config, position = self.config, state.position
        loader = self._train_loader()
        steps = LoaderSteps(loader, passes=max(1, config.repeat_count))
        steps.start_at(position.epoch, position.step)
        if position.epoch < config.epochs and config.max_steps is None:
            self._warn_of_few_steps(loader)
            self._warn_of_later_checkpoints(position.steps)
        throughput = Throughput()
        evaluation = self._evaluation()
        logger = JSONLogger(self.log, losses=self.family.losses, loss_of_test=self._loss_of_test())
        with StopRequest() as stop:
            callbacks = [
                Heartbeat(self.watchdog),
                throughput,
                StopOnNaN(),
                logger,
                StopOnSignal(stop),
                *([] if config.max_steps is None else [MaxSteps(config.max_steps)]),
                evaluation,
                *of_ones_own,
                Checkpoint(
                    config.save_checkpoint_path,
                    every=config.checkpoint_every,
                    keep=config.keep_checkpoints,
                    select_by=selection(config, self.dataset),
                    state=state,
                    patience=self.watchdog.patience,
                ),
            ]
            set_states(callbacks, position.callbacks)
            most = math.inf if config.max_steps is None else config.max_steps
            if position.epoch < config.epochs and position.steps < most and not evaluation.is_over:
                epochs = {"epochs": config.epochs, "initial_epoch": position.epoch}
                self.trained.fit(steps, callbacks=callbacks, verbose=0, **epochs)
            else:
                self._evaluate_alone(steps, callbacks, position, evaluation)
        evaluated = evaluation.last
        assert evaluated is not None
        self.write_evaluation(evaluated.test)
        self._report_best(evaluation.best)
        values = {
            **logger.finished_epoch,
            **{n: v for n, v in evaluated.metrics.items() if n.startswith("test_")},
            **evaluation.best.published(),
            **throughput.of_epoch,
            "time_to_train": throughput.seconds,
            "throughput": throughput.rate,
            "samples": throughput.samples,
            **peak_memory(),
        }
        self.log.write("result", step=self.trained.progress.steps, **values)
        return values

    @functools.cached_property
    def trained(self) -> TrainableModel:
        """The model, or what trains it where it is of one's own."""
        return trainable(self.model, self.family.label(self.dataset.channels))

    def _evaluate_alone(
        self,
        steps: LoaderSteps,
        callbacks: list[tf.keras.callbacks.Callback],
        position: Position,
        evaluation: Evaluation,
    ) -> None:
        """Evaluate weights of which nothing is left to train."""
        start = (position.epoch, position.step, position.steps)
        self.trained.progress = FitProgress(
            *start, steps.steps, epochs=self.config.epochs, callbacks=tuple(callbacks)
        )
        for callback in callbacks:
            callback.set_model(self.trained)
        self.log.say(describe(evaluation.evaluate()))

    def _evaluation(self) -> Evaluation:
        """Make what scores test data, and validation data where there are any."""
        mappings = [name for name in ("test", VALIDATION) if name in self.dataset.spec.source_spec]
        held_out = {mapping: self.test_feed(mapping=mapping) for mapping in mappings}
        return Evaluation(
            held_out,
            times_per_epoch=self.config.evals_per_epoch,
            patience=self.config.early_stopping,
            metrics=self.family.metrics,
            extra=[type(metric).from_config(metric.get_config()) for metric in self._metrics],
            user=self.user,
            predict=self.predictor(),
            locations=self.locations_to_save(held_out["test"]),
            log=self.log,
            alive=self.watchdog.alive,
        )

    def _compile(self) -> None:
        """Compile the model as the run has it."""
        config = self.config
        optimizer = make_optimizer(
            config.optimizer,
            self.model.trainable_variables,
            self._rate(),
            config.weight_decay,
            config.table_weight_decay,
            config.table_lr_scale,
        )
        self.trained.compile(
            optimizer,
            # Within users nothing can be counted while rows are shuffled.
            metrics=[AUC(), *(m for m in self._metrics if not isinstance(m, GAUC))],
            steps_per_execution=self._steps_per_execution(),
            jit_compile=self.compiles_all,
            loss_scale=config.loss_scale,
            fp16_compression=config.fp16_compression,
            dense_tables=config.gradient_exchange == "dense",
        )

    @functools.cached_property
    def _metrics(self) -> list[Any]:
        """The metrics of the user's own."""
        return named_objects("metric", self.config.metric)

    def _steps_per_execution(self) -> int:
        """Return how many steps run in one graph: none would go beyond a checkpoint or the end."""
        config = self.config
        if config.steps_per_execution is not None:
            return config.steps_per_execution
        if not has_gpu_forms():
            return 1
        return math.gcd(STEPS_ON_GPU, config.checkpoint_every or 0, config.max_steps or 0)

    def _warn_of_few_steps(self, feed: TrainFeed) -> None:
        plan, config = feed.plan(0), self.config
        steps = plan.steps * max(1, config.repeat_count) * config.epochs
        if steps < FEW_STEPS:
            self.log.say(
                f"only {steps} steps in all: {feed.samples:,} training samples in batches of "
                f"{config.global_batch_size:,}. A smaller --global_batch_size trains further."
            )

    def _warn_of_later_checkpoints(self, steps: int) -> None:
        saved = self.config.save_checkpoint_path
        names = CheckpointStore(saved).names() if saved and self.ranks.is_first else []
        if names and int(names[0].removeprefix("step-")) > steps:
            self.log.say(
                f"{saved} holds checkpoints of later steps than {steps}, the last {names[0]}: they"
                " stay, and loading from there takes the last that is whole."
            )

    def _report_best(self, best: BestSoFar) -> None:
        """Say which evaluation was best by validation data, and which checkpoint is kept."""
        saved, chosen_by = self.config.save_checkpoint_path, selection(self.config, self.dataset)
        has_store = saved is not None and chosen_by is not None and self.ranks.is_first
        name = CheckpointStore(saved).best(chosen_by) if saved and has_store else None
        kept = f"{saved}/{name}" if name else None
        if best.metrics:
            is_kept = name == f"step-{best.steps:010d}"
            also = f"; kept as {kept}" if is_kept and chosen_by == VALIDATION else ""
            self.log.say(
                f"best by validation data: step {best.steps}  {describe(best.metrics)}{also}"
            )
        if kept and chosen_by == "test":
            self.log.say(
                f"best by test data, as --select_by test asks: kept as {kept}; its test AUC is "
                "flattered by the choice."
            )

    @property
    def _trained_columns(self) -> list[str]:
        named = {name for names in self.dataset.channels.values() for name in names}
        return [name for name in self.dataset.schema.column_names if name in named]

    def _loss_of_test(self) -> Callable[[], float] | None:
        """Return what computes the published log's test loss; None for a log without it."""
        if self.config.log_format != DLLOGGER:
            return None
        feed, model = self.test_feed(self._trained_columns), self.trained
        heartbeat = Heartbeat(self.watchdog)

        def compute() -> float:
            feed.start_at(0)
            model.evaluate(feed, verbose=0, callbacks=[heartbeat])
            total, samples = states_over_ranks(model.metrics[:1])  # of the objective
            return float(total / samples)

        return compute

    def _target_counts(self) -> npt.NDArray[np.int64]:
        """Count how often each item is a training sample's, over all ranks, as epoch 1 has them."""
        item = self.dataset.channels[TARGET_ITEM_FEATURES][0]
        rows = int(self.dataset.schema[item].int_domain.max) + 1
        counts = np.zeros(rows, np.int64)
        for given in self._train_loader([item, self.family.label(self.dataset.channels)]):
            self.watchdog.alive()
            batch = SampleBatch(*given)
            ids = batch.counted(batch.columns[item].numpy().reshape(-1))
            counts += np.bincount(ids, minlength=rows)
        return collectives.sum_counts(counts, self.ranks)

    def _train_loader(self, columns: list[str] | None = None) -> TrainFeed:
        """Open this rank's training samples; ``columns`` in place of all that is trained on."""
        size, replayed = self.config.global_batch_size, self._replayed
        if replayed is None:
            return self._feed_of(self.dataset, size, self.config.drop_remainder, columns)
        old, shares = replayed
        old_feed = self._feed_of(old, shares.old, True, columns)
        if columns is None:
            self.log.say(
                f"each batch has {shares.new:,} samples of {self.dataset.path} and "
                f"{shares.old:,} of {old.path}, of which {old_feed.samples:,} are there"
            )
        new_feed = self._feed_of(self.dataset, shares.new, self.config.drop_remainder, columns)
        return ReplayFeed(new_feed, old_feed)

    def _feed_of(
        self, dataset: DatasetDirectory, size: int, drop_last: bool, columns: list[str] | None
    ) -> Loader:
        config = self.config
        feed = open_loader(
            dataset,
            "train",
            columns or self._trained_columns,
            size,
            self.ranks,
            shuffle=config.shuffle,
            seed=int(config.seed or 0),
            window_rows=config.window_rows,
            drop_last=drop_last,
            parallel_calls=config.num_parallel_calls,
            positions_together=config.positions_together,
            fresh_negatives=config.fresh_negatives,
            candidates=self.candidates,
            negatives_read=getattr(self.model, "negatives_read", None),
            data_memory_mb=config.data_memory_mb,
        )
        if columns is None:
            self.log.say(feed.describe_memory())
        return self.with_threads_reported(feed)

    @functools.cached_property
    def _replayed(self) -> tuple[DatasetDirectory, BatchShares] | None:
        """The older dataset, and of how many rows of each a batch consists."""
        config = self.config
        if config.replay is None:
            return None
        directory, share = parse_replay(config.replay)
        old = open_replayed(directory, config.feature_spec, self.dataset)
        unit = self.ranks.size * self.candidates
        return old, batch_shares(config.global_batch_size, share, unit)

    def _order(self) -> dict[str, Any]:
        """Say what decides the order of samples."""
        config = self.config
        order: dict[str, Any] = {
            "seed": config.seed,
            "shuffle": config.shuffle,
            "global_batch_size": config.global_batch_size,
            "window_rows": config.window_rows,
            "repeat_count": config.repeat_count,
            "drop_remainder": config.drop_remainder,
        }
        if self._replayed is not None:
            old, shares = self._replayed
            order["replay"] = {"dataset": fingerprint(old), "rows": shares.old}
        if self.dataset.users is None:
            return order
        if self.candidates > 1:
            order["candidates"] = self.candidates
        else:
            order["positions_together"] = config.positions_together or POSITIONS_TOGETHER
        return {**order, "fresh_negatives": config.fresh_negatives}

    def _state(self) -> RunState:
        config = self.config
        self._compile()
        metadata = RunMetadata(
            str(config.model_type),
            self.model.options.to_dict(),
            config.optimizer,
            self.fingerprint,
            config.amp,
            self._order(),
            self._ids(),
            selection(config, self.dataset),
            config.precision,
        )
        state = RunState(self.model, self.trained.optimizer, self.trained.loss_scale, metadata)
        if self.resumed:
            self._restore(state)
        elif self.config.warm_start is not None:
            self._start_warm(state)
        # Broadcast: every rank begins with the weights of the first.
        own = state.parts
        shared = [variable for name, variable in state.variables.items() if name not in own]
        collectives.broadcast(shared, self.ranks)
        scaled = self._scaled_rows(state)
        if scaled is not None:
            self.trained.scale_rows(scaled)
        return state

    def _scaled_rows(self, state: RunState) -> ScaledRows | None:
        """Say which rows of tables move by a part only, where a run is to do so."""
        rate = self.config.known_rows_rate
        if rate == 1:
            return None

        def known_rows() -> dict[str, int]:
            assert self.config.warm_start is not None  # or the configuration would be refused
            first = self.checkpoint if not self.resumed else None
            arrays = (first or CheckpointStore(self.config.warm_start).load()).arrays
            return {name: arrays.index[name].shape[0] for name in table_names(self.model)}

        known = collectives.broadcast_object(
            collectives.on_first_rank(known_rows, self.ranks), self.ranks
        )
        parts = state.parts
        rows = {}
        for name, variable in named_variables(self.model).items():
            if name in known:
                part = parts.get(name)
                begin = 0 if part is None else part.ranges(variable.shape)[0][0]
                rows[variable.ref()] = max(0, min(known[name] - begin, int(variable.shape[0])))
        return ScaledRows(rows, rate)

    def _ids(self) -> dict[str, Any] | None:
        """Note what ids mean, for runs that start from the checkpoints with other data."""
        if self.config.save_checkpoint_path is None or not self.ranks.is_first:
            return None
        return note_of(self.dataset).to_dict()

    def _rate(self) -> float | WarmUpAndDecay:
        """Return the learning rate, or how it goes."""
        config = self.config
        if not config.warmup_steps and config.decay_steps is None:
            return config.lr
        return WarmUpAndDecay(
            config.lr,
            config.warmup_steps,
            config.decay_start_step,
            config.decay_steps,
            config.decay_power,
        )

    def _restore(self, state: RunState) -> None:
        def restore() -> None:
            assert self.checkpoint is not None
            state.restore(self.checkpoint)
            path = self.checkpoint.path
            position = state.position
            done = f"{position.steps} steps done"
            if position.epoch < self.config.epochs:
                self.log.say(f"going on from {path}: epoch {position.epoch + 1}, {done}")
            else:
                self.log.say(
                    f"{path}: all {self.config.epochs} epochs are over, {done}. Nothing is left to"
                    " train; more --epochs would go on. The weights are evaluated."
                )
            at = (position.epoch, position.step)
            self.log.write("resume", at, step=position.steps, checkpoint=str(path))

        collectives.on_first_rank(restore, self.ranks)
        self._restore_own(state)
        state.share_position(self.ranks)

    def _restore_own(self, taker: RunState | WarmStart) -> None:
        """Let the other ranks read what is theirs alone, out of the first rank's checkpoint."""
        state = taker if isinstance(taker, RunState) else taker.state
        if not state.parts:
            return
        checkpoint = self.checkpoint_of_every_rank()

        def restore() -> None:
            if checkpoint is not None and not self.ranks.is_first:
                taker.restore_own(checkpoint)

        collectives.on_every_rank(restore, self.ranks)

    def _start_warm(self, state: RunState) -> None:
        """Begin with what a run on the data before has learned."""
        warm = WarmStart(state, self.dataset, self.config.new_rows)

        def restore() -> None:
            assert self.checkpoint is not None
            self._refuse_to_end_before(self.checkpoint.metadata["steps"])
            warm.restore(self.checkpoint)
            path, steps = self.checkpoint.path, state.position.steps
            added = {table: rows for table, rows in warm.added.items() if rows}
            grown = ", ".join(f"{table} {rows:,}" for table, rows in added.items())
            begin = f"new rows ({self.config.new_rows}): {grown}" if added else "no new rows"
            self.log.say(f"warm start from {path}, {steps} steps done; {begin}")
            self.log.write("warm_start", (0, 0), step=steps, checkpoint=str(path), new_rows=added)

        collectives.on_first_rank(restore, self.ranks)
        self._restore_own(warm)
        state.share_position(self.ranks)

    def _refuse_to_end_before(self, steps: int) -> None:
        """Refuse a number of steps, or a decay of the rate, that is over when the run begins."""
        config = self.config
        ends = {"`max_steps`": [config.max_steps]}
        ends["`decay_start_step` + `decay_steps`"] = [config.decay_start_step, config.decay_steps]
        for name, parts in ends.items():
            given = [part for part in parts if part is not None]
            if given and sum(given) <= steps:
                raise MerlinSimError(
                    f"{name} should be more than {steps}, the steps done in {config.warm_start}, "
                    "which go on to be counted: nothing would be trained. Received: "
                    f"{' + '.join(map(str, given))}."
                )

    def _benchmark(self) -> dict[str, Any]:
        loader = self._train_loader()
        in_a_pass = loader.plan(0).steps
        total, warmup = self.benchmark_steps(in_a_pass)
        benchmark = Benchmark(self.log, total, warmup, in_a_pass, self.family.losses)
        steps = LoaderSteps(loader, steps_per_epoch=total)
        steps.start_at(0)
        self.trained.fit(steps, callbacks=[Heartbeat(self.watchdog), benchmark], verbose=0)
        values = benchmark.results()
        self.log.write("benchmark", step=total, **values, **benchmark.losses, **peak_memory())
        shown = (f"{name} {value:,.5g}" for name, value in values.items())
        self.log.say("  ".join(shown))
        return values
