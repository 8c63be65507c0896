"""One rule of a filter: a fact of the item, compared with a value or with a fact of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.exceptions import MerlinSimError

Compare = Callable[[pa.Array, Any], pa.Array]


def _is_in(facts: pa.Array, values: Any) -> pa.Array:
    # `is_in` says false of a missing fact; here it is missing, which fails the opposite too.
    found = pc.is_in(facts, value_set=values)
    return pc.if_else(pc.is_valid(facts), found, pa.scalar(None, pa.bool_()))


COMPARISONS: dict[str, Compare] = {
    "is": pc.equal,
    "is_not": pc.not_equal,
    "in": _is_in,
    "not_in": lambda facts, values: pc.invert(_is_in(facts, values)),
    "at_least": pc.greater_equal,
    "at_most": pc.less_equal,
}
OF_LISTS = ("in", "not_in")


@dataclass(frozen=True)
class UserFact:
    """A value that the request brings along, ``{user: age}``."""

    name: str


@dataclass(frozen=True)
class Predicate:
    """``column`` ``comparison`` ``value``, as ``least_age at_most {user: age}``.

    >>> ages = pa.array([18, 0, None, 12])
    >>> Predicate("least_age", "at_most", UserFact("age")).keep(ages, {"age": 12}).tolist()
    [False, True, False, True]
    """

    column: str
    """The fact of the item."""
    comparison: str
    """One of :data:`COMPARISONS`."""
    value: Any
    """A value, a list of them for ``in`` and ``not_in``, or a :class:`UserFact`."""

    def keep(self, facts: pa.Array, user: Mapping[str, Any]) -> npt.NDArray[np.bool_]:
        """Say which items may be recommended; of one whose fact is missing that is not known.

        Args:
            facts: [items] Their facts.
            user: Facts of the user by name.

        Raises:
            MerlinSimError: Where a fact of the user is missing, or is no such value.
        """
        value = self.value
        if isinstance(value, UserFact):
            if value.name not in user:
                raise MerlinSimError(
                    f"the rule for {self.column!r} needs the fact {value.name!r} of the user "
                    f"(`--fact {value.name}=...`, or among the `facts` of a request). "
                    f"Received: {', '.join(user) or 'none'}."
                )
            value = user[value.name]
        kept = COMPARISONS[self.comparison](facts, self.operand(value, facts.type))
        answer: npt.NDArray[np.bool_] = np.asarray(pc.fill_null(kept, False))
        return answer

    def operand(self, value: Any, kind: pa.DataType) -> Any:
        """Return a value, or a list of them, as what facts of this type are compared with.

        Raises:
            MerlinSimError: Where it cannot be.
        """
        try:
            if self.comparison in OF_LISTS:
                return pa.array(value if isinstance(value, list) else [value], kind)
            return pa.scalar(value, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise MerlinSimError(
                f"the rule for {self.column!r}: expected {kind}, as its facts are. "
                f"Received: {value!r:.60}"
            ) from error
