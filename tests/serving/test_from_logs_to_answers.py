"""The whole way as a person walks it, each step a process of its own.

Logs -> dataset -> trained model -> servable, moved -> a server that has nothing else -> scores.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from evaluated import evaluation_of
from raw_events import events_of_test_rows
from serving_process import reached, run_command, serving
from triton_calls import infer, infer_events

from merlin_sim.dataloader.open_loader import open_loader
from merlin_sim.foundation.ranks import Ranks
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.serving.triton.export import restore_model
from merlin_sim.training.evaluation.evaluate import evaluate
from merlin_sim.training.evaluation.prediction import Predictor
from merlin_sim.training.run_log import RunLog

pytest.importorskip("pytriton")
pytest.importorskip("tritonclient.http")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PREPROCESS = ["--max_sequence_length", 20]
MODEL = ["--model_type", "din", "--embedding_dim", 4]
TRAINING = ["--epochs", 3, "--global_batch_size", 128, "--lr", 0.03, "--seed", 5]
METRICS = ("auc", "log_loss", "gauc", "calibration_error")


class RecordingPredictor(Predictor):
    """Keeps the score of every row that is evaluated."""

    def __init__(self, model):
        super().__init__(model)
        self.scores = []

    def of_given(self, given, feed, keep=()):
        found = super().of_given(given, feed, keep)
        self.scores.append(found.scores)
        return found


def evaluated(dataset, checkpoints):
    """What a run's evaluation computes: the metrics, and each test row's score."""
    model = restore_model(CheckpointStore(checkpoints).load(), dataset)
    columns = [*model.channels.served, model.channels.label]
    feed = open_loader(dataset, "test", columns, 32, Ranks())
    predict = RecordingPredictor(model)
    evaluation, _ = evaluate(predict, feed, Ranks(), RunLog(None), "user_id")
    return evaluation.to_dict(), np.concatenate(predict.scores)


def ids_of(rows):
    """Test rows as the model `ids` takes them."""
    tensors = {name: np.array(rows[name]) for name in ("user_id", "item_id_trgt", "cat_id_trgt")}
    for name in ("item_id_pos", "cat_id_pos"):
        lengths = [len(values) for values in rows[name]]
        tensors[f"{name}__values"] = np.concatenate(rows[name]).astype(np.int64)
        tensors[f"{name}__offsets"] = np.cumsum([0, *lengths]).astype(np.int32)
    return tensors


def same(found, expected):
    """Whether metrics agree where scores differ in their last digit.

    The AUC counts scores between thresholds: one that falls on the other side of its threshold
    moves it by half a pair, of which there are about a thousand here.
    """
    return all(found[name] == pytest.approx(expected[name], abs=5e-4) for name in METRICS) and (
        found["log_loss"] == pytest.approx(expected["log_loss"], abs=1e-6)
    )


@pytest.fixture(scope="module")
def walked(raw_logs, tmp_path_factory):
    """Everything up to the servable, moved away; of the rest only what a caller knows is left."""
    home = tmp_path_factory.mktemp("home")
    work = home / "work"
    dataset, run, servable = (work / name for name in ("dataset", "run", "servable"))
    source = ["--amazon_dataset_path", raw_logs, "--output_path", dataset]
    run_command("preprocess", "amazon-books", *source, *PREPROCESS)
    saved = ["--results_dir", run, "--save_checkpoint_path", run / "checkpoints"]
    run_command("train", "--dataset_dir", dataset, *MODEL, *TRAINING, *saved)
    source = ["--load_checkpoint_path", run / "checkpoints", "--dataset_dir", dataset]
    run_command("export", *source, "--output", servable)

    known = {
        "rows": pq.read_table(dataset / "test").to_pydict(),
        "events": events_of_test_rows(dataset, raw_logs / "reviews_Books.json"),
        "evaluation": json.loads((run / "evaluation.json").read_text()),
        "logged": [json.loads(line) for line in (run / "log.json").read_text().splitlines()][-1],
    }
    known["again"], known["scores"] = evaluated(DatasetDirectory.open(dataset), run / "checkpoints")
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    servable.rename(elsewhere / "model")
    work.rename(home / "put away")
    return elsewhere, work, known


def test_what_is_served_are_the_scores_that_the_run_evaluated(walked):
    elsewhere, work, known = walked
    rows, expected = known["rows"], known["scores"]
    assert len(expected) == len(known["events"]) == known["evaluation"]["rows"] > 20
    assert np.ptp(expected) > 0.1
    # The rows' scores are the run's: computed again, they give the metrics that it logged.
    assert same(known["again"], known["evaluation"])
    assert same({name: known["logged"][f"test_{name}"] for name in METRICS}, known["again"])

    assert not work.exists()
    environment = {"PATH": os.environ["PATH"], "HOME": str(elsewhere)}
    with serving(elsewhere / "model", cwd=elsewhere, env=environment) as process:
        server = reached(process)
        answers = {
            "raw events": infer_events(server, "http", known["events"])[:, 0],
            "ids": infer(server, "http", "ids", ids_of(rows), "score")[:, 0],
        }
        process.terminate()
        assert process.wait(200) == 0
    for name, scores in answers.items():
        np.testing.assert_allclose(scores, expected, atol=1e-5, err_msg=name)
        found = evaluation_of(rows["label"], scores, rows["user_id"]).to_dict()
        assert same(found, known["evaluation"]), name


def test_nothing_in_it_reports_where_it_came_from(walked):
    elsewhere, work, _ = walked
    for path in (elsewhere / "model").rglob("*"):
        assert path.is_dir() or str(work).encode() not in path.read_bytes(), path.name
