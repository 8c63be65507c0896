"""Several ranks do what one rank does: real horovodrun, real models, unequal files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rank_worker
from evaluated import evaluation_of
from processes import horovodrun, losses, run
from rank_worker import CASES, RESUMED, metrics, resume, run_cases
from warm import warm

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.training.evaluation.metrics import AUC

pytestmark = [pytest.mark.slow, pytest.mark.horovod, pytest.mark.timeout(600)]
WORKER = rank_worker.__file__
ON_FOUR = [3]
"""DIN and plain gradients: what four ranks add is how rows are dealt and averages scaled."""
SAME_SCORE = 1e-5


@pytest.fixture(scope="module")
def alone(sim_dataset, tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    return directory, run_cases(sim_dataset, directory, Ranks(), range(len(CASES)))


def launch(dataset, directory, alone, ranks, cases):
    words = warm(WORKER, str(dataset), str(directory), str(alone[0]), json.dumps(cases))
    done = run([*horovodrun(ranks), *words], seconds=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, json.loads((directory / "results.json").read_text())


@pytest.fixture(scope="module")
def two(sim_dataset, alone, tmp_path_factory):
    cases = list(range(len(CASES)))
    return launch(sim_dataset, tmp_path_factory.mktemp("two"), alone, 2, cases)


@pytest.fixture(scope="module")
def four(sim_dataset, alone, tmp_path_factory):
    return launch(sim_dataset, tmp_path_factory.mktemp("four"), alone, 4, ON_FOUR)


def weights(directory, case):
    newest = sorted((directory / str(case) / "saved").glob("step-*"))[-1]
    with np.load(newest / "arrays.npz") as arrays:
        names = [name for name in arrays.files if arrays[name].dtype.kind == "f"]
        return newest.name, {name: arrays[name] for name in names}


def assert_same(one, many, case, place=None):
    (name, expected), (other_name, received) = (
        weights(one[0], case),
        weights(many[0], place or case),
    )
    assert name == other_name == "step-0000000008"
    assert set(expected) == set(received)
    for key, array in expected.items():
        np.testing.assert_allclose(received[key], array, rtol=2e-3, atol=2e-5, err_msg=key)


def assert_same_rows(expected, received):
    """The same rows in the same batches, scored the same but for float rounding."""
    for name in ("train", "test"):
        assert len(received[name]) == len(expected[name])
        for batch, wanted in zip(received[name], expected[name], strict=True):
            assert batch[0] == wanted[0] and batch[2:] == wanted[2:]
            np.testing.assert_allclose(batch[1], wanted[1], rtol=0, atol=SAME_SCORE)


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(map(str, c)) for c in CASES])
def test_two_ranks_end_with_the_weights_of_one(alone, two, case):
    assert_same(alone, two, case)


@pytest.mark.parametrize("case", ON_FOUR)
def test_four_ranks_end_with_the_weights_of_one(alone, four, case):
    assert_same(alone, four, case)


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_every_row_is_scored_as_on_one_rank(request, alone, ranks):
    for case, found in request.getfixturevalue(ranks)[1]["cases"].items():
        assert_same_rows(alone[1][case]["rows"], found["rows"])
        assert sum(len(batch[0]) for batch in found["rows"]["train"]) == 300


@pytest.mark.parametrize("ranks", ["alone", "two", "four"])
def test_metrics_are_exactly_those_of_the_scores(request, ranks):
    """What several ranks report is, to the bit, what one process makes of all their rows."""
    results = request.getfixturevalue(ranks)[1]
    for found in results.get("cases", results).values():
        counts = AUC()
        for labels, scores in found["rows"]["train"]:
            counts.update_state(np.array(labels), np.array(scores))
        assert found["result"]["train_auc"] == counts.exact_result()
        (test,) = found["rows"]["test"]
        expected = evaluation_of(*test, batches=5).to_dict()
        for name in ("auc", "log_loss", "gauc", "calibration_error"):
            assert found["result"][f"test_{name}"] == expected[name]


def test_a_run_goes_on_on_another_number_of_ranks(sim_dataset, alone, two, four, tmp_path):
    """Ranks 1 -> 2, 1 -> 4 and 2 -> 1, within an epoch: rows, losses and weights of one run."""
    back = tmp_path, {"resumed": resume(sim_dataset, tmp_path, two[0], Ranks())}
    whole = alone[1][str(RESUMED)]
    rest = {name: whole["rows"][name] for name in ("train", "test")}
    rest["train"] = rest["train"][2:]  # steps 7 and 8; 5 and 6 were done before
    expected = losses(alone[0] / str(RESUMED))
    for directory, results in (two, four, back):
        assert_same_rows(rest, results["resumed"]["rows"])
        received = losses(directory / "resumed")
        assert sorted(received) == [7, 8]
        for step, values in received.items():
            np.testing.assert_allclose(values, expected[step], rtol=1e-5)
        assert_same(alone, (directory, results), RESUMED, "resumed")


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_metrics_of_the_same_predictions_are_equal_to_the_bit(request, ranks):
    expected = json.loads(json.dumps(metrics(Ranks())))
    assert request.getfixturevalue(ranks)[1]["metrics"] == expected
    assert expected["rows"] == 4001 and 0.5 < expected["gauc"] < 1


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_gradients_are_averaged_once_and_tables_stay_rows(request, ranks):
    size = {"two": 2, "four": 4}[ranks]
    results = request.getfixturevalue(ranks)[1]
    table = np.zeros([6, 2])
    for rank in range(size):
        table[rank] += rank + 1
        table[2] += 2 * (rank + 1)
    mean = np.mean(range(size))
    for name, is_rows in (("sparse", True), ("dense", False), ("fp16", True)):
        received, vector, extra, rows = results["averages"][name]
        np.testing.assert_allclose(received, table / size)
        assert vector == [mean] * 3
        assert extra == [mean]
        assert rows == is_rows
    assert results["sum"] == [size * (size + 1) // 2]


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_equal_gradients_have_equal_averages_to_the_bit(request, ranks):
    """From three ranks on the order of a sum goes by what Horovod fuses it with."""
    assert request.getfixturevalue(ranks)[1]["averages of the same"] == 1


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_overflow_on_one_rank_skips_the_step_on_all(request, ranks):
    for seen in request.getfixturevalue(ranks)[1]["overflow"]:
        assert seen == [
            [0.75, 2.0**15, True, False],
            [0.75, 2.0**14, False, True],  # and all hear of the stop asked for on rank 1
            [0.5, 2.0**14, True, False],
        ]
