"""The context of an interaction the whole way: log, training, inference, servable, scores."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from in_process import run

pytestmark = pytest.mark.slow
TRAINING = ("--epochs", 1, "--global_batch_size", 64, "--lr", 0.01, "--seed", 3)
FEATURES = """
features:
  device: {type: category, of: interaction}
  hour: {type: number, of: interaction, buckets: [6, 12, 18]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("context")
    random = np.random.default_rng(0)
    who, what = random.integers(0, 40, 900), random.integers(0, 30, 900)
    device = random.integers(0, 2, 900)
    pd.DataFrame(
        {
            "who": [f"u{number}" for number in who],
            "what": [f"i{number}" for number in what],
            "when": np.arange(900),
            "device": np.array(["phone", "tv"])[device],
            "hour": random.integers(0, 24, 900).astype(float),
            "clicked": (random.random(900) < 0.3 + 0.4 * device).astype(int),
        }
    ).to_parquet(home / "log.parquet")
    (home / "features.yaml").write_text(FEATURES)
    run(
        "preprocess", "log", home / "log.parquet", "--output_path", home / "d",
        "--user_column", "who", "--item_column", "what", "--timestamp_column", "when",
        "--label_column", "clicked", "--features", home / "features.yaml",
        "--shortest_sequence_for_user", 5, "--max_sequence_length", 12, "--scheduler", "single",
    )  # fmt: skip
    return home


@pytest.mark.parametrize("model", ["din", "two_tower"])
def test_what_is_trained_is_served(model, home, tmp_path):
    saved = ("--results_dir", tmp_path / "run", "--save_checkpoint_path", tmp_path / "saved")
    given = ("--dataset_dir", home / "d", "--model_type", model, "--embedding_dim", 4)
    run("train", *given, *TRAINING, *saved)
    source = ("--load_checkpoint_path", tmp_path / "saved", "--dataset_dir", home / "d")
    output = run("inference", *source, "--results_dir", tmp_path / "inference")
    assert "auc" in output.lower()
    run("export", *source, "--output", tmp_path / "servable")
    event = {"who": "u1", "history": ["i1", "i2"], "candidates": ["i3"], "hour": 7}
    devices = ["phone", "tv", "a device that nobody had", "another one", None]
    lines = [json.dumps({**event, "device": device}) for device in devices]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    scores = ("--output", tmp_path / "scores.parquet")
    run("score", tmp_path / "servable", "--input", tmp_path / "events.jsonl", *scores)
    scored = pq.read_table(tmp_path / "scores.parquet").to_pydict()["scores"]
    phone, tv, unknown, other, missing = (found[0] for found in scored)
    assert phone != tv and unknown not in (phone, tv)
    assert unknown == other == missing  # id 0
    if model == "din":
        assert tv > phone  # as in the log
