"""Raw keys become the ids that the fitted workflow gave them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.encoder import EventEncoder, RowEncoder, open_encoder
from merlin_sim.serving.histories.open_store import open_store
from merlin_sim.serving.histories.store import Interaction, as_text
from merlin_sim.serving.servable import Servable, ServedColumn, ServedColumns


@pytest.fixture(scope="module")
def keys(servable):
    """Raw keys by id."""
    found = {}
    for domain in ("user_id", "item_id", "cat_id"):
        table = pq.read_table(servable.vocabulary(domain)).to_pydict()
        found[domain] = dict(zip(table["id"], table["key"], strict=True))
    return found


def encode(encoder, user, history, candidates):
    fields = {"user_id": user, "history": history, "candidates": candidates}
    return encoder.encode(encoder.parse(fields))


def lists_of(columns):
    return {name: (ids.tolist(), ids.dtype) for name, ids in columns.items()}


def test_events_of_the_raw_logs_are_the_rows_of_the_dataset(encoder, events, dataset):
    rows = pq.read_table(dataset.path / "test").to_pydict()
    assert len(events) == len(rows["label"]) > 20
    for index, event in enumerate(events):
        encoded = encoder.encode(encoder.parse(event))
        got = {**encoded.users, **encoded.targets, **encoded.histories}
        assert set(got) == set(rows) - {"label", "item_id_neg", "cat_id_neg"}
        for name, ids in got.items():
            assert ids.tolist() == list(np.atleast_1d(rows[name][index])), name


def test_unseen_keys_nulls_and_more_than_the_model_reads(encoder, keys):
    items, longest = keys["item_id"], encoder.columns.longest
    encoded = encode(encoder, "nobody", [items[1], "new", None, items[2]], ["new", None, items[1]])
    assert encoded.users["user_id"].tolist() == [0]
    assert encoded.targets["item_id_trgt"].tolist() == [0, 0, 1]
    assert encoded.targets["cat_id_trgt"][:2].tolist() == [0, 0]
    assert encoded.histories["item_id_pos"].tolist() == [1, 2]
    assert len(encoded.histories["cat_id_pos"]) == 2
    assert encode(encoder, None, [], []).users["user_id"].tolist() == [0]
    history = [items[i % 30 + 1] for i in range(longest + 5)] + ["new"] * 3
    newest = encode(encoder, None, history, []).histories["item_id_pos"]
    assert newest.tolist() == [i % 30 + 1 for i in range(5, longest + 5)]
    for wrong, said in (
        ([5], r"history\[0\]: expected a string or null, received 5"),
        ([{"item_id": "a", "cat_id": 5}], r"history\[0\].cat_id: expected a string"),
    ):
        with pytest.raises(RequestError, match=said):
            encode(encoder, None, wrong, [])


def test_a_given_feature_wins_over_the_known_one(encoder, keys):
    item = keys["item_id"][1]
    known = encode(encoder, None, [], [item]).targets["cat_id_trgt"][0]
    other = next(i for i in keys["cat_id"] if i != known)
    given = {"item_id": item, "cat_id": keys["cat_id"][other]}
    candidates = [given, {"item_id": item, "cat_id": "new"}, {**given, "item_id": "new"}]
    encoded = encode(encoder, None, [given], candidates)
    assert encoded.targets["cat_id_trgt"].tolist() == [other, 0, other]
    assert encoded.histories["cat_id_pos"].tolist() == [other]


def test_items_that_were_looked_up_are_as_their_keys(servable, keys):
    """Known, unseen, and with what is known of them."""
    encoder = EventEncoder(servable)
    items = [keys["item_id"][7], "new", keys["item_id"][2], keys["item_id"][7]]
    history = [keys["item_id"][3], "new", keys["item_id"][1]]
    expected = encode(encoder, keys["user_id"][2], history, items)
    event = encoder.parse({"user_id": keys["user_id"][2], "history": history, "candidates": []})
    found = encoder.encode_for_items(event, encoder.item_ids(items))
    assert found.candidate_count == expected.candidate_count == 4
    for part in ("users", "targets", "histories"):
        assert lists_of(getattr(found, part)) == lists_of(getattr(expected, part))
    encoder.items[0].features.clear()
    with pytest.raises(RequestError, match="expected a servable that knows 'cat_id' of its items"):
        encoder.encode_for_items(event, encoder.item_ids(items))


def test_a_kept_history_is_as_if_it_were_sent(servable, keys, tmp_path):
    store = open_store(str(tmp_path / "store"), create=True)
    encoder = EventEncoder(servable, histories=store)
    items = [keys["item_id"][i % 30 + 1] for i in range(3 * encoder.columns.longest)]
    items[-3:] = ["new"] * 3
    store.append([Interaction('"A"', as_text(item), 5) for item in items])
    store.append([Interaction('"A"', '{"item_id":"B","cat_id":"C"}', 4)])
    event = {"user_id": "A", "candidates": [items[0]]}
    kept = encoder.encode(encoder.parse(event)).histories
    sent = encoder.encode(encoder.parse({**event, "history": items})).histories
    assert lists_of(kept) == lists_of(sent)
    assert len(kept["item_id_pos"]) == encoder.columns.longest
    for user in ("B", None, 7.5):
        assert encoder.parse({**event, "user_id": user}).history == []
    assert encoder.parse({**event, "history": None}).history == []
    for fields, said in (
        ({"candidates": []}, "expected the key 'user_id'"),
        ({"user_id": "\ud800", "candidates": []}, "user_id: expected text, received a lone surr"),
    ):
        with pytest.raises(RequestError, match=said):
            encoder.parse(fields)
    columns = replace(servable.columns, users=())
    without = SimpleNamespace(path=servable.path, columns=columns, takes_rows=False)
    without.check_reads_histories = lambda: Servable.check_reads_histories(without)
    with pytest.raises(MerlinSimError, match="reads no column of a user, and a store has histor"):
        open_encoder(without, histories=store)


WRONG = [1e39, -1e308, 10**400, 2**140, float("nan"), float("inf"), True, "7", [], {}]


def rows_with_a_price(raw: bool) -> RowEncoder:
    price = ServedColumn("price", "price", np.dtype("float32"), None)
    columns = ServedColumns((), (price,), (), None, longest=0, is_ragged=False)
    return RowEncoder(SimpleNamespace(columns=columns, takes_raw_numbers=raw))


def test_a_number_of_a_row_is_taken_as_the_dataset_has_it():
    def value_of(encoder, number):
        encoded = encoder.encode(encoder.parse({"price": number}))
        return encoded.targets["price"].item()

    plain, raw = rows_with_a_price(raw=False), rows_with_a_price(raw=True)
    assert value_of(plain, -2.5) == -2.5
    assert value_of(raw, 10**30) == pytest.approx(np.log(1e30))
    assert value_of(raw, -2) == value_of(raw, None) == 0
    for encoder, wrong in ((plain, [*WRONG, None]), (raw, [*WRONG, -3])):
        for number in wrong:
            with pytest.raises(RequestError, match="price: expected a number"):
                value_of(encoder, number)
    for number in (2**60 + 1, 2**70, 0.5, 3):  # Arrow refuses those that 64 bits have not
        row = plain.output_row(plain.parse({"price": number}))
        table = pa.Table.from_pylist([row], pa.schema([*plain.output_types().items()]))
        assert table["price"].to_pylist() == [float(number)]
