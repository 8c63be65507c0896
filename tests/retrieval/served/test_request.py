"""What is asked for, before anything is done for it."""

from __future__ import annotations

import json

import pytest

from merlin_sim.retrieval.served.request import LONGEST, RecommendRequest, read_request
from merlin_sim.serving.limits import RequestError

RETRIEVED = 30


def test_what_is_not_said_is_as_documented():
    assert read_request(b'{"user": 7}', RETRIEVED) == RecommendRequest(7, 20, {})
    facts = {"age": 17, "markets": ["DE", None], "is_new": True, "mass": 1.5}
    text = json.dumps({"user": "A", "top": 30, "facts": facts})
    assert read_request(text, RETRIEVED) == RecommendRequest("A", 30, facts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected one JSON object"),
        ("[]", "expected an object, received []"),
        ("{}", "expected the key 'user', received only: none"),
        ('{"user": 1, "number": 3}', "expected only user, top, facts, received 'number'"),
        ('{"user": null}', "user: expected a text or a whole number, received None"),
        ('{"user": true}', "user: expected a text or a whole number, received True"),
        (json.dumps({"user": "x" * 5000}), "user: expected a key of at most 4,096 characters"),
        ('{"user": "\\ud800"}', "user: expected characters of Unicode"),
        ('{"user": 1, "facts": {"a": "\\ud800"}}', "facts: expected characters of Unicode"),
        (
            '{"user": 1, "top": 31}',
            "top: expected a whole number from 1 to 30, as many items as are retrieved",
        ),
        ('{"user": 1, "top": 0}', "(`--candidates`), received 0"),
        ('{"user": 1, "top": true}', "(`--candidates`), received True"),
        ('{"user": 1, "top": 2.0}', "(`--candidates`), received 2.0"),
        ('{"user": 1, "facts": [1]}', "facts: expected an object, received [1]"),
        ('{"user": 1, "facts": {"a": {}}}', "facts.a: expected a text, a number, a truth value"),
        ('{"user": 1, "facts": {"a": [[]]}}', "or a list of them, received [[]]"),
        (" " * (LONGEST + 1), "expected a request of at most 65,536 bytes, received 65,537"),
    ],
)
def test_what_is_wrong_is_told(text, message):
    with pytest.raises(RequestError) as raised:
        read_request(text, RETRIEVED)
    assert message in str(raised.value)


def test_fewer_are_answered_unasked_where_fewer_are_retrieved():
    assert read_request('{"user": 1}', 5) == RecommendRequest(1, 5, {})
