"""DLRM goes the whole way of the command line, from a dataset to scores."""

from __future__ import annotations

import json

import numpy as np
import pytest
from in_process import run
from processes import entries
from ranking_rows import write_ranking_dataset

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import load_model

SMALL = ["--embedding_dim", 8, "--bottom_mlp_dims", "16,8", "--top_mlp_dims", "16,1"]
OPTIONS = {"dlrm": SMALL, "dcnv2": [*SMALL, "--cross_layers", 2, "--cross_rank", 4]}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return write_ranking_dataset(tmp_path_factory.mktemp("clicks") / "dataset")


@pytest.mark.slow
def test_it_learns_what_two_columns_say_together_and_raw_rows_give_it(dataset, tmp_path):
    """The number alone, which a sum of columns could weigh, gives 0.67."""
    arguments = ["--dataset_dir", dataset, "--model_type", "dlrm", *OPTIONS["dlrm"]]
    arguments += ["--global_batch_size", 200, "--results_dir", tmp_path / "run/results"]
    arguments += ["--seed", 3, "--lr", 0.01, "--epochs", 4]
    run("train", *arguments, "--save_checkpoint_path", tmp_path / "run/saved")
    *_, last = entries(tmp_path / "run/results", "epoch")
    assert last["test_auc"] > 0.8 and "test_gauc" not in last
    saved = tmp_path / "run/saved"
    arguments = ["--dataset_dir", dataset, "--load_checkpoint_path", saved]
    run("inference", *arguments, "--results_dir", tmp_path)
    (found,) = entries(tmp_path, "inference")
    assert found["test_auc"] == last["test_auc"]
    run("export", *arguments, "--output", tmp_path / "servable")
    ids = {f"category_{index}": [1, 2] for index in (1, 2)}
    numbers = {f"number_{index}": [0.5, -1.25] for index in range(4)}
    rows = [{name: values[row] for name, values in (ids | numbers).items()} for row in (0, 1)]
    rows[0]["category_0"], rows[1]["category_0"] = "key 5", "a key that nobody has seen"
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output = tmp_path / "scores.jsonl"
    run("score", tmp_path / "servable", "--input", tmp_path / "rows.jsonl", "--output", output)
    example = run("score", tmp_path / "servable", "--example")
    assert json.loads(example)["category_0"] == "key 1"
    (tmp_path / "example.jsonl").write_text(example)
    files = ["--input", tmp_path / "example.jsonl", "--output", tmp_path / "example.parquet"]
    assert "1 events, 1 candidates" in run("score", tmp_path / "servable", *files)
    scores = [json.loads(line)["scores"][0] for line in output.read_text().splitlines()]
    columns = {name: np.array(values) for name, values in (ids | numbers).items()}
    logits = load_model(saved).forward({**columns, "category_0": np.array([5, 0])}).logits
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-logits.numpy()[:, 0])), rtol=1e-5)


@pytest.mark.parametrize(
    ("model_type", "options", "said"),
    [
        ("dlrm", ["--embedding_dim", 4], "`embedding_dim` = 4. Received: `bottom_mlp_dims`"),
        ("dlrm", ["--top_mlp_dims", "16,2"], "should end with 1, the logit"),
        ("dcnv2", ["--embedding_dims", "4,8"], "each of the 3 categorical features. Received: 2"),
        ("dlrm", ["--top_k", 4], "Unknown option: top_k. DLRMOptions has"),
        ("sim", ["--top_k", 4], "a channel of sim"),
    ],
)
def test_options_that_cannot_be_are_refused(model_type, options, said, dataset, tmp_path):
    results = tmp_path / "results"
    arguments = ["--dataset_dir", dataset, "--results_dir", results, *OPTIONS.get(model_type, [])]
    with pytest.raises(MerlinSimError, match=said):
        run("train", *arguments, "--model_type", model_type, *options)
    assert not results.exists()
