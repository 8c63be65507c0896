"""The one place of the workflows' column names: what a log has and what a dataset gets."""

from __future__ import annotations

from dataclasses import dataclass

from ...foundation.exceptions import MerlinSimError

LABEL = "label"
POSITION = "position"
TARGET_SUFFIX = "_trgt"
POSITIVE_SUFFIX = "_pos"
NEGATIVE_SUFFIX = "_neg"


@dataclass(frozen=True)
class BehaviourColumns:
    """The columns of a behaviour log; each but the timestamp names a domain of ids.

    >>> columns = BehaviourColumns("user_id", "item_id", "timestamp", item_features=("cat_id",))
    >>> columns.targets
    ('item_id_trgt', 'cat_id_trgt')
    >>> columns.output[:4]
    ('label', 'user_id', 'item_id_trgt', 'cat_id_trgt')
    """

    user: str
    """Whose behaviour; the first user feature."""
    item: str
    """What was interacted with; the first item feature."""
    timestamp: str
    """When: an integer column (or one that the reader turned into integers)."""
    user_features: tuple[str, ...] = ()
    """Further columns of the user; a user has the value of the last interaction."""
    item_features: tuple[str, ...] = ()
    """Further columns of the item; an item has the value of its last interaction."""
    label: str | None = None
    """1 where the item was taken (clicked), 0 where it was shown and not taken. None: the log has
    only what was taken."""

    def __post_init__(self) -> None:
        """Refuse names that would collide in the dataset, or could not name a file."""
        for name in self.log:
            if not name or "/" in name or name[-1] in "_-. " or name.startswith("."):
                raise MerlinSimError(
                    "A column's name becomes a file's: it should not be empty, contain `/`, begin "
                    f"with `.` or end in one of `_-. `. Received: {name!r}."
                )
        # The column of labels becomes the dataset's label, so it may be called like that.
        names = [*self.log, POSITION, *([] if self.label == LABEL else [LABEL])]
        twice = sorted({name for name in [*names, *self.output] if names.count(name) > 1})
        outputs = list(self.output)
        twice += sorted({name for name in outputs if outputs.count(name) > 1} - set(twice))
        if twice:
            raise MerlinSimError(
                f"Column names should be different from each other, from `{LABEL}` and from "
                f"`{POSITION}`. Received more than once: {', '.join(twice)}."
            )

    @property
    def log(self) -> tuple[str, ...]:
        """The columns read from the log."""
        return (
            self.user,
            self.item,
            self.timestamp,
            *self.user_features,
            *self.item_features,
            *self.labels,
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The column of labels, if there is one."""
        return () if self.label is None else (self.label,)

    @property
    def users(self) -> tuple[str, ...]:
        """The user features of the dataset; names of domains as well."""
        return (self.user, *self.user_features)

    @property
    def items(self) -> tuple[str, ...]:
        """The domains of the item: the item itself, then its features."""
        return (self.item, *self.item_features)

    @property
    def targets(self) -> tuple[str, ...]:
        """The target item's columns."""
        return tuple(name + TARGET_SUFFIX for name in self.items)

    @property
    def positives(self) -> tuple[str, ...]:
        """The positive history's columns, in the order of ``targets``."""
        return tuple(name + POSITIVE_SUFFIX for name in self.items)

    @property
    def negatives(self) -> tuple[str, ...]:
        """The negative history's columns, in the order of ``targets``."""
        return tuple(name + NEGATIVE_SUFFIX for name in self.items)

    @property
    def output(self) -> tuple[str, ...]:
        """The dataset's columns in the published order."""
        return (LABEL, *self.users, *self.targets, *self.positives, *self.negatives)
