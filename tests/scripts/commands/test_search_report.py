"""`merlin-sim search-report`: the report of a checkpoint's model on test data."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from in_process import run

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models.search_report import format_search_report, search_report

pytestmark = pytest.mark.slow


def arguments(dataset, checkpoints):
    return ["--load_checkpoint_path", checkpoints, "--dataset_dir", dataset.path]


def test_the_first_rows_of_test_are_compared_and_what_has_no_search_is_refused(
    dataset, save_checkpoint, monkeypatch
):
    monkeypatch.setattr("merlin_sim.models.search_report.ROWS_PER_BATCH", 8)
    model, checkpoints = save_checkpoint("sim", embedding_dim=4, long_seq_length=4, top_k=2)
    for rows in (15, 1000):
        said = run("search-report", *arguments(dataset, checkpoints), "--rows", rows)
        table = pq.read_table(dataset.files("test")[0]).slice(0, rows).to_pydict()
        batch = {
            "reader": tf.constant(table["reader"]),
            "book": tf.constant(table["book"]),
            "read": tf.constant([[0] * (6 - len(books)) + books for books in table["read"]]),
        }
        expected = search_report(model, [batch])
        assert len(expected) > 1
        assert said.endswith(format_search_report(expected) + "\n")
    with pytest.raises(MerlinSimError, match="`category_feature` should be 'book'"):
        run("search-report", *arguments(dataset, checkpoints), "--category_feature", "colour")
    _, checkpoints = save_checkpoint("din", embedding_dim=4)
    with pytest.raises(MerlinSimError, match="a search stage .*Received: DINModel"):
        run("search-report", *arguments(dataset, checkpoints))
