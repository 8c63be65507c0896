"""What this process has counted since a moment."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry


def counting(registry: CollectorRegistry = REGISTRY) -> Callable[..., float | None]:
    """Give a function: how much was counted under a name and labels from now on."""

    def now() -> dict:
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in registry.collect()
            for sample in family.samples
        }

    before = now()

    def counted(name: str, **labels: str) -> float | None:
        key = (name, *sorted(labels.items()))
        found = now().get(key)
        return None if found is None else found - before.get(key, 0)

    return counted
