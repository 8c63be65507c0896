"""The one place of the workflows' column names: what a log has and what a dataset gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..foundation.exceptions import MerlinSimError
from ..schemas.fitted_record import NOTHING, require_shape
from ..schemas.item_table import OWN_COLUMNS
from ..schemas.users_layout import JOINS, POSITIVE, SAMPLE
from .feature import (
    COUNT,
    INTERACTION,
    ITEM,
    NO_FEATURES,
    POPULARITY,
    SINCE_SUFFIX,
    TARGET,
    TARGET_SUFFIX,
    USER,
    Encoding,
    FeatureSet,
    Time,
)

LABEL_COLUMN = "label"
TAKEN_ROLES = JOINS | SAMPLE | POSITIVE
SHOWN_ROLES = SAMPLE
"""What part an interaction plays by its label alone: see ``interactions.py``."""
POSITION = "position"
POSITIVE_SUFFIX = "_pos"
NEGATIVE_SUFFIX = "_neg"
SECONDS = "seconds since 1970"
"""The timestamp on its way through the workflow, where more than its order counts."""
ROLE = "role of the interaction"
"""What part an interaction plays, on its way through the workflow; see ``interactions.py``."""
LOG_ROW = "place in the log"
"""How many rows of the log stand before an interaction, or more, in the order of the log."""
TIME_NUMBER = "moment of the interaction"
"""The number of an interaction's time among all times, on its way through the workflow."""
EARLIER = "samples before the log"
"""How many samples of a user there were before, where the log continues an earlier dataset."""


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
    """Further columns of the user; a sample has the last value that was known at its time."""
    item_features: tuple[str, ...] = ()
    """Further columns of the item; a sample has the last value that was known at its time."""
    label: str | None = None
    """1 where the item was taken (clicked), 0 where it was shown and not taken. None: the log has
    only what was taken."""
    behaviour: str | None = None
    """What was done (view, cart, buy), where a log has several behaviours."""
    history_behaviours: tuple[str, ...] = ()
    """Those that make history; none for all."""
    target_behaviours: tuple[str, ...] = ()
    """Those that are predicted; none for all."""
    features: FeatureSet = NO_FEATURES
    """What is made of further columns: numbers, times, lists and vectors. Those that become ids
    are added to the features above."""
    continued: bool = False
    """Whether rows of an earlier dataset's histories stand before those of the log."""
    own_time_excluded: bool = False
    """Whether a sample's history holds only what came before the sample's own time. In a log with
    labels it always does. The rules decide: see ``interactions.exclude_own_time``."""
    steady: tuple[str, ...] = ()
    """Of the users' stored columns those that are known to have one value for each user, which
    stands once in a history; all others are lists like the items."""
    item_values: bool = True
    """Whether the log says what is known of its items; else that is known already."""

    def __post_init__(self) -> None:
        for of, name in ((USER, "user_features"), (ITEM, "item_features")):
            given = getattr(self, name)
            more = [n for n in self.features.categories(of) if n not in given]
            object.__setattr__(self, name, (*given, *more))
        self._check_roles()
        self._take_unit_of_timestamp()
        self._check_behaviours()
        for name in self.log:
            if not name or "/" in name or name[-1] in "_-. " or name.startswith("."):
                raise MerlinSimError(
                    "A column's name becomes a file's: it should not be empty, contain `/`, begin "
                    f"with `.` or end in one of `_-. `. Received: {name!r}."
                )
        taken = [name for name in (*self.item_features, *self.of_items) if name in OWN_COLUMNS]
        if taken:
            raise MerlinSimError(
                "An item's features stand in a table beside its own columns, and should not be "
                f"called {', '.join(OWN_COLUMNS)}: rename them in the log. Received: "
                f"{', '.join(taken)}."
            )
        # The column of labels becomes the dataset's label, so it may be called like that.
        read = [name for name in self.features.columns if name not in self.keyed]
        label = [] if self.label == LABEL_COLUMN else [LABEL_COLUMN]
        names = [*self.keyed, *read, POSITION, *label]
        names += [SECONDS] * bool(self.features) + [*({*self.roles} & {ROLE})]
        names += [cross.name for cross in self.features.crosses]
        names += [name for encoding in self.features.encodings for name in encoding.days]
        twice = sorted({n for given in (names, self.output) for n in given if given.count(n) > 1})
        if twice:
            raise MerlinSimError(
                f"Column names should be different from each other, from `{LABEL_COLUMN}` and from "
                f"`{POSITION}`. Received more than once: {', '.join(twice)}."
            )

    def with_counts(self) -> BehaviourColumns:
        """Add lifetime counts and encodings of the item and of each of its features.

        The encodings are popularities or, with labels, counts and shares; with several behaviours
        there are none.

        >>> columns = BehaviourColumns("user", "item", "time", item_features=("brand",))
        >>> columns.with_counts().features.target_numbers[1:3]
        ('brand_popularity_trgt', 'item_lifetime_count_trgt')
        """
        kinds = (POPULARITY,) if self.label is None else (COUNT, TARGET)
        named = self.items if self.behaviour is None else ()
        stated = {encoding.column: encoding for encoding in self.features.encodings}
        encodings = tuple(stated.get(name) or Encoding(name, kinds) for name in named)
        features = replace(self.features, encodings=encodings, lifetime_counts=self.items)
        return replace(self, features=features)

    def _check_roles(self) -> None:
        """Refuse a column that is a key or a label and something else as well."""
        for feature in self.features:
            name = feature.name
            is_id = name in self.features.categories(feature.of)
            is_time = isinstance(feature, Time) and feature.of == INTERACTION
            if self.keyed.count(name) != int(is_id or (is_time and name == self.timestamp)):
                raise MerlinSimError(
                    f"{name!r}: expected a column that plays one part: `--features` makes "
                    "something else of it than what it is named for. (The timestamp may be a "
                    f"feature of the type time, of an {INTERACTION}.)"
                )

        for encoding in self.features.encodings:
            if TARGET in encoding.kinds and self.label is None:
                raise MerlinSimError(
                    f"encodings.{encoding.column}: {TARGET!r} needs a column of labels "
                    "(`--label_column`): without one every row was taken."
                )
        made_of = {"lifetime_counts": self.features.lifetime_counts}
        made_of |= {f"encodings.{e.column}": (e.column,) for e in self.features.encodings}
        made_of |= {f"crosses.{c.name}.columns": c.columns for c in self.features.crosses}
        for where, names in made_of.items():
            known, what = self.items, "the item or features of it"
            if where.startswith("crosses."):
                known, what = (*self.users, *self.items), "features of users and items"
            if unknown := [name for name in names if name not in known]:
                raise MerlinSimError(
                    f"{where}: expected {what}: {', '.join(known)}. Received: {', '.join(unknown)}."
                )

    def _take_unit_of_timestamp(self) -> None:
        """The timestamp has one unit, also where it is a feature that names its own."""
        unit = self.features.timestamp_unit
        for feature in self.features:
            if feature.name != self.timestamp or not isinstance(feature, Time) or not feature.unit:
                continue
            if unit not in (None, feature.unit):
                raise MerlinSimError(
                    f"{self.timestamp!r}: expected one unit, found {unit} (`timestamp_unit`) and "
                    f"{feature.unit} (`unit` of the feature {feature.name!r})."
                )
            features = replace(self.features, timestamp_unit=feature.unit)
            object.__setattr__(self, "features", features)

    def _check_behaviours(self) -> None:
        """Refuse behaviours that no column has, and a column that nothing is said of."""
        named = (*self.history_behaviours, *self.target_behaviours)
        if self.behaviour is None and named:
            raise MerlinSimError(
                "`history_behaviours` and `target_behaviours` need the column that has them "
                f"(`--behaviour_column`). Received: {', '.join(named)} without it."
            )
        if self.behaviour is not None and not named:
            raise MerlinSimError(
                f"A column of behaviours ({self.behaviour!r}) needs `--history_behaviours` (which "
                "of them make history), or `--target_behaviours` (which are predicted), or both. "
                "Received: neither."
            )
        if self.behaviour is not None and self.features.encodings:
            columns = ", ".join(encoding.column for encoding in self.features.encodings)
            raise MerlinSimError(
                "`encodings` count what was shown and taken: with a column of behaviours they are "
                f"not defined. Received: encodings of {columns} with {self.behaviour!r}."
            )

    @property
    def log(self) -> tuple[str, ...]:
        """The columns read from the log."""
        return tuple(dict.fromkeys((*self.keyed, *self.features.columns)))

    @property
    def keyed(self) -> tuple[str, ...]:
        """Those of them that are keys, the timestamp, the label and the behaviour."""
        return (
            self.user,
            self.item,
            self.timestamp,
            *self.user_features,
            *self.contexts,
            *self.item_features,
            *self.labels,
            *(() if self.behaviour is None else (self.behaviour,)),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The column of labels, if there is one."""
        return () if self.label is None else (self.label,)

    @property
    def roles(self) -> tuple[str, ...]:
        """What says of an interaction what part it plays, where not all play the same."""
        return (ROLE,) if self.continued or self.behaviour is not None else self.labels

    def roles_of(self, values: Any) -> Any:
        """The roles of interactions, from the column that ``roles`` names."""
        return values if self.roles == (ROLE,) else roles_of_labels(values)

    @property
    def history_in_words(self) -> str:
        """What a history is made of, for messages."""
        if self.history_behaviours:
            return f"interactions that make history ({', '.join(self.history_behaviours)})"
        return "interactions" if self.label is None else "taken items (label 1)"

    @property
    def needs_unit(self) -> bool:
        """Whether something is made of the timestamp that needs more than its order."""
        features = self.features
        return features.needs_unit or self.timestamp in features.columns

    @property
    def of_interactions(self) -> tuple[str, ...]:
        """Columns of numbers that each interaction has, on the way through the workflow."""
        numbers = (*self.features.numbers(INTERACTION), *self.changing_numbers)
        return (*numbers, SECONDS) if self.features.needs_seconds else numbers

    @property
    def of_users(self) -> tuple[str, ...]:
        """Columns of numbers that each user has."""
        numbers = tuple(name for name in self.features.numbers(USER) if name in self.steady)
        return (*numbers, EARLIER) if self.continued else numbers

    @property
    def stored_of_users(self) -> tuple[str, ...]:
        """What the log says of users, as columns are stored on the way through the workflow."""
        return (*self.user_features, *self.features.numbers(USER))

    @property
    def changing_numbers(self) -> tuple[str, ...]:
        """Numbers of users that are lists like the items: they may change."""
        return tuple(name for name in self.features.numbers(USER) if name not in self.steady)

    @property
    def changing_keys(self) -> tuple[str, ...]:
        """Keys of users that are lists like the items: they may change."""
        return tuple(name for name in self.user_features if name not in self.steady)

    @property
    def contexts(self) -> tuple[str, ...]:
        """Keys of the interaction itself, such as the device: its context."""
        return self.features.categories(INTERACTION)

    @property
    def time_numbers(self) -> tuple[str, ...]:
        """The column that numbers times, where rows of one time are not each other's history."""
        return (TIME_NUMBER,) if self.label is not None or self.own_time_excluded else ()

    @property
    def log_rows(self) -> tuple[str, ...]:
        """The column that numbers the rows of a log, where their order counts."""
        return (LOG_ROW,) if self.continued or self.items_in_log else ()

    @property
    def of_items(self) -> tuple[str, ...]:
        """Columns of an item without ids: numbers, vectors, lists."""
        features = self.features
        vectors = (feature.name for feature in features.vectors)
        return (*features.numbers(ITEM), *vectors, *self.list_names)

    @property
    def items_in_log(self) -> tuple[str, ...]:
        """What the log says of items, as columns are stored on the way through the workflow."""
        return (*self.item_features, *self.of_items) if self.item_values else ()

    @property
    def list_names(self) -> tuple[str, ...]:
        """The columns of lists of ids of items."""
        return tuple(feature.name for feature in self.features.lists)

    @property
    def intervals(self) -> tuple[str, ...]:
        """The column of time intervals, if there is one."""
        return (self.timestamp + SINCE_SUFFIX,) if self.features.time_intervals else ()

    @property
    def users(self) -> tuple[str, ...]:
        """The user and context features of the dataset; names of domains as well."""
        return (self.user, *self.user_features, *self.contexts)

    @property
    def items(self) -> tuple[str, ...]:
        """The domains of the item: the item itself, then its features."""
        return (self.item, *self.item_features)

    @property
    def domains(self) -> tuple[str, ...]:
        """The names of all vocabularies."""
        return (*self.users, *self.items, *self.list_names)

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
        histories = (*self.positives, *self.negatives)
        features = self.features
        numbers = (*features.user_numbers, *features.target_numbers)
        more = (*self.intervals, *features.target_lists, *numbers)
        return (LABEL_COLUMN, *self.users, *self.targets, *histories, *more)


def roles_of_labels(labels: Any) -> Any:
    """Return roles by labels alone: what was taken joins the history, all are samples."""
    return labels * (TAKEN_ROLES - SHOWN_ROLES) + SHOWN_ROLES


SHAPES: dict[str, Any] = {
    "str": str, "int": int, "bool": bool, "float": float, "None": NOTHING, "tuple[str, ...]": [str],
}  # fmt: skip


def checked_arguments(
    plain: Mapping[str, Any], kind: Any, where: str, leave_out: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The arguments of a dataclass of str, int, bool, tuples of str and None, read from JSON."""
    entries = [entry for entry in fields(kind) if entry.name not in leave_out]
    types = {entry.name: str(entry.type).split(" | ") for entry in entries}
    shape = {name: tuple(SHAPES[one] for one in of) for name, of in types.items()}
    require_shape(where, plain, shape)
    return {n: tuple(value) if isinstance(value, list) else value for n, value in plain.items()}
