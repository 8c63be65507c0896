"""What TensorFlow says of the names of columns in a saved model, and that nothing else is lost."""

from __future__ import annotations

import logging

import pytest
import tensorflow as tf

from merlin_sim.foundation.process_wide import quiet_save
from merlin_sim.models.saving import serving_function


@pytest.fixture
def heard():
    """What the logger of TensorFlow's Python code has said."""
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("absl").addHandler(handler)
    yield messages
    logging.getLogger("absl").removeHandler(handler)


def save(path):
    signature = {"customerRef": tf.TensorSpec([None], tf.int64, "customerRef")}
    module = tf.Module()
    module.serve = serving_function(
        lambda columns, training: tf.cast(columns["customerRef"], tf.float32), signature, "score"
    )
    tf.saved_model.save(module, str(path), signatures=module.serve)


def test_columns_with_capitals_are_saved_without_a_word(tmp_path, heard):
    with quiet_save():
        save(tmp_path / "quiet")
        logging.getLogger("absl").error("something else")
    assert heard == ["something else"]
    loaded = tf.saved_model.load(str(tmp_path / "quiet")).signatures["serving_default"]
    assert list(loaded.structured_input_signature[1]) == ["customerRef"]
    save(tmp_path / "loud")
    assert any("renamed to customerref" in message for message in heard)
