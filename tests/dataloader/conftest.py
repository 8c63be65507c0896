"""Poisoned memory for the feed's tests: a row that nobody filled shows; and small users."""

import functools
import time

import pytest
from merlin.dataloader.loader_base import ChunkQueue
from poisoned_memory import poisoned_memory  # noqa: F401
from small_users import EARLIER, write_users_dataset


@pytest.fixture(scope="module")
def written(request, tmp_path_factory):
    """Return what writes the histories that a module's ``FILES`` has, once for what is seen."""

    @functools.cache
    def write(seen):
        directory = tmp_path_factory.mktemp("users") / "dataset"
        return write_users_dataset(directory, request.module.FILES, with_baskets=seen == EARLIER)

    return write


@pytest.fixture
def users(request, written):
    """Of what a sample sees the rarer kind, where the test does not ask for another."""
    return written(getattr(request, "param", EARLIER))


@pytest.fixture
def slow_threads(monkeypatch):
    """Return what has the threads of Merlin's loaders stay until the loaders are stopped."""
    load_chunks = ChunkQueue.load_chunks

    def load_and_stay(self, device):
        load_chunks(self, device)
        while not self.stopped:
            time.sleep(0.001)

    return lambda: monkeypatch.setattr(ChunkQueue, "load_chunks", load_and_stay)
