"""Counters among Triton's metrics. Imported inside Triton only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton_python_backend_utils as backend


class Counters:
    """Counters by name and labels, made when they are first needed.

    Args:
        descriptions: Of each name.
    """

    def __init__(self, descriptions: Mapping[str, str]) -> None:
        """Make the families."""
        kind = backend.MetricFamily.COUNTER
        # A metric goes when its family does.
        self._families = {
            name: backend.MetricFamily(name=name, description=text, kind=kind)
            for name, text in descriptions.items()
        }
        self._metrics: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}

    def increment(self, name: str, labels: dict[str, str], count: float) -> None:
        """Add to a counter.

        Labels have to tell this process from others: Triton gives two processes that ask for the
        same labels one counter, and takes it away when the first of them ends.
        """
        key = (name, tuple(sorted(labels.items())))
        if key not in self._metrics:
            self._metrics[key] = self._families[name].Metric(labels=labels)
        self._metrics[key].increment(count)
