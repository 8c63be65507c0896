"""What was appended to a store, as Prometheus reads it."""

from __future__ import annotations

from collections import Counter

_PREFIX = "merlin_sim_histories_append"
INTERACTIONS, REQUESTS = "merlin_sim_histories_appends", f"{_PREFIX}_requests"
WRITES, REFUSED, FAILED = f"{_PREFIX}_writes", f"{_PREFIX}_refused", f"{_PREFIX}_failures"
SECONDS = f"{_PREFIX}_seconds"
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
DESCRIPTIONS = {
    INTERACTIONS: "Interactions that were kept",
    REQUESTS: "Requests that brought them",
    WRITES: "Writes to the store; one may be for several requests",
    REFUSED: "Requests that were refused",
    FAILED: "Requests whose interactions could not be kept",
    SECONDS: "Seconds in writes",
    f"{SECONDS}_bucket": "Writes that took so many seconds at most",
}


class AppendCounts:
    """Counts in memory, and is asked."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._counts: Counter[str] = Counter()
        self._within: Counter[float] = Counter()

    def add(self, name: str, count: int = 1) -> None:
        """Add to a number."""
        self._counts[name] += count

    def add_seconds(self, seconds: float) -> None:
        """Count how long a write took."""
        self._counts[SECONDS] += seconds  # type: ignore[assignment]
        self._within.update(bound for bound in BOUNDS if seconds <= bound)

    def text(self) -> str:
        """Tell all of it, in Prometheus's form.

        >>> counts = AppendCounts()
        >>> counts.add(WRITES)
        >>> counts.add_seconds(0.25)
        >>> counts.text().splitlines()[-2:]  # doctest: +NORMALIZE_WHITESPACE
        ['merlin_sim_histories_append_seconds_bucket{le="1.0"} 1',
         'merlin_sim_histories_append_seconds_bucket{le="+Inf"} 1']
        """
        lines = []
        for name, text in DESCRIPTIONS.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
            if name.endswith("_bucket"):
                lines += [f'{name}{{le="{bound}"}} {self._within[bound]}' for bound in BOUNDS]
                lines.append(f'{name}{{le="+Inf"}} {self._counts[WRITES]}')
            else:
                lines.append(f'{name}{{process="front"}} {self._counts[name]}')
        return "\n".join(lines) + "\n"
