"""The best evaluation of a run so far, by rows that no choice was made on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...schemas.layout_names import VALIDATION

HOW_TO_VALIDATE = (
    "Make the dataset with a part that validates, as with --validation_users 0.1 or "
    "--validation_from."
)


@dataclass
class BestSoFar:
    """Compares evaluations by their AUC of the validation data.

    >>> best = BestSoFar()
    >>> for step, auc in enumerate([0.6, 0.7, 0.69], start=1):
    ...     best.take(step, {"validation_auc": auc})
    >>> best.steps, best.no_better
    (2, 1)
    """

    steps: int = 0
    """Steps done in all when the best was seen; 0 where none was."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """What was measured then, of validation and test data."""
    no_better: int = 0
    """Evaluations since then."""

    def take(self, steps: int, metrics: Mapping[str, Any]) -> None:
        """Compare one more evaluation; one without an AUC of validation data says nothing."""
        auc = metrics.get(f"{VALIDATION}_auc")
        if auc is None:
            return
        if not self.metrics or auc > self.metrics[f"{VALIDATION}_auc"]:
            self.steps, self.metrics, self.no_better = steps, dict(metrics), 0
        else:
            self.no_better += 1

    def published(self) -> dict[str, Any]:
        """Return what the log says of it at the end of a run; nothing where none was seen."""
        if not self.metrics:
            return {}
        named = {f"best_{name}": value for name, value in self.metrics.items()}
        return {"best_step": self.steps, **named}
