"""Training: state, feeds, compiled step and loop put together, resumed where asked to."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ...checkpoints.checkpoint_store import CheckpointStore
from ...dataloader.loader import Loader
from ...dataloader.open_loader import open_loader
from ...dataloader.sample_loader import POSITIONS_TOGETHER
from ...models.saving import named_variables, table_names
from ...ranks import collectives
from ...ranks.interruption import StopRequest
from ...schemas.channels import TARGET_ITEM_FEATURES
from ...schemas.dataset import DatasetDirectory
from ...schemas.fingerprint import fingerprint
from ...schemas.known_keys import note_of
from ...steps.dropout_seeds import DropoutSeeds
from ...steps.held_rows import HeldRows
from ...steps.loss_scale import LossScale
from ...steps.optimizers import make_optimizer
from ...steps.sample_batch import SampleBatch
from ...steps.schedule import WarmUpAndDecay
from ...steps.train_step import TrainStep
from ..checkpoints.run_state import RunFacts, RunState
from ..checkpoints.warm_start import WarmStart
from ..evaluation.best_so_far import VALIDATION, BestSoFar
from ..evaluation.mean_loss import MeanLoss
from ..evaluation.memory import peak_memory
from ..evaluation.prediction import published_metrics
from ..evaluation.throughput import measure
from ..reports.published_lines import DLLOGGER
from .opened_dataset import selection
from .prepared_run import RunParts
from .replay import ReplayFeed, TrainFeed
from .replayed import BatchShares, batch_shares, open_replayed, parse_replay
from .training_loop import TrainingLoop, describe

FEW_STEPS = 100
"""Updates below which a run is told that smaller batches would train it further."""


class TrainingRun(RunParts):
    """Trains a model; evaluates and saves as it goes, or measures throughput."""

    def run(self) -> dict[str, Any]:
        """Train, or measure if asked to."""
        state = self._state()
        step = TrainStep(
            self.model,
            state.optimizer,
            state.loss_scale,
            self.ranks,
            self.compiles_all,
            self.config.fp16_compression,
            self.config.gradient_exchange == "dense",
            self.own_variables,
            self._held_rows(state),
        )
        dropout_seeds = DropoutSeeds(self.model, int(self.config.seed or 0), self.ranks.rank)
        if self.family.counts_targets:
            self.model.take_target_counts(self._target_counts())
        if self.config.benchmark:
            return self._benchmark(step, dropout_seeds)
        train_feed = self._train_feed()
        if state.position.epoch < self.config.epochs and self.config.max_steps is None:
            self._warn_of_few_steps(train_feed)
            self._warn_of_later_checkpoints(state.position.steps)
        held_out = self._held_out()
        with StopRequest() as stop:
            loop = TrainingLoop(
                config=self.config,
                family=self.family,
                ranks=self.ranks,
                state=state,
                step=step,
                train_feed=train_feed,
                held_out=held_out,
                select_by=selection(self.config, self.dataset),
                places=self.places_to_save(held_out["test"]),
                predict=self.predictor(),
                user=self.user,
                log=self.log,
                watchdog=self.watchdog,
                stop=stop,
                dropout_seeds=dropout_seeds,
                loss_of_test=self._loss_of_test(),
            )
            evaluation = loop.run()
        self.write_evaluation(evaluation)
        self._tell_of_best(state.position.best)
        values = {
            **(state.position.finished_epoch or {}),
            **published_metrics(evaluation, self.family.metrics),
            **state.position.best.published(),
            **loop.times.values(),
            "time_to_train": loop.seconds,
            "throughput": loop.throughput,
            "samples": loop.samples,
            **peak_memory(),
        }
        self.log.write("result", step=state.position.steps, **values)
        return values

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
                " stay, and whoever loads from there gets the last that is whole."
            )

    def _held_out(self) -> dict[str, Loader]:
        """Open what the run is evaluated on: test data, and validation data where there are any."""
        mappings = [name for name in ("test", VALIDATION) if name in self.dataset.spec.source_spec]
        return {mapping: self.test_feed(mapping=mapping) for mapping in mappings}

    def _tell_of_best(self, best: BestSoFar) -> None:
        """Say which evaluation was best by validation data, and which checkpoint is kept."""
        saved, chosen_by = self.config.save_checkpoint_path, selection(self.config, self.dataset)
        has_store = saved is not None and chosen_by is not None and self.ranks.is_first
        name = CheckpointStore(saved).best(chosen_by) if saved and has_store else None
        kept = f"{saved}/{name}" if name else None
        if best.metrics:
            also = f"; kept as {kept}" if kept and chosen_by == VALIDATION else ""
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
        named = _flat(self.dataset.channels)
        return [name for name in self.dataset.schema.column_names if name in named]

    def _loss_of_test(self) -> Callable[[], float] | None:
        """Return what computes the published log's test loss; None for a log without it."""
        if self.config.log_format != DLLOGGER:
            return None
        feed, mean_loss = self.test_feed(self._trained_columns), MeanLoss(self.model)

        def compute() -> float:
            feed.start_at(0)
            return mean_loss(feed, self.ranks, self.watchdog.alive)

        return compute

    def _target_counts(self) -> npt.NDArray[np.int64]:
        """Count how often each item is a training sample's, over all ranks, as epoch 1 has them."""
        item = self.dataset.channels[TARGET_ITEM_FEATURES][0]
        rows = int(self.dataset.schema[item].int_domain.max) + 1
        counts = np.zeros(rows, np.int64)
        for given in self._train_feed([item, self.family.label(self.dataset.channels)]):
            self.watchdog.alive()
            batch = SampleBatch(*given)
            ids = batch.counted(batch.columns[item].numpy().reshape(-1))
            counts += np.bincount(ids, minlength=rows)
        return collectives.sum_counts(counts, self.ranks)

    def _train_feed(self, columns: list[str] | None = None) -> TrainFeed:
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
        return self.told_of_threads(feed)

    @functools.cached_property
    def _replayed(self) -> tuple[DatasetDirectory, BatchShares] | None:
        """The older dataset, and of how many rows of each a batch consists."""
        config = self.config
        if config.replay is None:
            return None
        place, share = parse_replay(config.replay)
        old = open_replayed(place, config.feature_spec, self.dataset)
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
        variables = self.model.trainable_variables
        optimizer = make_optimizer(
            config.optimizer,
            variables,
            self._rate(),
            config.weight_decay,
            config.table_weight_decay,
        )
        facts = RunFacts(
            str(config.model_type),
            self.model.options.to_dict(),
            config.optimizer,
            self.fingerprint,
            config.amp,
            self._order(),
            self._ids(),
            selection(config, self.dataset),
        )
        state = RunState(self.model, optimizer, LossScale(config.amp, config.loss_scale), facts)
        if self.resumed:
            self._restore(state)
        elif self.config.warm_start is not None:
            self._start_warm(state)
        # Broadcast: every rank begins with the weights of the first.
        own = state.parts
        shared = [variable for name, variable in state.variables.items() if name not in own]
        collectives.broadcast(shared, self.ranks)
        return state

    def _held_rows(self, state: RunState) -> HeldRows | None:
        """Say which rows of tables move by a part only, where a run is told so."""
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
                begin = 0 if part is None else part.places(variable.shape)[0][0]
                rows[variable.ref()] = max(0, min(known[name] - begin, int(variable.shape[0])))
        return HeldRows(rows, rate)

    def _ids(self) -> dict[str, Any] | None:
        """Note what ids mean, for whoever goes on from the checkpoints with other data."""
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
            place = (position.epoch, position.step)
            self.log.write("resume", place, step=position.steps, checkpoint=str(path))

        collectives.on_first_rank(restore, self.ranks)
        self._restore_own(state)
        position = collectives.broadcast_object(state.position, self.ranks)
        if not self.ranks.is_first:
            position.auc.counts[:] = 0  # the first rank has those of all
        state.position = position

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
            warm.restore(self.checkpoint)
            path, steps = self.checkpoint.path, state.position.steps
            added = {table: rows for table, rows in warm.added.items() if rows}
            grown = ", ".join(f"{table} {rows:,}" for table, rows in added.items())
            begin = f"new rows ({self.config.new_rows}): {grown}" if added else "no new rows"
            self.log.say(f"warm start from {path}, {steps} steps done; {begin}")
            self.log.write("warm_start", (0, 0), step=steps, checkpoint=str(path), new_rows=added)

        collectives.on_first_rank(restore, self.ranks)
        self._restore_own(warm)
        state.position = collectives.broadcast_object(state.position, self.ranks)

    def _benchmark(self, step: TrainStep, dropout_seeds: DropoutSeeds) -> dict[str, Any]:
        done = 0
        last: dict[str, float] = {}

        feed = self._train_feed()

        def train(given: Any) -> tuple[int, dict[str, float]]:
            nonlocal done, last
            self.watchdog.alive()
            dropout_seeds.start_step(done)
            done += 1
            result = step.on_given(given, feed.make)
            losses = result.losses.numpy().tolist()
            last = dict(zip(self.family.losses, losses, strict=True))
            return round(float(result.samples)), last

        config = self.config
        values = measure(
            feed,
            train,
            config.benchmark_steps,
            config.benchmark_warmup_steps,
            self.log,
            "training",
        )
        self.log.write("benchmark", step=done, **values, **last, **peak_memory())
        shown = (f"{name} {value:,.5g}" for name, value in values.items())
        self.log.say("  ".join(shown))
        return values


def _flat(channels: dict[str, list[str]]) -> set[str]:
    return {name for names in channels.values() for name in names}
