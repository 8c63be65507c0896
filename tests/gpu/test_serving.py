"""A server on a machine with a GPU: its answers are those of the CPU."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from processes import BIN
from raw_events import events_of_test_rows
from serving_process import reached, serving
from triton_calls import infer_events

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.http")


def test_answers_are_those_of_the_cpu(on_gpu, logs, tmp_path):
    dataset, checkpoints, servable = (tmp_path / name for name in ("data", "saved", "servable"))
    on_gpu(
        *("preprocess", "amazon-books", "--amazon_dataset_path", logs, "--output_path", dataset),
        *("--max_sequence_length", 20),
        hidden=True,
    )
    on_gpu(
        *("train", "--dataset_dir", dataset, "--results_dir", tmp_path, "--embedding_dim", 4),
        *("--long_seq_length", 14, "--top_k", 4, "--global_batch_size", 128, "--lr", 0.03),
        *("--save_checkpoint_path", checkpoints, "--epochs", 1, "--seed", 5),
        hidden=True,
    )
    source = ("--load_checkpoint_path", checkpoints, "--dataset_dir", dataset)
    on_gpu("export", *source, "--output", servable)
    events = events_of_test_rows(dataset, logs / "reviews_Books.json")[:50]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    files = ("--input", tmp_path / "events.jsonl", "--output", tmp_path / "scores.jsonl")
    on_gpu("score", servable, *files, hidden=True)
    lines = (tmp_path / "scores.jsonl").read_text().splitlines()
    expected = [json.loads(line)["scores"][0] for line in lines]
    assert np.ptp(expected) > 0.1

    shown = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    with serving(servable, command=(BIN / "merlin-sim",), env=shown) as process:
        scores = infer_events(reached(process), "http", events)[:, 0]
        process.terminate()
        assert process.wait(200) == 0
    np.testing.assert_allclose(scores, expected, atol=5e-3)
