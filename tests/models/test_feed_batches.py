"""The feed as a tf.data.Dataset: what Keras may do with iterators, and errors."""

from __future__ import annotations

import itertools

import pytest

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models.feed_batches import FeedBatches


@pytest.fixture
def feed(make_dataset):
    dataset = make_dataset(ragged=True, rows=40)
    return open_loader(dataset, "train", ["label", "user_0"], 16, Ranks())


def users(batches):
    return [row for columns, _ in batches for row in columns["user_0"].numpy().tolist()]


def test_each_iterator_has_a_place_of_its_own(feed):
    stored = users(feed)
    with FeedBatches(feed) as batches:
        assert len(batches) == 3
        old = iter(batches)
        begun = users([next(old)])
        assert users(batches) == stored
        assert begun + users(old) == stored
    assert feed.epoch == 1 + 2


def test_an_endless_one_goes_on_with_the_next_epoch(feed):
    stored = users(feed)
    with FeedBatches(feed, endless=True) as batches:
        assert users(itertools.islice(batches, 5)) == (stored * 2)[: 16 + 16 + 8 + 16 + 16]


def test_other_errors_of_tensorflow_stay_what_they_are(feed):
    with pytest.raises(ValueError, match="of somebody else"), FeedBatches(feed):
        raise ValueError("of somebody else")
