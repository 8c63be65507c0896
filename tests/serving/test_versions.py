"""Who meets which version."""

from __future__ import annotations

import pytest
from hollow_servable import write_hollow_servable

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.requests import RequestError
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.versions import (
    Canary,
    LoadedVersion,
    Versions,
    meets_canary,
    parse_canary,
    user_of_events,
)

USERS = [f"user {number}" for number in range(20_000)]


def test_a_share_of_the_users_meets_a_canary_and_always_the_same():
    met = {user for user in USERS if meets_canary(user, Canary(8, 0.05))}
    assert len(met) == pytest.approx(1000, rel=0.1)
    # A larger share has all that a smaller one has: nobody changes to and fro as it grows.
    larger = {user for user in USERS if meets_canary(user, Canary(8, 0.2))}
    assert met < larger and len(larger) == pytest.approx(4000, rel=0.1)
    # Another version is met by others: one in twenty of these by chance.
    other = {user for user in USERS if meets_canary(user, Canary(9, 0.05))}
    assert len(met & other) < 100
    # What was given once holds for good, in whatever process and release.
    assert sorted(met)[:2] == ["user 10032", "user 10051"]


def test_a_key_that_is_no_text_meets_one_version_too():
    """Its event is refused by the version's vocabulary; nobody else's is."""
    canary = Canary(8, 0.5)
    assert meets_canary("\ud800", canary) == meets_canary("\ud800", canary)
    assert {meets_canary(f"{number}\udfff", canary) for number in range(40)} == {True, False}


class OneEncoder:
    """Says by which encoder it was made."""

    def __init__(self, name: str) -> None:
        self.name = name

    def parse(self, fields):
        if not isinstance(fields, dict):
            raise RequestError("expected an object")
        return fields

    def encode(self, event):
        return self.name, event["who"]

    def with_histories(self, events):
        return list(events)


def encode(versions, fields):
    (found,) = versions.encode_all([fields])
    if isinstance(found, Exception):
        raise found
    return found


def test_an_event_is_read_by_the_version_that_has_to_answer():
    current, canary = (LoadedVersion(n, OneEncoder(f"of {n}"), None) for n in (7, 8))
    versions = Versions(current, canary, 0.5, "who")
    found = {user: encode(versions, {"who": user}) for user in USERS[:200]}
    assert {asked.version.number for asked in found.values()} == {7, 8}
    for user, asked in found.items():
        expected = canary if meets_canary(user, Canary(8, 0.5)) else current
        assert asked == (expected, (f"of {expected.number}", user))
    # Who has no key is the current version's, and what is no event is refused by it.
    assert encode(versions, {"who": None}).version is current
    with pytest.raises(RequestError):
        encode(versions, "text")
    alone = Versions(current)
    assert all(encode(alone, {"who": user}).version is current for user in USERS[:200])
    assert alone.all == (current,) and versions.all == (current, canary)


@pytest.mark.parametrize("text", ["", "8", "8:", ":0.5", "8:0", "8:1", "0:0.5", "a:0.5", "8:nan"])
def test_what_is_no_canary_is_refused(text):
    with pytest.raises(MerlinSimError, match="`canary` should be a version and a share"):
        parse_canary(text)


def test_a_canary_needs_users(tmp_path):
    servable = Servable.open(write_hollow_servable(tmp_path, "a"))
    assert user_of_events(servable) == "who"
    servable.manifest["request"]["of"] = "rows"
    with pytest.raises(MerlinSimError, match="a canary is chosen by users"):
        user_of_events(servable)
