"""Rows of tables that move by a part of what a step would move them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class HeldRows:
    """Holds the first rows of tables back, whatever the optimizer.

    Example:
        >>> table = tf.Variable([[1.0], [1.0]])
        >>> held = HeldRows({table.ref(): 1}, 0.25)
        >>> held.while_applied([table], lambda: table.assign_add([[4.0], [4.0]]))
        >>> table.numpy().tolist()
        [[2.0], [5.0]]

    What an optimizer keeps of these rows goes on as if they had moved.
    """

    rows: Mapping[Any, int]
    """Reference of a table -> how many of its first rows are held."""
    rate: float
    """The part that they move by: 0 leaves them as they are."""

    def while_applied(self, variables: list[tf.Variable], apply: Callable[[], Any]) -> None:
        """Apply gradients, then take back what is too much.

        Args:
            variables: All that may change.
            apply: Changes them.
        """
        held = [(v, self.rows[v.ref()]) for v in variables if self.rows.get(v.ref())]
        before = [tf.identity(variable[:rows]) for variable, rows in held]
        with tf.control_dependencies(before):
            apply()
        for (variable, rows), were in zip(held, before, strict=True):
            with tf.device(variable.device):
                moved = variable[:rows] - were
                variable[:rows].assign(were + self.rate * moved if self.rate else were)
