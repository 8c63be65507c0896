"""The comparison of models: its AUC and errors, its baselines, and what is run once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import bench_quality
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from baselines.count_trees import Samples, fit_regression, of_others, read_samples, tables
from baselines.impressions_log import impressions
from bench_quality import Trial, Trials
from in_process import run
from measuring.auc_of_users import AUCOfUsers, standard_error
from measuring.quality_logs import IMPRESSIONS_TEST, IMPRESSIONS_VALIDATION, LOGS, make_dataset
from measuring.quality_models import COUNTS, RECENCY, TREES
from measuring.quality_table import Outcome, comparison, read_outcomes, summarize

from merlin_sim.schemas.dataset import DatasetDirectory
from merlin_sim.training.evaluation.scored_rows import exact_auc


def outcome(model, auc, *, rate=0.1, seed=1, validation=0.7, influence=(10, -10, 0), length=100):
    scores = (validation, auc, list(influence))
    return Outcome("readers", length, model, rate, seed, "", *scores, "0" * 40, "2026-01-01")


def test_auc_and_its_error_over_users_are_those_of_drawn_users():
    chance = np.random.default_rng(0)
    users = chance.integers(0, 60, 3000)
    of_user = chance.normal(0, 1, 60)[users]
    labels = chance.random(3000) < 1 / (1 + np.exp(-of_user))
    scores = np.round(labels + of_user + 2 * chance.normal(0, 1, 3000), 1)  # with ties
    found = AUCOfUsers.of(users, labels, scores)
    assert found.auc == pytest.approx(exact_auc(labels, scores), abs=1e-12)
    rows = [np.flatnonzero(users == user) for user in range(60)]
    drawn = [np.concatenate([rows[u] for u in chance.integers(0, 60, 60)]) for _ in range(400)]
    aucs = [exact_auc(labels[d], scores[d]) for d in drawn]
    assert standard_error(found.influence) == pytest.approx(np.std(aucs), rel=0.1)


def test_the_rate_is_that_of_the_best_validation_auc_of_the_first_seed():
    runs = [
        outcome("SIM", 0.80, rate=0.1, validation=0.71),
        outcome("SIM", 0.90, rate=0.2, validation=0.70),
        outcome("SIM", 0.82, rate=0.1, seed=2, validation=0.60),
    ]
    found = summarize(runs, "readers", 100)["SIM"]
    assert (found.rate, found.aucs) == (0.1, [0.80, 0.82])
    before = outcome("SIM", 0.99, validation=0.99)._replace(settings="other batches")
    assert summarize([before, *runs], "readers", 100)["SIM"].aucs == found.aucs


def test_a_difference_is_taken_user_by_user():
    runs = [outcome(TREES, 0.80, influence=(5000, -5000, 0)), outcome("SIM", 0.83)]
    runs[1] = runs[1]._replace(influence=[5000, -5000, 0])
    found = summarize(runs, "readers", 100)
    difference, error = found["SIM"].above(found[TREES])
    assert difference == pytest.approx(0.03) and error == 0.0
    assert found["SIM"].error == pytest.approx(np.sqrt(2 * 0.005**2 * 3 / 2))


def test_how_far_a_model_is_above_fuxictrs_best_is_said_once():
    aucs = {TREES: 0.80, "SIM": 0.83, "FuxiCTR SIM": 0.70, "FuxiCTR DIN": 0.60}
    runs = [outcome(model, auc) for model, auc in aucs.items()]
    text = comparison(runs, {"readers": "Readers"}, [*aucs])
    assert "| FuxiCTR SIM | 0.7000" in text and text.count("| FuxiCTR SIM |") == 1
    _, above = text.split("| above FuxiCTR's best |")
    assert "| LightGBM | +0.1000 ± 0.0000 |" in above and "| SIM | +0.1300 ± 0.0000 |" in above


def test_a_user_is_judged_by_what_others_did():
    def samples(rows):
        users, labels, targets, before = map(np.array, zip(*rows, strict=True))
        newest = np.zeros((len(rows), 10, 1), np.int64)
        newest[:, -1, 0] = before
        return Samples(labels, users, targets[:, None], newest, *[np.zeros((len(rows), 0))] * 2)

    train = samples([(0, 1, 7, 3), (0, 0, 8, 3), (1, 1, 7, 3), (1, 1, 7, 4), (1, 0, 9, 4)])
    taken, share, mean, most = of_others(train, samples([(0, 1, 7, 3), (1, 1, 7, 3)])).T
    assert taken == pytest.approx(np.log1p([2, 1]))
    assert share == pytest.approx([(2 + 20 * 2 / 3) / 22, (1 + 20 / 2) / 21])
    # After 3 came 7 once of two 7s in user 1's samples, and once of one in user 0's.
    assert most == pytest.approx([1 / np.sqrt(2), 1.0]) and mean == pytest.approx(most / 10)


@pytest.mark.slow
def test_users_of_stored_rows_are_known_by_their_ids(sim_dataset):
    dataset = DatasetDirectory.open(sim_dataset)
    rows = pd.concat(map(pd.read_parquet, dataset.files("train")))
    user = dataset.channels["user_features"][0]
    assert dataset.users is None and rows[user].duplicated().any()
    np.testing.assert_array_equal(read_samples(dataset, "train").users, rows[user])


def test_no_score_betters_the_oracle_of_the_impressions():
    log = impressions(40)
    assert log.time.is_monotonic_increasing and (log.time.max() - log.time.min()) < 30 * 86_400
    assert not log.duplicated(["shopper", "item", "time"]).any()
    assert log.clicked.mean() == pytest.approx(log.oracle.mean(), abs=0.01)
    clicks = log.clicked.to_numpy() > 0
    best = exact_auc(clicks, log.oracle.to_numpy())
    means = log.groupby("item").clicked.transform("mean").to_numpy()  # their own labels among them
    assert 0.75 < best < 0.9 and exact_auc(clicks, means) < best


def test_a_run_with_a_record_is_not_repeated(tmp_path, monkeypatch):
    ran = []

    def command(name, *words):
        given = dict(zip(map(str, words[::2]), words[1::2], strict=False))
        results = Path(given["--results_dir"])
        results.mkdir(exist_ok=True)
        if name == "train":
            rate, seed = float(given["--lr"]), int(given["--seed"])
            ran.append((rate, seed))
            entry = {"type": "result", "best_validation_auc": 0.7 + rate}
            (results / "log.json").write_text(json.dumps(entry))
        else:
            scores = {"row": [0, 0, 1, 1], "label": [1, 0, 1, 0], "score": [0.9, 0.2, 0.4, 0.3]}
            pd.DataFrame(scores).to_parquet(results / "test_scores.parquet")

    monkeypatch.setattr(bench_quality, "command", command)
    monkeypatch.setattr(bench_quality, "make_dataset", lambda *given: tmp_path / "data")
    trial = Trial("readers", 100, "SIM")
    for _ in range(2):
        trials = Trials(tmp_path / "records", tmp_path, None, None, "1" * 40)
        trials.run(trial, 1, 1)
        trials.run(trial, 1)
        trials.run(trial, 2)
    low, high = bench_quality.RATES
    assert ran == [(low, 1), (high, 1), (high, 2)]
    kept = read_outcomes(tmp_path / "records")
    assert [(run.rate, run.seed, run.validation_auc) for run in kept] == [
        (rate, seed, 0.7 + rate) for rate, seed in ran
    ]
    assert {run.auc for run in kept} == {1.0} and kept[0].commit == "1" * 40
    assert len(kept[0].influence) == 2
    monkeypatch.setattr(bench_quality, "COMMON", "--epochs 9")  # other settings: another run
    trials.run(trial, 1)
    assert len(ran) == 5


def test_fuxictr_is_given_the_batch_and_epochs_that_its_record_names(tmp_path, monkeypatch):
    labels, given = np.array([0.0, 1.0, 1.0]), []

    def end(words, **options):
        given.append(" ".join(words))
        np.savez(words[words.index("--scores") + 1], scores=labels, labels=labels)
        return CompletedProcess(words, 0, 'a warning\n{"validation_auc": 0.7}\n')

    test = SimpleNamespace(labels=labels, users=np.array([0, 0, 1]))
    monkeypatch.setattr(bench_quality.subprocess, "run", end)
    monkeypatch.setattr(bench_quality, "make_dataset", lambda *given: tmp_path / "data")
    pd.to_pickle({"test": test}, tmp_path / "data.pickle")
    (tmp_path / "data-rows").mkdir()
    trials = Trials(tmp_path / "records", tmp_path, None, ("LongCTR", "python"), "1" * 40)
    trials.run(Trial("readers", 100, "FuxiCTR SIM"), 1, 1)
    (kept,) = read_outcomes(tmp_path / "records")
    assert (kept.validation_auc, kept.auc) == (0.7, 1.0)
    same = f"--epochs {bench_quality.EPOCHS} --batch {bench_quality.BATCH}"
    assert same in given[0] and kept.settings.endswith(same)


def test_what_fills_up_a_history_stands_behind_it_for_a_model_that_packs_it(tmp_path, monkeypatch):
    torch = SimpleNamespace(from_numpy=np.asarray)
    for name, stub in (("torch", torch), ("fuxictr.features", SimpleNamespace(FeatureMap=None))):
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.delitem(sys.modules, "baselines.fuxictr_models", raising=False)
    from baselines.fuxictr_models import Rows

    histories = {"item_pos": [[0, 0, 5, 6], [0, 3, 0, 4]], "kind_pos": [[0, 0, 1, 2], [0, 1, 0, 0]]}
    targets = {"item": [9, 8], "kind": [7, 7]}
    pq.write_table(pa.table({"label": [1.0, 0.0], **targets, **histories}), tmp_path / "rows")
    channels = {"label": ["label"]} | {
        "target_item_features": [*targets],
        "positive_history": [*histories],
    }
    spec = {
        "channel_spec": channels,
        "source_spec": {"test": [{"files": ["rows"]}]},
        "feature_spec": {"item_pos": {"dimensions": [4]}},
    }
    plain, packed = (Rows(tmp_path, spec, "test", 2, packed=way).items for way in (False, True))
    assert plain["item"].tolist() == [[0, 0, 5, 6, 9], [0, 3, 0, 4, 8]]
    assert packed["item"].tolist() == [[5, 6, 0, 0, 9], [3, 4, 0, 0, 8]]
    assert packed["kind"].tolist() == [[1, 2, 0, 0, 7], [1, 0, 0, 0, 7]]


@pytest.mark.slow
def test_all_baselines_read_the_same_test_samples_of_the_same_users(tmp_path, monkeypatch, eagerly):
    small = LOGS["impressions"]._replace(make=lambda command, folder: impressions(12))
    monkeypatch.setitem(LOGS, "impressions", small)
    counted, dated = (
        make_dataset("impressions", 20, more, run, tmp_path)
        for more in ([COUNTS], [COUNTS, RECENCY])
    )
    parts, more = tables(counted), tables(dated)
    for name, part in parts.items():  # and the days of the item and of its features
        columns = len(LOGS["impressions"].features) + 1
        assert more[name].features.shape[1] == part.features.shape[1] + columns
        assert np.array_equal(more[name].labels, part.labels)
    bench_quality.write_rows(counted, tmp_path / "rows")
    rows = pq.read_table(tmp_path / "rows/test.parquet")
    assert np.array_equal(rows["label"].to_numpy(), parts["test"].labels)
    assert set(map(len, rows["item_pos"].to_pylist())) == {20}
    log = pd.read_parquet(tmp_path / "impressions.parquet")
    known = log.item.isin(log.item[log.time < IMPRESSIONS_VALIDATION])  # others have no id
    counts = (
        log[known & (log.time >= IMPRESSIONS_TEST)].groupby("shopper").clicked.agg(["size", "sum"])
    )
    users = parts["test"].users
    found = zip(np.bincount(users), np.bincount(users, parts["test"].labels), strict=True)
    assert sorted(map(tuple, counts.to_numpy())) == sorted((int(n), int(c)) for n, c in found)
    scores = fit_regression(parts, 1.0, 1)
    assert list(map(len, scores)) == [len(parts[name].labels) for name in ("validation", "test")]
