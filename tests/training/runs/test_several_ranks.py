"""Several ranks do what one rank does: real horovodrun, real models, unequal files.

Two ranks start once and do everything, and so do three.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import rank_worker
import spread_worker
from evaluated import evaluation_of
from grown_dataset import write_keyed_dataset
from in_process import run as run_here
from logistic_family import write_logistic_dataset
from processes import entries, horovodrun, losses, run
from rank_worker import case_config, metrics, resume, run_case
from ranking_rows import write_ranking_dataset
from small_users import write_users_dataset
from warm import warm

from merlin_sim.foundation.ranks import Ranks
from merlin_sim.models.known_families import find_family
from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.parallel.ranks.run_lock import run_in
from merlin_sim.schemas.channels import CONTRACTS
from merlin_sim.training.evaluation.metrics import AUC

pytestmark = [pytest.mark.slow, pytest.mark.horovod, pytest.mark.timeout(600)]
RANKS = {"two": 2, "three": 3}
SPREAD_OF = {"two": ["columns-lazy_adam"], "three": ["whole-sgd", "rows-adagrad"]}
SAME_SCORE = 1e-5
LENGTHS = np.random.default_rng(0).integers(2, 25, 40).tolist()
SAMPLES = 2 * sum(length - 2 for length in LENGTHS)

DLRM = ["--model_type", "dlrm", "--embedding_dim", "8", "--bottom_mlp_dims", "16,8"]
DLRM += ["--top_mlp_dims", "16,1", "--global_batch_size", "100", "--seed", "3"]
DLRM += ["--warmup_steps", "4"]
SIM = ["--model_type", "sim", "--embedding_dim", "4", "--stage_one_mlp_dims", "8"]
SIM += ["--stage_two_mlp_dims", "8,4", "--aux_mlp_dims", "6", "--long_seq_length", "4"]
SIM += ["--top_k", "2", "--epochs", "2", "--seed", "3"]
SIM += ["--optimizer", "sgd", "--lr", "0.3"]  # whose steps are as long as gradients are
# 14 rows of users a step, of 71: in the last of an epoch the first rank has none.
SIM += ["--global_batch_size", "224", "--candidates", "16"]
NORMALIZED = ["--model_type", "normalized_family:FAMILY", "--global_batch_size", "100"]
NORMALIZED += ["--seed", "3", "--epochs", "2", "--lr", "0.05"]
KEYED = ["--model_type", "din", "--embedding_dim", "4", "--stage_two_mlp_dims", "8"]
KEYED += ["--global_batch_size", "40", "--epochs", "1"]
OPTIONS = {
    "goes on": [*DLRM, "--epochs", "2", "--lr", "0.05", "--tables", "spread"],
    "users": SIM,
    "warm start": [*KEYED, "--seed", "6", "--max_steps", "7", "--known_rows_rate", "0.5"],
}
COMPARED = tuple(OPTIONS)
"""Commands that one rank runs too."""
OPTIONS["normalized"] = NORMALIZED
ON_TWO = {
    "goes on": ["--cut", "columns", "--max_steps", "8", "--xla"],
    "warm start": ["--tables", "spread", "--cut", "rows"],
}
"""What commands on two ranks have beside that."""


@pytest.fixture(scope="module")
def normalized():
    """A family that whatever else is tested knows nothing of."""
    yield find_family(NORMALIZED[1])
    del CONTRACTS[NORMALIZED[1]]


@pytest.fixture(scope="module")
def datasets(normalized, tmp_path_factory):
    """The dataset of each command; of the grown one a run on the one before is there."""
    home = tmp_path_factory.mktemp("datasets")
    old = write_keyed_dataset(home / "old")
    saved = ["--results_dir", home / "first", "--save_checkpoint_path", home / "first/saved"]
    saved += ["--affinity", "disabled"]
    run_here("train", "--dataset_dir", old, *KEYED, "--seed", "5", *saved)
    return {
        "goes on": write_ranking_dataset(home / "clicks", rows=501),
        "users": write_users_dataset(home / "users", [[LENGTHS]]),
        "warm start": write_keyed_dataset(home / "grown", grown=True),
        "normalized": write_logistic_dataset(home / "normalized"),
        "first": home / "first/saved",
    }


def command(datasets, folder: Path, name: str) -> list[str]:
    """The words of a command that works in a folder of its own."""
    results = folder / name
    words = ["train", "--dataset_dir", datasets[name], *OPTIONS[name], "--affinity", "disabled"]
    if name == "warm start":
        words += ["--warm_start", datasets["first"]]
    words += ["--results_dir", results, "--save_checkpoint_path", results / "saved"]
    return list(map(str, words))


@pytest.fixture(scope="module")
def alone(sim_dataset, datasets, tmp_path_factory):
    """What one rank does: its folder, and what it reported."""
    folder = tmp_path_factory.mktemp("alone")
    case = run_case(case_config(sim_dataset, folder / "case"), Ranks())
    spread = spread_worker.train_all(Ranks(), folder, {c.name for c in spread_worker.CASES})
    for name in COMPARED:
        run_here(*command(datasets, folder, name))
    return SimpleNamespace(folder=folder, results={"case": case, "spread": spread})


def launch(number, dataset, folder, alone, commands):
    ranks = RANKS[number]
    job = {"dataset": dataset, "folder": folder, "alone": alone.folder, "commands": commands}
    job |= {"spread": SPREAD_OF[number], "resumes": ranks == 3}
    words = warm(rank_worker.__file__, json.dumps(job, default=str))
    done = run([*horovodrun(ranks), *words], seconds=550)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return SimpleNamespace(folder=folder, results=json.loads((folder / "results.json").read_text()))


@pytest.fixture(scope="module")
def two(sim_dataset, datasets, alone, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    commands = {n: [*command(datasets, folder, n), *ON_TWO.get(n, [])] for n in OPTIONS}
    commands["in use"] = [*commands["goes on"], "--results_dir", str(folder / "in use")]
    with run_in([folder / "in use"]):
        return launch("two", sim_dataset, folder, alone, commands)


@pytest.fixture(scope="module")
def three(sim_dataset, alone, tmp_path_factory):
    return launch("three", sim_dataset, tmp_path_factory.mktemp("three"), alone, {})


@pytest.fixture
def together(request, ranks):
    """What so many ranks did."""
    return request.getfixturevalue(ranks)


def weights(folder, case):
    newest = sorted((folder / case / "saved").glob("step-*"))[-1]
    with np.load(newest / "arrays.npz") as arrays:
        names = [name for name in arrays.files if arrays[name].dtype.kind == "f"]
        return newest.name, {name: arrays[name] for name in names}


def assert_same_weights(one, many, case):
    name, expected = weights(one, "case")
    other_name, received = weights(many, case)
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


def assert_metrics_of_rows(found):
    """What is reported is, to the bit, what one process makes of the rows of all ranks."""
    counts = AUC()
    assert sum(len(labels) for labels, _ in found["rows"]["train"]) == 300
    for labels, scores in found["rows"]["train"]:
        counts.update_state(np.array(labels), np.array(scores))
    assert found["result"]["train_auc"] == counts.exact_result()
    (test,) = found["rows"]["test"]
    expected = evaluation_of(*test, batches=5).to_dict()
    for name in ("auc", "log_loss", "gauc", "calibration_error"):
        assert found["result"][f"test_{name}"] == expected[name]


def test_weights_rows_and_metrics_are_those_of_one_rank(alone, two):
    assert_same_weights(alone.folder, two.folder, "case")
    expected, found = (done.results["case"] for done in (alone, two))
    assert_same_rows(expected["rows"], found["rows"])
    for reported in (expected, found):
        assert_metrics_of_rows(reported)


def test_a_run_goes_on_on_another_number_of_ranks(sim_dataset, alone, two, three, tmp_path):
    """Ranks 1 -> 3 and 2 -> 1, within an epoch: rows, losses and weights of one run."""
    begun = two.folder / "case/saved/step-0000000006"
    back = {"resumed": resume(sim_dataset, tmp_path, begun, Ranks())}
    whole = alone.results["case"]["rows"]
    expected = losses(alone.folder / "case")
    for after, other in ((3, three), (6, SimpleNamespace(folder=tmp_path, results=back))):
        # Of the last epoch, which begins with step 5.
        rest = {**whole, "train": whole["train"][max(0, after - 4) :]}
        assert_same_rows(rest, other.results["resumed"]["rows"])
        received = losses(other.folder / "resumed")
        assert sorted(received) == list(range(after + 1, 9))
        for step, values in received.items():
            np.testing.assert_allclose(values, expected[step], rtol=1e-5)
        assert_same_weights(alone.folder, other.folder, "resumed")
    assert_metrics_of_rows(three.results["resumed"])


@pytest.mark.parametrize("ranks", RANKS)
def test_metrics_of_the_same_predictions_are_equal_to_the_bit(together):
    expected = json.loads(json.dumps(metrics(Ranks())))
    assert together.results["metrics"] == expected
    assert expected["rows"] == 4001 and 0.5 < expected["gauc"] < 1


@pytest.mark.parametrize("ranks", RANKS)
def test_gradients_are_averaged_once_and_tables_stay_rows(together, ranks):
    size, results = RANKS[ranks], together.results
    table = np.zeros([6, 2])
    for rank in range(size):
        table[rank] += rank + 1
        table[2] += 2 * (rank + 1)
    mean = np.mean(range(size))
    for name, is_rows in (("sparse", True), ("dense", False), ("fp16", True)):
        received, vector, extra, rows = results["averages"][name]
        np.testing.assert_allclose(received, table / size)
        assert vector == [mean] * 3 and extra == [mean]
        assert rows == is_rows
    assert results["sum"] == [size * (size + 1) // 2]
    # From three ranks on the order of a sum goes by what Horovod fuses it with.
    assert results["averages of the same"] == 1, "equal gradients have equal averages to the bit"


@pytest.mark.parametrize("ranks", RANKS)
def test_overflow_on_one_rank_skips_the_step_on_all(together):
    for seen in together.results["overflow"]:
        assert seen == [
            [0.75, 2.0**15, True, False],
            [0.75, 2.0**14, False, True],  # and all hear of the stop asked for on rank 1
            [0.5, 2.0**14, True, False],
        ]


def assert_close_arrays(folders, apart, lost=()):
    """Checkpoints hold the same arrays, but for so much of the largest number of each."""
    theirs, ours = (CheckpointStore(folder).load().arrays for folder in folders)
    assert set(ours) == set(theirs)
    for name in set(theirs) - set(lost):
        scale = max(apart[1], float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(
            ours[name], theirs[name], rtol=0, atol=apart[0] * scale, err_msg=name
        )
    for name in lost:
        assert max(abs(found[name]).max() for found in (ours, theirs)) < 1e-5


@pytest.mark.parametrize(
    "ranks, case", [(ranks, case) for ranks, cases in SPREAD_OF.items() for case in cases]
)
def test_fifty_steps_of_spread_tables_are_those_of_one_process(ranks, case, alone, together):
    expected, found = alone.results["spread"][case], together.results["spread"][case]
    for what in ("losses", "logits", "auc"):
        np.testing.assert_allclose(found[what], expected[what], rtol=1e-4, atol=1e-5)
    assert_close_arrays((alone.folder / case, together.folder / case), (2e-4, 1e-6))
    # What is spread is written by the ranks that have it.
    assert len(list((together.folder / case).glob("step-*/arrays*.npz"))) > 1


def assert_same_log(one, many):
    """The losses and the AUC of two results directories."""
    expected, received = losses(one), losses(many)
    assert list(received) == list(expected)
    for step, values in expected.items():
        np.testing.assert_allclose(received[step], values, rtol=1e-4)
    results = [entries(folder, "result")[-1] for folder in (one, many)]
    assert results[1]["test_auc"] == pytest.approx(results[0]["test_auc"], abs=1e-3)
    return results


@pytest.mark.parametrize("name", ["users", "warm start"])
def test_a_command_on_two_ranks_trains_as_on_one(alone, two, name):
    folders = alone.folder / name, two.folder / name
    one, both = assert_same_log(*folders)
    saved = [folder / "saved" for folder in folders]
    if name == "users":
        # A softmax takes this bias away. Its gradient is rounding alone, which depends on the
        # processor: on some the two runs' biases differ by more than they are.
        lost = ["body/interest/activation_unit/dense/2/bias"]
        assert_close_arrays(saved, (1e-3, 1e-3), lost)
        assert both["samples"] == one["samples"] == 2 * SAMPLES
        for kind in ("epoch", "result"):
            mine, ours = (entries(folder, kind)[-1] for folder in folders)
            for key in {"train_auc", "test_auc", "test_gauc"} & set(mine):
                assert ours[key] == pytest.approx(mine[key], abs=1e-4), key
    if name == "warm start":
        mine, ours = (CheckpointStore(folder).load().arrays for folder in saved)
        assert set(mine) == set(ours)
        for key in mine:
            np.testing.assert_allclose(ours[key], mine[key], rtol=1e-3, atol=1e-5, err_msg=key)


def test_statistics_that_move_on_each_rank_are_averaged_where_they_are_scored_and_saved(two):
    """The model of a checkpoint is the one whose evaluation is reported."""
    folder = two.folder / "normalized"
    evaluated = json.loads((folder / "evaluation.json").read_text())
    run_here("inference", "--config", folder / "config.yaml", "--results_dir", folder / "again")
    again = json.loads((folder / "again/evaluation.json").read_text())
    for name in ("auc", "log_loss"):
        assert again[name] == pytest.approx(evaluated[name], abs=1e-6)


def test_a_warm_start_has_what_was_learned_from_its_first_step(datasets, alone):
    learned = CheckpointStore(datasets["first"]).load()
    assert learned.metadata["steps"] == 6
    arrays = CheckpointStore(alone.folder / "warm start/saved").load().arrays
    assert int(arrays["optimizer/iterations"]) == 7
    names = [n for n in learned.arrays if n.startswith("body") and n.endswith(("kernel", "bias"))]
    assert names
    for name in names:
        apart = np.abs(arrays[name] - learned.arrays[name]).max()
        assert apart <= 4 * 0.01, name  # one step of Adam


def test_a_run_goes_on_with_other_ranks_and_another_plan(datasets, alone, two, tmp_path):
    """Two ranks with columns of tables, compiled, stop; one process with whole tables goes on."""
    words = ["train", "--dataset_dir", datasets["goes on"], *OPTIONS["goes on"][:-2]]
    words += ["--load_checkpoint_path", two.folder / "goes on/saved", "--results_dir", tmp_path]
    run_here(*words)
    expected, begun, ended = (
        losses(folder) for folder in (alone.folder / "goes on", two.folder / "goes on", tmp_path)
    )
    assert list(expected) == list(range(1, 13)) and list(ended) == list(range(9, 13))
    assert list(begun) == list(range(1, 9))
    for step, values in {**begun, **ended}.items():
        assert values == pytest.approx(expected[step], rel=1e-4)
    aucs = [
        entries(directory, "result")[-1]["test_auc"]
        for directory in (alone.folder / "goes on", tmp_path)
    ]
    assert aucs[1] == pytest.approx(aucs[0], abs=1e-3)


def test_ranks_of_one_run_share_its_directory_and_no_other_run_does(two):
    first, second = two.results["ends"]
    said = first.pop("in use")
    assert f"{two.folder / 'in use'}: expected a directory in which no other run" in said
    assert f"process {os.getpid()} on " in said
    assert second.pop("in use") == said
    assert {*first.values(), *second.values()} == {None}
