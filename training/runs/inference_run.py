"""Inference: throughput and latency of the forward pass, and the metrics of trained weights."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import islice
from typing import Any

from ...models.blocks.embeddings.sharded_tables import own_variables
from ...models.saving import restore_weights
from ...parallel.checkpoints.checkpoint_files import CheckpointError, SavedCheckpoint
from ...parallel.ranks import collectives
from ...schemas.known_keys import grown_domains
from ..checkpoints.run_state import ids_of
from ..evaluation.evaluate import evaluate
from ..evaluation.throughput import Measurement, peak_memory
from .prepared_run import RunParts


class InferenceRun(RunParts):
    """Scores the test data: with weights of a checkpoint, or as published with random ones."""

    def run(self) -> dict[str, Any]:
        """Measure if asked to, else score every row once."""
        own = own_variables(self.model)
        checkpoint = self.checkpoint_of_every_rank() if own else self.checkpoint

        def load() -> None:
            if checkpoint is not None:
                self._check_grown(checkpoint)
                restore_weights(self.model, checkpoint)

        collectives.on_every_rank(load, self.ranks)
        refs = {variable.ref() for variable in own}
        shared = [variable for variable in self.model.variables if variable.ref() not in refs]
        collectives.broadcast(shared, self.ranks)
        if not self.resumed and not self.config.benchmark:
            self.log.say(
                "no --load_checkpoint_path: the weights are random, the metrics mean nothing"
            )
        values = self._benchmark() if self.config.benchmark else self._score()
        self.log.write("inference", **values, **peak_memory())
        shown = (f"{name} {value:,.5g}" for name, value in values.items() if value is not None)
        self.log.say("  ".join(shown))
        return values

    def _check_grown(self, checkpoint: SavedCheckpoint) -> None:
        """Refuse a dataset that has ids of which the model has no rows."""
        grown = grown_domains(ids_of(checkpoint), self.dataset.schema)
        if grown:
            lines = "\n".join(f"  {domain}" for domain in grown)
            raise CheckpointError(
                f"{self.dataset.path} has grown since {checkpoint.path} was trained:\n{lines}\n"
                "Train the model on it (`merlin-sim train --warm_start`), or preprocess the log by "
                "--fitted without --grow, where new keys are unknown ones."
            )

    def _benchmark(self) -> dict[str, Any]:
        predict, feed = self.predictor(), self.test_feed()
        in_a_pass = feed.plan(0).steps
        total, warmup = self.benchmark_steps(in_a_pass)
        measurement, done = Measurement(self.log, warmup, in_a_pass), 0
        with self.log.progress("inference", total) as line:
            while done < total:
                feed.start_at(done // in_a_pass)
                with closing(feed.inputs()) as inputs:
                    for given in islice(inputs, total - done):
                        self.watchdog.alive()
                        done += 1
                        samples = len(predict.of_given(given, feed).scores) * self.ranks.size
                        line.update(done, measurement.add(done, [samples], [{}]))
        values = measurement.results()
        throughputs = collectives.gather_objects(values["throughput"], self.ranks)
        return {**values, "throughput": min(throughputs)}  # the slowest rank decides

    def _score(self) -> dict[str, Any]:
        begin = time.perf_counter()
        feed = self.test_feed()
        found = evaluate(
            self.predictor(),
            feed,
            self.ranks,
            self.log,
            self.user,
            alive=self.watchdog.alive,
            reports_steps=True,
            locations=self.locations_to_save(feed),
        )
        assert found is not None
        evaluation, _ = found
        seconds = time.perf_counter() - begin
        self.write_evaluation(evaluation)
        return {
            **evaluation.published(self.family.metrics),
            "rows": evaluation.rows,
            "throughput": evaluation.rows / seconds,
            "time": seconds,
        }
