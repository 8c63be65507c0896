"""A family that somebody brings goes the whole way of the command line, from data to scores."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from in_process import parsed, run
from logistic_family import (
    FACTORS,
    FAMILY,
    NAME,
    LogisticModel,
    chance_of_sale,
    write_logistic_dataset,
)
from processes import entries

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.models import build_model, known_families, load_model
from merlin_sim.models.known_families import families, find_family
from merlin_sim.schemas.channels import CONTRACTS, channels_of
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.schemas.merlin_schema import to_merlin_schema
from merlin_sim.scripts.commands import train as train_command
from merlin_sim.serving.encoder import open_encoder
from merlin_sim.serving.limits import Limits
from merlin_sim.serving.scorer import Scorer
from merlin_sim.serving.servable import Servable
from merlin_sim.serving.signatures import check_request, merge_requests
from merlin_sim.serving.texts import encode_events
from merlin_sim.serving.triton.repository import stock_models, write_stock_repository

# Options of the command line are made of the families when it is imported: here, of the real ones.
assert train_command.command


@pytest.fixture(scope="module", autouse=True)
def known():
    """Whatever else is tested knows nothing of this family."""
    find_family(NAME)
    yield
    del CONTRACTS[NAME]


@pytest.fixture(scope="module")
def dataset(known, tmp_path_factory):
    return write_logistic_dataset(tmp_path_factory.mktemp("sales") / "dataset")


def train(dataset, directory, *options):
    arguments = ["--dataset_dir", dataset, "--model_type", NAME, "--global_batch_size", 200]
    arguments += ["--results_dir", directory / "results", "--seed", 3, "--lr", 0.1]
    arguments += ["--save_checkpoint_path", directory / "saved", *options]
    return run("train", *arguments)


@pytest.fixture(scope="module")
def trained(dataset, tmp_path_factory):
    directory = tmp_path_factory.mktemp("run")
    said = train(dataset, directory, "--epochs", 4, "--model_option", "start=0.25")
    assert "epoch 4/4  log_loss" in said and "gauc" not in said
    return directory


@pytest.fixture(scope="module")
def exported(dataset, trained, tmp_path_factory):
    output = tmp_path_factory.mktemp("exported") / "servable"
    arguments = ["--load_checkpoint_path", trained / "saved", "--dataset_dir", dataset]
    run("export", *arguments, "--output", output)
    return output


@pytest.fixture
def one_of_the_package(monkeypatch):
    """The family beside those of the package, under a name without a module."""
    own = replace(FAMILY, name="logistic", help={"start": "Where weights start."})
    monkeypatch.setattr(known_families, "OWN", (*known_families.OWN, own))
    families.cache_clear()
    yield "logistic"
    families.cache_clear()
    CONTRACTS.pop("logistic", None)


def test_a_family_of_the_package_is_known_by_its_name(one_of_the_package, dataset):
    opened = DatasetDirectory.open(dataset, model=one_of_the_package)
    assert CONTRACTS[one_of_the_package] is FAMILY.contract
    found = channels_of(to_merlin_schema(opened.spec))
    assert found == {"label": ["sold"], FACTORS: ["color", "size"]}
    with pytest.raises(MerlinSimError, match=f"a channel of sim.*{FACTORS}"):
        DatasetDirectory.open(dataset, model="sim")
    for name in (one_of_the_package, NAME):
        assert f"fits {name}" in run("data", "spec", "validate", dataset, "--model_type", name)
    with pytest.raises(MerlinSimError, match=f"should be one of .*{one_of_the_package}.*'mind'"):
        run("data", "spec", "validate", dataset, "--model_type", "mind")
    config, _ = parsed("--dataset_dir", dataset, "--model_type", one_of_the_package)
    model = build_model(config.model_type, opened.schema, start=0.5)
    assert type(model) is LogisticModel and model.weights[0].numpy().tolist() == [0.5] * 6


def test_what_is_logged_is_the_family_s_and_inference_finds_it_again(dataset, trained, tmp_path):
    steps, (*_, last) = entries(trained / "results", "step"), entries(trained / "results", "epoch")
    assert len(steps) == 40 and steps[-1]["log_loss"] < steps[0]["log_loss"]
    assert {"log_loss", "test_auc", "test_log_loss"} <= set(last)
    assert not {"total_loss", "dien_aux_loss", "test_gauc"} & set(last)
    assert last["test_auc"] > 0.75
    config = (trained / "results/config.yaml").read_text()
    assert f"model_type: {NAME}" in config and "start=0.25" in config
    arguments = ["--dataset_dir", dataset, "--load_checkpoint_path", trained / "saved"]
    run("inference", *arguments, "--results_dir", tmp_path)
    (found,) = entries(tmp_path, "inference")
    assert found["test_auc"] == last["test_auc"]
    model = load_model(trained / "saved")
    assert [weight.shape.as_list() for weight in model.weights] == [[6], [4], []]


def test_raw_rows_are_scored(dataset, trained, exported, tmp_path):
    keys = [None, "red", "blue", "green", "black", "white"]
    rows = [(color, size) for color in range(6) for size in range(4)]
    source, output = tmp_path / "rows.jsonl", tmp_path / "scores.jsonl"
    lines = [json.dumps({"color": keys[color], "size": size}) for color, size in rows]
    source.write_text("\n".join([*lines, json.dumps({"color": "pink", "size": 2})]))
    run("score", exported, "--input", source, "--output", output)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert found[7].keys() == {"line", "color", "size", "scores"}
    assert (found[7]["color"], found[7]["size"]) == ("red", 3)
    scores = np.array([line["scores"] for line in found])[:, 0]
    model = load_model(trained / "saved")
    columns = dict(zip(("color", "size"), np.array(rows).T, strict=True))
    logits = model.forward(columns).logits.numpy()[:, 0]
    np.testing.assert_allclose(scores[:-1], 1 / (1 + np.exp(-logits)), rtol=1e-6)
    np.testing.assert_allclose(scores[:-1], chance_of_sale(*np.array(rows).T), atol=0.25)
    assert scores[-1] == scores[2]  # an unseen key is id 0, as a missing one

    table = tmp_path / "rows.csv"
    table.write_text("color,size\nred,3\n,2\n")
    run("score", exported, "--input", table, "--output", tmp_path / "scores.parquet")
    of_table = pq.read_table(tmp_path / "scores.parquet")
    assert of_table.column_names == ["line", "color", "size", "scores"]
    np.testing.assert_allclose(
        [row[0] for row in of_table["scores"].to_pylist()], [scores[7], scores[2]], rtol=1e-6
    )


@pytest.mark.slow
def test_the_server_s_models_answer(exported, tmp_path):
    """What runs inside Triton, without Triton: requests of ids, and rows as JSON."""
    servable = Servable.open(exported)
    scorer = Scorer(servable)
    tensors = {"color": np.array([1, 5]), "size": np.array([0, 3])}
    requests = [check_request(tensors, servable.columns, Limits()) for _ in range(2)]
    assert requests[0].rows == 2 and not requests[0].is_one_user
    twice = scorer.score_ids(merge_requests(requests, servable.columns))
    np.testing.assert_array_equal(twice[:2], twice[2:])
    texts = np.array(['{"color": "red", "size": 0}', '{"color": "white", "size": 3}'])
    events = encode_events(open_encoder(servable), texts)
    np.testing.assert_allclose(np.concatenate(scorer.score_events(events)), twice[:2], rtol=1e-6)
    write_stock_repository(servable, tmp_path / "models")
    for model in stock_models(servable, Limits()):
        assert (tmp_path / "models" / model.name / "config.pbtxt").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model_type", "mind"], "be one of .*, sim, or package.module:FAMILY. Received: 'mind'"),
        (["--model_type", "no_such_module:FAMILY"], "No module named 'no_such_module'"),
        (["--model_type", "logistic_family:NAME"], "should be a merlin_sim.models.family.Family"),
        (["--model_type", "din"], f"a channel of din.*{FACTORS}"),
        (["--model_type", NAME, "--tables", "spread"], "has no tables that can be spread over"),
    ],
)
def test_what_is_no_family_or_cannot_be_done_with_it_is_refused(dataset, tmp_path, words, said):
    more = ["--global_batch_size", 200, "--results_dir", tmp_path / "results"]
    with pytest.raises(MerlinSimError, match=said):
        run("train", "--dataset_dir", dataset, *words, *more)


def test_rows_that_cannot_be_scored_and_padding_are_refused(dataset, trained, exported, tmp_path):
    arguments = ["--load_checkpoint_path", trained / "saved", "--dataset_dir", dataset, "--pad"]
    with pytest.raises(MerlinSimError, match="`pad` is about histories"):
        run("export", *arguments, "--output", tmp_path / "out")
    source = tmp_path / "rows.jsonl"
    arguments = ["--input", source, "--output", tmp_path / "scores.jsonl"]
    for text, said in [
        ('{"color": "red"}', "line 1: expected the key 'size'"),
        ('{"color": 5, "size": 1}', "line 1: color: expected a string or null, received 5"),
    ]:
        source.write_text(text)
        with pytest.raises(MerlinSimError, match=said):
            run("score", exported, *arguments)
