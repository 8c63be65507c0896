"""Which models can score what is retrieved. Imports no TensorFlow."""

from __future__ import annotations

from ..foundation.exceptions import MerlinSimError
from ..serving.servables.servable import Servable


def check_ranker(ranker: Servable) -> None:
    """Refuse a model that cannot score what is retrieved.

    Raises:
        MerlinSimError: With what was expected.
    """
    if ranker.takes_rows or ranker.columns.intervals is not None:
        raise MerlinSimError(
            f"{ranker.path}: expected a model of users with histories, without times between "
            "interactions, which are not kept here."
        )
