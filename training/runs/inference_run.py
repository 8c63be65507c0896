"""Inference: throughput and latency of the forward pass, and the metrics of trained weights."""

from __future__ import annotations

import time
from typing import Any

from ...models.saved_weights import restore_weights
from ...ranks import collectives
from ...steps.sample_batch import SampleBatch
from ..evaluation.memory import peak_memory
from ..evaluation.prediction import evaluate, published_metrics
from ..evaluation.throughput import measure
from .prepared_run import RunParts


class InferenceRun(RunParts):
    """Scores the test data: with weights of a checkpoint, or as published with random ones."""

    def run(self) -> dict[str, Any]:
        """Measure if asked to, else score every row once."""
        checkpoint = self.checkpoint_of_every_rank() if self.own_variables else self.checkpoint

        def load() -> None:
            if checkpoint is not None:
                restore_weights(self.model, checkpoint)

        collectives.on_every_rank(load, self.ranks)
        own = {variable.ref() for variable in self.own_variables}
        shared = [variable for variable in self.model.variables if variable.ref() not in own]
        collectives.broadcast(shared, self.ranks)
        if not self.resumed and not self.config.benchmark:
            self.log.say(
                "no --load_checkpoint_path: the weights are random, the metrics tell nothing"
            )
        values = self._benchmark() if self.config.benchmark else self._score()
        self.log.write("inference", **values, **peak_memory())
        shown = (f"{name} {value:,.5g}" for name, value in values.items() if value is not None)
        self.log.say("  ".join(shown))
        return values

    def _benchmark(self) -> dict[str, Any]:
        predict = self.predictor()

        def step(batch: SampleBatch, rows: int) -> tuple[int, dict[str, float]]:
            self.watchdog.alive()
            predict(batch.with_a_row().columns).numpy()
            samples = rows if batch.weights is None else batch.samples * self.ranks.size
            return samples, {}

        config = self.config
        values = measure(
            self.test_feed(),
            step,
            config.benchmark_steps,
            config.benchmark_warmup_steps,
            self.log,
            "inference",
        )
        throughputs = collectives.gather_objects(values["throughput"], self.ranks)
        return {**values, "throughput": min(throughputs)}  # the slowest rank decides

    def _score(self) -> dict[str, Any]:
        begin = time.perf_counter()
        feed = self.test_feed()
        evaluation = evaluate(
            self.predictor(),
            feed,
            self.ranks,
            self.log,
            self.user,
            alive=self.watchdog.alive,
            tells_steps=True,
            places=self.places_to_save(feed),
        )
        assert evaluation is not None
        seconds = time.perf_counter() - begin
        self.write_evaluation(evaluation)
        return {
            **published_metrics(evaluation, self.family.metrics),
            "rows": evaluation.rows,
            "throughput": evaluation.rows / seconds,
            "time": seconds,
        }
