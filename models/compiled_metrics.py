"""The metrics that ``compile`` is given, as Merlin's ``compile`` takes them; over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from merlin.models.tf.metrics import metrics_registry

from ..dataloader.loader import Loader
from ..parallel.ranks.collectives import gather_objects, joined
from ..parallel.steps.sample_batch import SampleBatch
from .blocks.checks import OptionError


def read_metrics(option: str, metrics: Any, output: str) -> Any:
    """Turn the names and functions that Merlin does not know into Keras metrics."""
    if isinstance(metrics, dict) and list(metrics) != [output]:
        raise OptionError(
            f"`{option}` should be for the one output, {output!r}. Received: {metrics!r}."
        )
    return tf.nest.map_structure(_read_metric, metrics)


def _read_metric(metric: Any) -> Any:
    if isinstance(metric, str) and metric not in metrics_registry:
        metric = tf.keras.metrics.get(metric)
    if callable(metric) and not isinstance(metric, tf.keras.metrics.Metric):
        return tf.keras.metrics.MeanMetricWrapper(metric, name=metric.__name__)
    return metric


class MetricsOverRanks(tf.keras.callbacks.Callback):
    """Adds the states of metrics up over ranks, as Keras does over the replicas of a strategy.

    Of validation data, which every rank may have a part of, it takes the mean.
    """

    def __init__(self) -> None:
        """Let Keras hand logs over as they are."""
        super().__init__()
        self._supports_tf_logs = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Forget the epoch before."""
        self._found: dict[str, float] | None = None

    def on_test_begin(self, logs: Any = None) -> None:
        """Look at the metrics of training before those of validation data replace them."""
        if self._found is None:
            self._found = self._over_ranks()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Replace what this rank alone has measured."""
        if logs is None:
            return
        own = {name: float(value) for name, value in logs.items() if name.startswith("val_")}
        of_ranks = gather_objects(own, joined())
        logs |= {name: float(np.mean([values[name] for values in of_ranks])) for name in own}
        logs |= self._over_ranks() if self._found is None else self._found

    def _over_ranks(self) -> dict[str, float]:
        variables = variables_of(self.model.metrics)
        own = [variable.numpy() for variable in variables]
        for variable, total in zip(variables, states_over_ranks(self.model.metrics), strict=True):
            variable.assign(total)
        found = {name: float(value) for name, value in self.model.get_metrics_result().items()}
        for variable, state in zip(variables, own, strict=True):
            variable.assign(state)
        return found


def variables_of(metrics: Iterable[tf.keras.metrics.Metric]) -> list[tf.Variable]:
    """Return the variables that metrics keep, one metric after the other."""
    return [variable for metric in metrics for variable in metric.variables]


def states_over_ranks(metrics: Iterable[tf.keras.metrics.Metric]) -> list[npt.NDArray[Any]]:
    """Return the states of metrics, of all ranks added up; all ranks call this.

    A metric whose states are no sums has ``add_up(states)``, of the states of each rank.
    """
    metrics = list(metrics)
    own = [[variable.numpy() for variable in metric.variables] for metric in metrics]
    of_ranks = gather_objects(own, joined())
    found: list[npt.NDArray[Any]] = []
    for metric, *states in zip(metrics, *of_ranks, strict=True):
        found += getattr(metric, "add_up", _sums)(states)
    return found


def _sums(states: list[list[npt.NDArray[Any]]]) -> list[npt.NDArray[Any]]:
    return [np.sum(parts, axis=0, dtype=parts[0].dtype) for parts in zip(*states, strict=True)]


def require_users_together(
    metrics: Iterable[tf.keras.metrics.Metric], loader: Loader, user: str | None
) -> None:
    """Refuse metrics that go by users where a loader's samples of one are apart."""
    for metric in metrics:
        if not hasattr(metric, "take_users"):
            continue
        name = str(metric.user or user)
        if name in loader.input_schema.column_names and not loader.keeps_together(name):
            raise OptionError(
                f"`{metric.name}`: expected the samples of each {name} one after another. Found: "
                f"those of {loader.files[0]} and what follows are apart. `ms.callbacks.Evaluation` "
                "and `merlin-sim train` keep the scores of all rows to measure it there."
            )


def give_users(
    metrics: Iterable[tf.keras.metrics.Metric], batch: SampleBatch, user: str | None
) -> None:
    """Hand the metrics that go by users those of the samples that come next."""
    for metric in metrics:
        if not hasattr(metric, "take_users"):
            continue
        name = metric.user or user
        if name not in batch.columns:
            raise OptionError(
                f"`{metric.name}` should be of a column that the model reads, to tell users apart. "
                f"Received: {name!r}; {', '.join(sorted(batch.columns))} are read."
            )
        users = tf.reshape(tf.cast(batch.column(name), tf.int64), [-1])
        alone = -1 - tf.range(tf.size(users, tf.int64))  # without an id, no two are known as one
        metric.take_users(tf.where(users > 0, users, alone))
