"""What runs are measured by: how it is called, written, and which way is better."""

from __future__ import annotations

from typing import NamedTuple

from ...foundation.exceptions import MerlinSimError


class Measure(NamedTuple):
    """One number of a run's end."""

    title: str
    form: str
    """As :func:`format` takes it."""
    more_is_better: bool | None = True
    """None where neither way is."""

    def shown(self, value: float | None) -> str:
        """Write a value; nothing for one that is not there."""
        return "" if value is None else format(value, self.form)


MEASURES = {
    "test_auc": Measure("Test AUC", ".4f"),
    "test_exact_auc": Measure("Test AUC, exact", ".4f"),
    "validation_auc": Measure("Validation AUC", ".4f"),
    "best_validation_auc": Measure("Best validation AUC", ".4f"),
    "best_test_auc": Measure("Test AUC where validation AUC was best", ".4f"),
    "test_gauc": Measure("Test AUC within users", ".4f"),
    "test_log_loss": Measure("Test log loss", ".4f", False),
    "test_calibration_error": Measure("Test calibration error", ".4f", False),
    "train_auc": Measure("Training AUC", ".4f", None),
    "total_loss": Measure("Training loss", ".4f", None),
    "throughput": Measure("Throughput (samples/s)", ",.0f"),
    "latency_mean": Measure("Step latency, mean (ms)", ".1f", False),
    "latency_p99": Measure("Step latency, 99% below (ms)", ".1f", False),
    "time_to_train": Measure("Time to train (s)", ",.1f", False),
    "peak_memory_gib": Measure("Peak memory (GiB)", ".2f", False),
    "peak_gpu_memory_gib": Measure("Peak GPU memory (GiB)", ".2f", False),
}


def measure_of(name: str) -> Measure:
    """Return a measure by its name in the log."""
    if name not in MEASURES:
        raise MerlinSimError(f"measures should be of {', '.join(MEASURES)}. Received: {name!r}")
    return MEASURES[name]
