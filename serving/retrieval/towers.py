"""The two towers of a servable, loaded: vectors of users and of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..encoder import EncodedEvent, EventEncoder
from ..lookups import read_workflow
from ..scorer import call_signature
from ..servable import (
    ITEM_VECTOR_SIGNATURE,
    USER_VECTOR_SIGNATURE,
    VECTOR,
    Servable,
    ServableError,
)
from ..signatures import user_batch
from .items import Catalogue
from .users import UserHistory, user_event

Vectors = npt.NDArray[np.float32]

ITEMS_PER_CALL = 8192
"""Items whose vectors are made at once, which bounds memory."""


class Towers:
    """The two towers, which make vectors of users and of items."""

    def __init__(self, servable: Servable) -> None:
        self.servable = servable
        self._loaded = tf.saved_model.load(str(servable.model))
        signatures = self._loaded.signatures
        if not {USER_VECTOR_SIGNATURE, ITEM_VECTOR_SIGNATURE} <= set(signatures):
            kind = servable.manifest.get("model", {}).get("type")
            raise ServableError(
                f"{servable.path}: expected a model that has vectors of users and of items, as "
                f"two_tower. Received: {kind}"
            )
        self._users, self._items = (
            signatures[name] for name in (USER_VECTOR_SIGNATURE, ITEM_VECTOR_SIGNATURE)
        )
        self._refuse_what_is_of_users()
        self.encoder = EventEncoder(servable)
        self.catalogue = Catalogue.of(servable)

    def _refuse_what_is_of_users(self) -> None:
        users = {column.name for column in self.servable.columns.event_keys}
        workflow = read_workflow(self.servable.path)
        for cross in workflow[0].crosses if workflow else ():
            if users & set(cross.columns):
                raise ServableError(
                    f"{self.servable.path}: expected items whose vectors are of the item alone. "
                    f"The cross {cross.name!r} is with the user's {', '.join(cross.columns)}."
                )
        if workflow and workflow[0].lifetime_counts:
            raise ServableError(
                f"{self.servable.path}: expected items whose vectors are of the item alone. "
                f"`lifetime_counts` of {', '.join(workflow[0].lifetime_counts)} are of the user."
            )

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._users.structured_outputs[VECTOR].shape[-1])

    def users(self, events: Sequence[EncodedEvent]) -> Vectors:
        """Return the vectors of users: [events, dim]."""
        return call_signature(self._users, user_batch(events, self.encoder.columns), VECTOR)

    def users_by(self, histories: Sequence[UserHistory]) -> Vectors:
        """Return the vectors of users by their histories, of what is read of keys alone."""
        events = (user_event(self.encoder, history, {}) for history in histories)
        return self.users([self.encoder.encode(event) for event in events])

    def items(self) -> Iterator[tuple[npt.NDArray[np.int64], Vectors]]:
        """Return ids and vectors of all items, a part at a time: [items], [items, dim]."""
        last = len(self.catalogue.keys)
        for begin in range(1, last, ITEMS_PER_CALL):
            ids = np.arange(begin, min(begin + ITEMS_PER_CALL, last))
            yield ids, call_signature(self._items, self.encoder.encode_items(ids), VECTOR)
