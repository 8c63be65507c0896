"""What the checks found, and what of it training would suffer from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Bounds:
    """From where on something is a problem; each but the AUC is a share, 0 to 1."""

    repeated: float = 0.05
    """Rows of a mapping that repeat another one of it."""
    test_in_train: float = 0.05
    """Rows of what tests that train, too."""
    feature_auc: float = 0.9
    """AUC of one feature alone."""
    order_auc: float = 0.7
    """AUC of an order that nobody behaved in: of ids, of keys, of rows in a file."""
    unseen: float = 0.2
    """Rows of what tests whose id no row of train has."""
    without_history: float = 0.5
    """Users without history in any of their rows."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """What was looked for."""
    where: str
    """A mapping or a feature."""
    value: float | None
    """What was found; None where there is nothing to tell."""
    bound: float | None
    """Beyond it, it is a problem; None where ``problem`` follows from something else."""
    problem: bool
    says: str
    """The same to be read."""

    def to_dict(self) -> dict[str, Any]:
        """It as JSON holds it."""
        return asdict(self)


def share_finding(
    check: str, where: str, count: int, of: int, bound: float, what: str = "rows"
) -> Finding:
    """A share that should not be larger than a bound.

    >>> share_finding("repeated rows", "train", 3, 100, 0.01).says
    '3.00% (3 of 100 rows)'
    """
    share = count / of if of else 0.0
    says = f"{share:.2%} ({count:,} of {of:,} {what})"
    return Finding(check, where, share, bound, share > bound, says)
