"""What a store of histories can do, whatever keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from ..foundation.exceptions import MerlinSimError
from .interaction import Interaction

FORMAT = 1


class StoreError(MerlinSimError):
    """A store that cannot be opened, read or written."""


class History(NamedTuple):
    """A user's interactions, oldest first."""

    items: list[Any]
    """Keys, or objects with keys, as a raw event has them."""
    times: list[float | None]
    """When each was; None where nobody said."""


class Filling(Protocol):
    """Takes what a store is filled with."""

    def append(self, interactions: Sequence[Interaction]) -> None:
        """Keep interactions, of any users: all of them or, where it fails, none."""


class Reading(Protocol):
    """Knows what users did."""

    def read_all(self, users: Sequence[str], newest: int) -> list[History | StoreError]:
        """Return the newest interactions of each user, read together; none of an unknown user.

        Args:
            users: Keys as :func:`~merlin_sim.histories.interaction.key_text` gives them.
            newest: How many of each at most.

        Returns:
            In the place of a user whose history cannot be read, why.
        """


class HistoryStore(Filling, Reading, Protocol):
    """Keeps the interactions of users, in the order of their times.

    Those of one time stand as they came. What :meth:`append` has returned from is kept, though the
    process, or that of the store, be killed. Several processes, and threads, may use one store.
    """

    def read(self, user: str, newest: int) -> History:
        """Return the newest interactions of one user.

        Raises:
            StoreError: Where they cannot be read.
        """

    def delete(self, user: str) -> int:
        """Forget a user; return how many interactions were kept."""

    def users(self) -> int:
        """Count the users."""

    def load(self, overwrite: bool) -> AbstractContextManager[Filling]:
        """Fill the store: what is appended within the block is kept whole or not at all.

        Args:
            overwrite: Put it in the place of what is there; else the store should be empty.
        """

    def close(self) -> None:
        """Let go of files and connections."""


def only(found: Sequence[History | StoreError]) -> History:
    """Return the one history of a single user.

    Raises:
        StoreError: Where it could not be read.
    """
    (history,) = found
    if isinstance(history, StoreError):
        raise history
    return history
