"""A user as a model's encoder takes one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..serving.events.event import CANDIDATES, HISTORY, Event
from ..serving.events.event_encoder import EventEncoder
from .candidates.histories import History


def user_event(encoder: EventEncoder, history: History, facts: Mapping[str, Any]) -> Event:
    """Return a user without candidates as a model's encoder takes one.

    Items of a history that the model does not know are left out when it is encoded, so it gets
    twice as many as it reads.

    Args:
        encoder: Of the model.
        history: What is known of the user.
        facts: Fields that the model reads beside keys, and keys of the user that the history
            does not have.
    """
    users = {
        column.name: history.user.get(column.name, facts.get(column.name))
        for column in encoder.columns.users
    }
    beside = {name: facts[name] for name in encoder.numbers.user_fields if name in facts}
    newest = history.items[-2 * encoder.columns.longest :]
    return encoder.parse({**users, **beside, HISTORY: newest, CANDIDATES: []})
