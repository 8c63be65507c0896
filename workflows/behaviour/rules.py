"""The rules by which a log becomes samples, as the published preprocessing has them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...foundation.exceptions import MerlinSimError
from ...schemas.users_layout import NEGATIVES, POPULARITY
from .split import Split, last_mappings

NONE = "none"
"""No negative samples are drawn: the log has them."""
DRAWS = (*NEGATIVES, NONE)
UNKNOWN_ORDER = "unknown"
LOG_ORDER = "log"
HASH_ORDER = "hash"
ITEM_ORDER = "item"
ORDERS = (UNKNOWN_ORDER, LOG_ORDER, HASH_ORDER, ITEM_ORDER)
NEWEST = "newest"
TRAIN_ROWS, ALL_ROWS = "train", "all"
AS_OF_SAMPLE = "as_of_sample"
LATEST = "latest"
FEATURE_VALUES = (AS_OF_SAMPLE, LATEST)
SPLIT_RULES = (
    "test_from",
    "validation_from",
    "test_users",
    "validation_users",
    "test_files",
    "validation_files",
)


@dataclass(frozen=True)
class SampleRules:
    """Which users are kept, what a sample holds, and the seed of the draws."""

    max_sequence_length: int = 100
    """Interactions of a history that a sample keeps, the newest."""
    shortest_sequence_for_user: int = 20
    """Users with fewer interactions are dropped."""
    shortest_sequence_for_training: int = 1
    """Interactions that a training sample has before it, at least."""
    seed: int = 12345
    """Decides the negatives and the order of rows."""
    pad: bool = False
    """Write histories left-padded with 0 to max_sequence_length, as published."""
    negatives: str = POPULARITY
    """Draw negatives by popularity, or each item as often as any other (uniform), or none: then
    negative histories alone are drawn, by popularity."""
    negatives_per_positive: int = 1
    """Negative samples that are drawn for each positive one."""
    negatives_not_in_history: bool = False
    """Draw no item as a negative sample that its user's history has, before or after it."""
    equal_times: str = UNKNOWN_ORDER
    """The order of a user's interactions of one time. ``unknown``: a sample's history holds only
    what came before the sample's own time, and a hash orders what has one time. ``log``: they
    stand as in the log, and those before a sample are its history. ``hash``: the same, in the
    order of a hash. ``item``: the same, in the order of the item's key, as published."""
    fit_on: str = TRAIN_ROWS
    """The rows that ids, counts and numbers are fitted on: those that train, or all, as published.
    What stands in other rows alone has no id."""
    validation: str | None = None
    """``newest``: where the split names no part that validates, the newest of what would train
    validates. None: nothing does."""

    feature_values: str = AS_OF_SAMPLE
    """Which values of users' and items' features a sample has: those known at its own time, or the
    latest of the log, which tell training what came after."""
    test_from: str | None = None
    """See :class:`~merlin_sim.workflows.behaviour.split.Split`, and so for the next five."""
    validation_from: str | None = None
    test_users: float | None = None
    validation_users: float | None = None
    test_files: bool | None = None
    validation_files: bool | None = None

    def __post_init__(self) -> None:
        """Gather every problem, raise once."""
        least = {
            "max_sequence_length": 1,
            "shortest_sequence_for_user": 1,
            "shortest_sequence_for_training": 0,
            "negatives_per_positive": 1,
        }
        problems = [
            f"`{name}` should be at least {value}. Received: `{name}` = {getattr(self, name)}."
            for name, value in least.items()
            if getattr(self, name) < value
        ]
        if not 0 <= self.seed < 2**63:
            problems.append(f"`seed` should lie in 0..2**63 - 1. Received: `seed` = {self.seed}.")
        chosen: dict[str, tuple[str | None, ...]] = {
            "negatives": DRAWS,
            "equal_times": ORDERS,
            "fit_on": (TRAIN_ROWS, ALL_ROWS),
            "validation": (None, NEWEST),
            "feature_values": FEATURE_VALUES,
        }
        for name, choices in chosen.items():
            value = getattr(self, name)
            if value not in choices:
                expected = " or ".join(map(str, choices))
                problems.append(f"`{name}` should be {expected}. Received: `{name}` = {value!r}.")
        if self.negatives == NONE and self.negatives_per_positive != 1:
            problems.append(
                "`negatives_per_positive` needs `negatives` that are drawn. "
                f"Received: `negatives_per_positive` = {self.negatives_per_positive} with "
                f"`negatives` = {NONE!r}."
            )
        problems += self.split.problems() if self.split else []
        if problems:
            raise MerlinSimError("\n".join(problems))

    @property
    def split(self) -> Split | None:
        """What tests, if it is not each user's last interaction."""
        given = {name: getattr(self, name) for name in SPLIT_RULES}
        if all(value is None for value in given.values()):
            return None
        if self.validation and self.test_users and self.validation_users is None:
            given["validation_users"] = min(self.test_users, (1 - self.test_users) / 2)
        return Split(**given, seed=self.seed)

    @property
    def validates_last(self) -> bool:
        """Whether the interaction before each user's last one validates."""
        return self.split is None and self.validation is not None

    @property
    def mappings(self) -> tuple[str, ...]:
        """The mappings that a dataset gets."""
        return self.split.mappings if self.split else last_mappings(self.validates_last)

    @property
    def kept_for_next(self) -> int:
        """How many rows of a history the next day needs: those it sees, and those it counts."""
        return max(self.max_sequence_length, self.shortest_sequence_for_training)

    @property
    def twins(self) -> int:
        """How many negative samples are drawn for each positive one; 0 for none."""
        return 0 if self.negatives == NONE else self.negatives_per_positive

    @property
    def drawn_by(self) -> str:
        """How items are drawn, for samples and for negative histories."""
        return POPULARITY if self.negatives == NONE else self.negatives

    def to_dict(self) -> dict[str, Any]:
        """The rules as JSON holds them."""
        return asdict(self)
