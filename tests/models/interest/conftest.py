"""Models that are made once, for tests that change none."""

from __future__ import annotations

import functools

import pytest
from interest_kinds import build_kind


@pytest.fixture(scope="session")
def schema(make_schema):
    return make_schema()


@pytest.fixture(scope="session")
def built(schema):
    """Return what gives the model of a kind, the same one each time."""
    return functools.cache(lambda kind: build_kind(kind, schema))
