"""What is changed of the process: third parties are quiet, garbage is looked for less."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import warnings

import pytest
import tensorflow as tf
from rich.console import Console

from merlin_sim.foundation.process_wide import quiet_merlin, quiet_save
from merlin_sim.foundation.progress import Silence, Terminal
from merlin_sim.models.saving import serving_function

COLLECTING = """
import atexit, gc
from merlin_sim.foundation.process_wide import collect_less_often

atexit.register(lambda: print(gc.get_freeze_count()))
collect_less_often()
atexit.register(lambda: print(gc.get_threshold()[0], gc.get_freeze_count()))
"""


def test_garbage_is_not_looked_for_once_every_other_handler_of_the_end_has_run():
    words = [sys.executable, "-c", COLLECTING]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=True)
    before, after = done.stdout.splitlines()
    assert before == "50000 0" and int(after) > 1000


def test_in_use_merlin_alone_is_quiet():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_merlin():
            warnings.warn_explicit("its", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
            warnings.warn("ours", stacklevel=1)
        warnings.warn_explicit("later", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
    assert [str(warning.message) for warning in heard] == ["ours", "later"]


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


def narrate(terminal: bool) -> str:
    reporter = Terminal()
    reporter.console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
    with reporter.phase("reading interactions", 10) as report:
        report(4, 1_000)
        report(6, 500)
    reporter.say("[not] markup")
    return reporter.console.file.getvalue()


def test_a_log_gets_one_plain_line_per_phase_and_a_terminal_rows_and_time_left():
    first, second = narrate(terminal=False).splitlines()
    assert first.split() == ["reading", "interactions", "1,500", "rows", "0.0", "s"]
    assert second == "[not] markup"
    seen = narrate(terminal=True)
    for shown in ("reading interactions", "100%", "1,500 rows", "left"):
        assert shown in seen
    with Silence().phase("reading", 3) as report:
        report(1)
        report(2, 5)
    Silence().say("nothing")
