"""Rules: read from their file with everything that is wrong, and kept to."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from merlin_sim.foundation.exceptions import MerlinSimError, SpecError
from merlin_sim.serving.retrieval.items import Catalogue, ItemFacts
from merlin_sim.serving.retrieval.rules import Predicate, Rules, UserFact, put_in_order, read_rules

WHOLE = """\
items: facts.parquet
seen: keep
filters:
  - {column: available, is: true}
  - column: market
    in: {user: market}
  - {column: cat_id, not_in: [a, b]}
caps: {cat_id: 2}
diversity: 0.25
"""


def test_a_file_is_read(tmp_path):
    (tmp_path / "rules.yaml").write_text(WHOLE)
    assert read_rules(tmp_path / "rules.yaml") == Rules(
        tmp_path / "facts.parquet",
        False,
        (
            Predicate("available", "is", True),
            Predicate("market", "in", UserFact("market")),
            Predicate("cat_id", "not_in", ["a", "b"]),
        ),
        {"cat_id": 2},
        0.25,
    )


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("[]", 1, "a mapping of items, seen, filters, caps, diversity"),
        ("seen: drop\nfilter: []", 2, "filter: expected one of items, seen"),
        ("seen: some", 1, "seen: expected drop or keep"),
        ("diversity: 1.5", 1, "diversity: expected a number from 0 to 1"),
        ("diversity: true", 1, "diversity: expected a number from 0 to 1"),
        ("items: facts.pkl", 1, "items: expected a file, .parquet or .csv"),
        ("filters: {}", 1, "filters: expected a list of rules"),
        ("filters:\n- {is: 1}", 2, "filters[0]: expected a column and one of is, is_not"),
        ("filters:\n- {column: a, like: 1}", 2, "filters[0]: expected a column and one of"),
        ("filters:\n- {column: a, is: 1, in: [1]}", 2, "filters[0]: expected a column and one"),
        ("filters:\n- {column: a, in: 1}", 2, "filters[0].in: expected a list of values"),
        ("filters:\n- {column: a, in: []}", 2, "filters[0].in: expected a list of values"),
        ("filters:\n- {column: a, is: [1]}", 2, "filters[0].is: expected a value"),
        ("filters:\n- column: a\n  is: {who: b}", 3, "filters[0].is: expected `user` with the"),
        ("seen: drop\ncaps: 3", 2, "caps: expected columns, each with a number"),
        ("caps:\n  a: 0", 2, "caps.a: expected a whole number of at least 1"),
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path, text, line, expected):
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as error:
        read_rules(path)
    assert f"{path}:{line}: " in str(error.value) and expected in str(error.value)


@pytest.mark.parametrize(
    ("comparison", "value", "kept"),
    [
        ("is", 3, [0, 1, 0, 0]),
        ("is_not", 3, [1, 0, 1, 0]),
        ("in", [3, 5], [0, 1, 1, 0]),
        ("not_in", [3, 5], [1, 0, 0, 0]),
        ("at_least", 3, [0, 1, 1, 0]),
        ("at_most", 3, [1, 1, 0, 0]),
    ],
)
def test_a_fact_that_is_missing_passes_nothing(comparison, value, kept):
    rule = Predicate("age", comparison, value)
    assert rule.keep(pa.array([1, 3, 5, None]), {}).tolist() == [bool(k) for k in kept]
    asked = Predicate("age", comparison, UserFact("limit"))
    assert asked.keep(pa.array([1, 3, 5, None]), {"limit": value}).tolist() == list(map(bool, kept))
    with pytest.raises(MerlinSimError, match="needs the fact 'limit' of the user"):
        asked.keep(pa.array([1]), {"old": 3})


def test_facts_are_those_of_the_file_and_of_the_dataset(towers, tmp_path):
    keys = towers.catalogue.keys
    table = {"item_id": pa.array([*keys[1:4]]), "market": ["DE", None, "FR"]}
    pq.write_table(pa.table(table), tmp_path / "facts.parquet")
    rule = Predicate("market", "in", UserFact("market"))
    rules = Rules(tmp_path / "facts.parquet", filters=(rule,), caps={"cat_id": 1})
    facts = ItemFacts(rules, towers.servable, towers.catalogue)
    ids = np.array([3, 1, 4, 2])  # the fourth item is not in the file
    assert facts.keep(ids, {"market": ["DE", "FR"]}).tolist() == [True, True, False, False]
    assert facts.keep(ids, {"market": "FR"}).tolist() == [True, False, False, False]
    ((codes, most),) = facts.capped(np.arange(1, len(keys)))
    of_items = pq.read_table(towers.servable.vocabulary("item_id")).sort_by("id").to_pandas()
    same = of_items["cat_id"].to_numpy()[:, None] == of_items["cat_id"].to_numpy()[None]
    assert most == 1 and ((codes[:, None] == codes[None]) == same).all()
    category = pq.read_table(towers.servable.vocabulary("cat_id")).slice(2, 1).to_pylist()[0]
    rules = Rules(filters=(Predicate("cat_id", "is", category["key"]),))  # by raw key
    facts = ItemFacts(rules, towers.servable, towers.catalogue)
    expected = of_items["cat_id"] == category["id"]
    assert facts.keep(of_items["id"].to_numpy(), {}).tolist() == expected.tolist()
    assert 0 < expected.sum() < len(expected)
    # Items here are 0000000000 and on: read from CSV as numbers none would be known.
    (tmp_path / "facts.csv").write_text(f"item_id,age\n{keys[1]},5\n")
    rules = Rules(tmp_path / "facts.csv", filters=(Predicate("age", "is", 5),))
    facts = ItemFacts(rules, towers.servable, towers.catalogue)
    assert facts.keep(np.array([1, 2]), {}).tolist() == [True, False]


@pytest.mark.parametrize(
    ("source", "name", "facts"),
    [
        ("csv", "rating", pa.array(["adult", "", "all"])),
        ("parquet", "rating", pa.array(["adult", "", "all"])),
        ("parquet", "rating", pa.array(["adult", "", "all"], pa.large_string())),
        ("parquet", "rating", pa.array(["adult", None, "all"]).dictionary_encode()),
        ("parquet", "age", pa.array([18.0, np.nan, 3.0])),
        ("dataset", "brand", pa.array(["b5", "no_brand", "b1"])),
    ],
)
def test_a_fact_is_missing_whichever_way_it_comes(source, name, facts, tmp_path):
    items, ids = ["a", "b", "c"], [1, 2, 3]
    of_file = pa.table({"what": items, name: facts})
    if source == "csv":
        of_file.to_pandas().to_csv(tmp_path / "facts.csv", index=False)
    elif source == "parquet":
        pq.write_table(of_file, tmp_path / "facts.parquet")
    else:
        known = {"id": ids, "key": items, "brand": ids}
        pq.write_table(pa.table(known), tmp_path / "what.parquet")
        pq.write_table(pa.table({"id": ids, "key": facts}), tmp_path / "brand.parquet")
    path = None if source == "dataset" else tmp_path / f"facts.{source}"
    first = facts[0].as_py()
    servable = SimpleNamespace(path=tmp_path, vocabulary=lambda name: tmp_path / f"{name}.parquet")
    catalogue = Catalogue("what", ("brand",), np.array([None, *items], object), None)
    for rule in (Predicate(name, "is_not", first), Predicate(name, "not_in", [first])):
        rules = Rules(path, filters=(rule,), caps={name: 1})
        found = ItemFacts(rules, servable, catalogue)
        assert found.keep(np.array(ids), {}).tolist() == [False, False, True]
        ((codes, _),) = found.capped(np.array(ids))
        assert codes[1] == -1 and (codes[[0, 2]] >= 0).all()


def test_facts_that_cannot_be_are_refused(towers, tmp_path):
    path, key = tmp_path / "facts.parquet", towers.catalogue.keys[1]
    ages = pa.array([1, 2, 3])
    for content, rule, said in (
        (None, ("colour", "red"), "of which nothing is known. .* known: cat_id"),
        ({"item_id": ["x", "y", "z"], "age": ages}, ("age", "old"), "'age': expected int64"),
        ({"item_id": [key, key, "x"], "age": ages}, ("age", 1), "one row for each item"),
        ({"item": [key]}, ("age", 1), "a column 'item_id' with the items' keys"),
        (b"no parquet", ("age", 1), "cannot be read"),
    ):
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        elif content is not None:
            path.write_bytes(content)
        column, value = rule
        filters = (Predicate(column, "is", value),)
        rules = Rules(None if content is None else path, filters=filters)
        with pytest.raises(MerlinSimError, match=said):
            ItemFacts(rules, towers.servable, towers.catalogue)


def test_two_caps_leave_out_what_is_full_and_not_what_has_no_value():
    scores = np.arange(8, 0, -1).astype(np.float32)
    kinds = np.array([1, 1, 1, 2, 2, -1, -1, -1])
    makers = np.array([5, 6, 6, 5, 5, 6, -1, -1])
    order = put_in_order(scores, None, 8, [(kinds, 2), (makers, 2)])
    assert order.tolist() == [0, 1, 3, 5, 6, 7]  # 2: a third 1; 4: a third 5


def test_diversity_by_hand():
    """At half, the second is 0.5 x 0.75 - 0.5 x 0.9 against 0.5 x 0.5 - 0.5 x 0."""
    vectors = np.array([[1, 0], [0.9, 0.19**0.5], [0, 1], [0.6, 0.8]], np.float32)
    scores = np.array([1.0, 0.75, 0.5, 0.0], np.float32)
    assert put_in_order(scores[[3, 0, 2, 1]], None, 3).tolist() == [1, 3, 2]
    assert put_in_order(scores, vectors, 4, diversity=0.5).tolist() == [0, 2, 1, 3]
    assert put_in_order(scores, vectors, 4, diversity=0.1).tolist() == [0, 1, 2, 3]
    same = np.full(4, 0.5, np.float32)
    assert put_in_order(same, vectors, 2, diversity=1.0).tolist() == [0, 2]
    assert put_in_order(scores[:0], vectors[:0], 2, diversity=0.5).tolist() == []
