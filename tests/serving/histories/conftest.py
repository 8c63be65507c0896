"""A store of each kind."""

from __future__ import annotations

import pytest
from redis_server import redis_server

from merlin_sim.serving.histories.open_store import open_store

FILE, REDIS = "file", "redis"


@pytest.fixture(scope="session")
def redis_address(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as (address, _):
        yield address


@pytest.fixture(params=[FILE, REDIS])
def address(request, tmp_path):
    """Where a store can be made; there is none yet."""
    if request.param == FILE:
        return str(tmp_path / "histories.sqlite")
    address = request.getfixturevalue("redis_address")
    import redis

    redis.Redis.from_url(address).flushdb()
    return address


@pytest.fixture
def store(address):
    """An empty store that keeps all."""
    opened = open_store(address, create=True)
    yield opened
    opened.close()
