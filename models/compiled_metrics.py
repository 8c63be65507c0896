"""The metrics that ``compile`` is given, as Merlin's ``compile`` takes them."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from merlin.models.tf.metrics import metrics_registry

from .blocks.checks import OptionError


def read_metrics(option: str, metrics: Any, output: str) -> Any:
    """Turn the names and functions that Merlin does not know into Keras metrics.

    Args:
        option: ``"metrics"`` or ``"weighted_metrics"``.
        metrics: what the user gave for it.
        output: the output's name, the only key that a dictionary may have.

    Raises:
        OptionError: where they are of another output.
    """
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
