"""Several ranks do what one rank does: real horovodrun, real models, unequal files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from merlin_sim.training.distributed import Ranks

from .processes import BIN, run
from .rank_worker import CASES, metrics, run_cases

pytestmark = [pytest.mark.slow, pytest.mark.horovod]
WORKER = Path(__file__).with_name("rank_worker.py")
ON_FOUR = [2]


@pytest.fixture(scope="module")
def alone(sim_dataset, tmp_path_factory):
    directory = tmp_path_factory.mktemp("alone")
    return directory, run_cases(sim_dataset, directory)


def launch(dataset, directory, ranks, cases):
    words = [str(BIN / "horovodrun"), "-np", str(ranks), "--gloo", "-H", f"localhost:{ranks}"]
    words += [sys.executable, str(WORKER), str(dataset), str(directory), json.dumps(cases)]
    done = run(words, seconds=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory, json.loads((directory / "results.json").read_text())


@pytest.fixture(scope="module")
def two(sim_dataset, tmp_path_factory):
    return launch(sim_dataset, tmp_path_factory.mktemp("two"), 2, list(range(len(CASES))))


@pytest.fixture(scope="module")
def four(sim_dataset, tmp_path_factory):
    return launch(sim_dataset, tmp_path_factory.mktemp("four"), 4, ON_FOUR)


def weights(directory, case):
    newest = sorted((directory / str(case) / "saved").glob("step-*"))[-1]
    with np.load(newest / "arrays.npz") as arrays:
        names = [name for name in arrays.files if arrays[name].dtype.kind == "f"]
        return newest.name, {name: arrays[name] for name in names}


def assert_same(one, many, case, place):
    (name, expected), (other_name, received) = weights(one[0], case), weights(many[0], place)
    assert name == other_name == "step-0000000008"
    assert set(expected) == set(received)
    for key, array in expected.items():
        np.testing.assert_allclose(received[key], array, rtol=2e-3, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("case", range(len(CASES)), ids=["-".join(map(str, c)) for c in CASES])
def test_two_ranks_end_with_the_weights_of_one(alone, two, case):
    assert_same(alone, two, case, case)


@pytest.mark.parametrize("place", range(len(ON_FOUR)))
def test_four_ranks_end_with_the_weights_of_one(alone, four, place):
    assert_same(alone, four, ON_FOUR[place], place)


# Weights that differ by rounding can swap two rows of almost the same score.
ONE_PAIR = 2e-4
METRICS = ("train_auc", "test_auc", "test_log_loss", "test_gauc", "test_calibration_error")


@pytest.mark.parametrize("name", METRICS)
def test_metrics_are_those_of_one_rank(alone, two, four, name):
    for case in range(len(CASES)):
        expected = alone[1][case][name]
        assert two[1]["cases"][str(case)][name] == pytest.approx(expected, abs=ONE_PAIR)
    for place, case in enumerate(ON_FOUR):
        expected = alone[1][case][name]
        assert four[1]["cases"][str(place)][name] == pytest.approx(expected, abs=ONE_PAIR)


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
def test_overflow_on_one_rank_skips_the_step_on_all(request, ranks):
    for seen in request.getfixturevalue(ranks)[1]["overflow"]:
        assert seen == [
            [0.75, 2.0**15, True, False],
            [0.75, 2.0**14, False, True],  # and all hear of the stop asked for on rank 1
            [0.5, 2.0**14, True, False],
        ]
