"""An event that is changed is refused by its number or read; those beside it are read as alone."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlin_sim.serving.encoder import open_encoder
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.texts import encode_events

from .damage import (
    ANY_NUMBER,
    BYTE_CHANGES,
    CONTENTS,
    ODD_VALUES,
    TREE_CHANGES,
    ByteChange,
    TreeChange,
)
from .judged import answer, share
from .logs import ITEMS, USER, USERS
from .test_days_of_clicks import KEYS, NUMBERS

FIELDS = [*(f"num_{n}" for n in range(NUMBERS)), *(f"cat_{n}" for n in range(KEYS))]
ODD_NUMBERS = st.sampled_from([-2.0, -2.5, -3, 10**30, 10**400, 1e38, 1e39, math.nan, math.inf])
ODD_KEYS = st.sampled_from(["ffffffff", "é", "\0", "x" * 70_000, "\ud800", 2**31, 2**64, True])
CHANGES = st.one_of(
    *(TREE_CHANGES, BYTE_CHANGES, st.sampled_from([*CONTENTS, b"1" * 5000])),
    st.tuples(ANY_NUMBER, ODD_NUMBERS | ODD_KEYS | ODD_VALUES),
)
LISTS = st.lists(st.sampled_from([*ITEMS, "unknown"]), max_size=6)
EVENTS = st.fixed_dictionaries(
    {USER: st.sampled_from([*USERS, "unknown"]), "history": LISTS, "candidates": LISTS}
)
ROWS = st.fixed_dictionaries(
    {
        **{name: st.none() | st.integers(-2, 1000) for name in FIELDS[:NUMBERS]},
        **{n: st.integers(0, 12).map(lambda k: f"{k * 0x1234567:08x}") for n in FIELDS[NUMBERS:]},
    }
)


def changed(text: bytes, change: Any) -> bytes:
    if isinstance(change, bytes):
        return change
    if isinstance(change, ByteChange):
        return change.made(text)
    tree = json.loads(text)
    if isinstance(change, TreeChange):
        change.change(tree)
    else:
        number, value = change
        name = list(tree)[number % len(tree)]
        tree[name] = [*tree[name], value] if isinstance(tree[name], list) else value
    return json.dumps(tree).encode()


@pytest.fixture(scope="module", params=["servable", "click servable"])
def encoder(good, request):
    return open_encoder(Servable.open(good / request.param))


@pytest.mark.slow
@share(80, suite=18)
@given(data=st.data())
def test_a_changed_event_costs_no_other_its_ids(encoder, data):
    kind = EVENTS if encoder.columns.users else ROWS
    events = data.draw(st.lists(kind, min_size=2, max_size=4))
    texts = [json.dumps(each).encode() for each in events]
    index = data.draw(st.integers(0, len(texts) - 1))
    alone = encode_events(encoder, np.array(texts, object).reshape(-1, 1))
    texts[index] = changed(texts[index], data.draw(CHANGES))
    found = answer(encode_events, encoder, np.array(texts, object).reshape(-1, 1), names=("",))
    if found.refusal is not None:
        assert f"event {index + 1}" in found.refusal
        assert found.refusal.encode()  # no half of a pair of surrogates, which nobody could send
        return
    for number, (one, other) in enumerate(zip(found.result, alone, strict=True)):
        assert number == index or repr(one) == repr(other)
    values = {**(one := found.result[index]).users, **one.histories, **one.targets}
    columns = encoder.columns
    for column in (*columns.users, *columns.histories, *columns.targets):
        held = np.asarray(values[column.name])
        assert np.isfinite(held.astype(np.float64)).all()
        if column.largest_id is not None:
            assert ((held >= 0) & (held <= column.largest_id)).all(), column.name
