"""The feed as Keras reads it: a ``tf.data.Dataset`` of batches, one pass over it an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import tensorflow as tf

from ..dataloader.loader import Loader
from ..foundation.exceptions import MerlinSimError
from ..steps.train_step import batch_spec

ENDLESS = tf.data.INFINITE_CARDINALITY


class FeedBatches:
    """Hands the batches of a feed to Keras; within ``with`` its errors keep their own words.

    Keras may still hold an epoch's iterator when it begins the next one, so each reads the feed
    from a place of its own. TensorFlow knows no errors but its own: what the feed raised is raised
    again at the end of the ``with``.

    Args:
        feed: gives the batches; its epoch moves on with every pass.
        endless: begin the next epoch by itself, for epochs of ``steps_per_epoch``.
    """

    def __init__(self, feed: Loader, endless: bool = False) -> None:
        """Read the first batch, whose form is that of all."""
        self._feed = feed
        self._endless = endless
        self._error: MerlinSimError | None = None
        self._first: Loader | None = feed.reader()
        signature = batch_spec(_without_none(self._first.peek()))
        steps = feed.plan(0).steps * int(feed._epochs)
        batches = tf.data.Dataset.from_generator(self._read, output_signature=signature)
        size = tf.data.experimental.assert_cardinality(ENDLESS if endless else steps)
        self.batches: tf.data.Dataset = batches.apply(size).with_options(_untuned())

    def __enter__(self) -> tf.data.Dataset:
        """Give what Keras takes."""
        return self.batches

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the reading; raise the feed's own error in place of TensorFlow's."""
        if self._first is not None:
            self._first.stop()
        if self._error is not None and isinstance(error, tf.errors.OpError):
            raise self._error from None

    def _read(self) -> Iterator[Any]:
        while True:
            yield from self._read_epoch()
            if not self._endless:
                return

    def _read_epoch(self) -> Iterator[Any]:
        reader, self._first = self._first or self._feed.reader(), None
        self._feed.start_at(self._feed.epoch + int(self._feed._epochs))
        try:
            batches: Iterator[Any] = iter(reader.__next__, None)
            for batch in batches:
                yield _without_none(batch)
        except MerlinSimError as error:
            self._error = error
            raise
        finally:
            reader.stop()


def _untuned() -> tf.data.Options:
    """Have TensorFlow tune nothing: here is nothing to tune, and its thread ends an epoch late.

    Whoever lets go of an iterator waits for that thread, now and then for a second.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _without_none(batch: Any) -> Any:
    """Leave out the labels that a feed for inference does not have."""
    return tuple(part for part in batch if part is not None)
