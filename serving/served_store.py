"""A store of histories for a model that reads them."""

from __future__ import annotations

import json

from ..foundation.requests import RequestError
from .appends import key_kind
from .histories.open_store import open_store, shown_store
from .histories.store import HistoryStore, StoreError
from .servable import Servable


def open_served_store(address: str, servable: Servable) -> HistoryStore:
    """Open a store for a servable; refuse both where no history would be found.

    A store is taken if any of the users who are looked at could be one of the model's.
    """
    servable.check_reads_histories()
    store, column = open_store(address), servable.columns.users[0]
    kind, refused = key_kind(servable, column), None
    for user in store.some_users():
        try:
            kind.check(json.loads(user), column.name)
            return store
        except RequestError as error:
            refused = error
    if refused is not None:
        store.close()
        raise StoreError(f"{shown_store(address)}: the users of the store: {refused}.")
    return store
