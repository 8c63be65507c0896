"""Studies by the real command: whole ones, stopped ones, and files that are wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import in_process
import psutil
import pytest
import warm_study
import yaml
from processes import BIN, Started, entries, losses
from warm import socket_of_parent, warm

from merlin_sim.scripts.options.study_options import settle_study
from merlin_sim.training.run_log import LOG
from merlin_sim.training.studies import runner
from merlin_sim.training.studies.runner import EpochsOfLog, Launched
from merlin_sim.training.studies.study_file import read_study
from merlin_sim.training.studies.trial import OUTPUT

EXAMPLES = Path(__file__).parents[3] / "examples" / "studies"
SHIPPED = sorted(EXAMPLES.glob("*.yaml"))
SMALL = {
    "model_type": "din",
    "embedding_dim": 4,
    "stage_two_mlp_dims": [8, 4],
    "global_batch_size": 64,
    "epochs": 1,
}


@pytest.fixture
def write(sim_dataset, tmp_path):
    def study(name="study.yaml", **content):
        path = tmp_path / name
        options = {**SMALL, **content.pop("options", {})}
        given = {"datasets": {"small": str(sim_dataset)}, "options": options, **content}
        path.write_text(yaml.safe_dump(given))
        return path

    return study


@pytest.fixture
def warm_trials(monkeypatch, tmp_path):
    """Let the runs of a study be forked from a process that has imported TensorFlow."""
    started = []
    monkeypatch.setattr(runner, "command_line", runner.command_line)  # to be put back
    warm_study.fork_trials(socket_of_parent(), started)
    yield started
    for run in runs_in(tmp_path):  # a study that was killed leaves its run on its own
        run.kill()


def runs_in(directory):
    """The processes whose words name something in a directory."""
    found = psutil.process_iter(["cmdline", "ppid"])
    return [p for p in found if f"{directory}/" in " ".join(p.info["cmdline"] or ())]


def forked_study(words):
    """The words of a study that is forked, as its runs are."""
    return warm(warm_study.__file__, socket_of_parent(), *words[1:])


@pytest.fixture
def trials_here(monkeypatch):
    """Run the trials of a study in this process: in one of their own they are traced no faster."""
    started = []

    class Here(Launched):
        def __init__(self, trial, line, lock):
            self.trial = trial
            self._line = line[line.index(sys.executable) + 3 :]
            self._log = EpochsOfLog(trial.directory / LOG)

        def wait(self, on_epoch):
            started.append(self.trial.title)
            done = in_process.answer(*self._line)
            (self.trial.directory / OUTPUT).write_text(done.stdout + done.stderr)
            goes_on = [on_epoch(entry) for entry in self._log.new()]
            return done.returncode if all(goes_on) else None

    monkeypatch.setattr(runner, "Launched", Here)
    return started


@pytest.mark.slow
def test_a_grid_is_run_compared_and_extended_and_failed_runs_are_named(
    write, trials_here, tmp_path
):
    few = {"global_batch_size": 150}  # steps
    grid = {"lr": [0.01, 0.05]}
    path = write(title="Rates", grid=grid, reference={"lr": 0.05}, options=few)
    words = ("study", path, "--results_dir", tmp_path / "out")
    early = in_process.answer(*words, "--report_only")
    assert early.returncode == 2 and "no run of this study has ended yet" in early.stderr
    done = in_process.answer(*words)
    assert done.returncode == 0, done.stderr
    assert trials_here == [f"lr {lr}, seed 1" for lr in (0.01, 0.05)]
    said, page = done.stdout.splitlines()
    verdict = "(noise|more than other test users would change)"
    assert re.match(rf"Test AUC of lr 0\.01: [+-]0\.\d{{4}}, {verdict}: 95% ", said)
    assert page == str(tmp_path / "out" / "report" / "study.html")
    markdown = (tmp_path / "out" / "report" / "study.md").read_text()
    assert markdown.startswith("# Rates\n") and "compared with lr 0.05" in markdown
    assert len(re.findall(r"^\| lr 0\.0[15] \| 1 \|", markdown, re.MULTILINE)) >= 6
    directory = tmp_path / "out" / "trials" / "lr-0.01" / "small-seed-1"
    assert (directory / "test_scores.parquet").is_file()
    assert yaml.safe_load((directory / "config.yaml").read_text())["seed"] == 1
    # One more value: what was run is not run again, and what fails is named.
    write(title="Rates", grid={"lr": [0.01, 0.05, 1e30]}, options=few)
    again = in_process.answer(*words)
    assert again.returncode == 2 and trials_here[2:] == ["lr 1e+30, seed 1"]
    assert "3 runs, 2 of them done" in again.stderr
    assert "runs that failed, 1: lr 1e+30, seed 1" in again.stderr
    failure = r"lr 1e\+30, seed 1: failed with 2: merlin-sim: the loss is .*a smaller `lr`"
    assert re.search(failure, again.stderr)
    assert "2 ended of 3" in (tmp_path / "out/report/study.md").read_text()
    write(title="Rates", grid={"lr": [0.01]}, options={"epochs": 2})
    other = in_process.answer(*words)
    assert other.returncode == 2 and "epochs 1 there and 2 here" in other.stderr


@pytest.mark.slow
def test_a_search_is_pruned_and_chooses_by_what_there_is(write, trials_here, tmp_path):
    space = {"lr": {"low": 0.0001, "high": 0.1, "log": True}, "optimizer": ["adam", "sgd"]}
    search = {"trials": 2, "space": space, "startup_trials": 1}
    options = {"epochs": 2, "select_by": "test", "global_batch_size": 150}
    path = write(search=search, options=options)
    done = in_process.answer("study", path, "--results_dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "the search maximizes the AUC of test data, as select_by asks." in done.stderr
    markdown = (tmp_path / "out" / "report" / "study.md").read_text()
    rows = re.findall(
        r"^\| (\d) \| (complete|pruned) \| .* \| (0\.\d+) \|$", markdown, re.MULTILINE
    )
    assert sorted(number for number, _, _ in rows) == list("01")
    assert [how for _, how, _ in rows].count("complete") == 1
    logged = {
        number: entries(tmp_path / "out/trials" / f"trial-000{number}" / "small-seed-1", "epoch")
        for number, _, _ in rows
    }
    for number, how, auc in rows:
        if how == "complete":
            assert f"{logged[number][-1]['test_auc']:.4f}" == auc
    again = in_process.answer("study", path, "--results_dir", tmp_path / "out")
    assert again.returncode == 0 and len(trials_here) == 2


@pytest.mark.slow
def test_a_study_that_is_stopped_and_killed_goes_on_where_it_was(
    write, warm_trials, sim_dataset, tmp_path, monkeypatch
):
    options = {"epochs": 12, "global_batch_size": 16}
    path = write(options=options)
    results = tmp_path / "out/trials/all/small-seed-1"
    words = [str(BIN / "merlin-sim"), "study", str(path), "--results_dir", str(tmp_path / "out")]
    with Started(words, tmp_path / "log 1") as started:
        started.wait_for_steps(results, 30)
        started.process.send_signal(signal.SIGINT)  # Ctrl-C
        assert started.wait(280) == 75
        assert "The same command continues it" in started.log.read_text()
    stopped_after = max(losses(results))
    assert 30 <= stopped_after < 228  # of 19 steps in each of 12 epochs
    with Started(forked_study(words), tmp_path / "log 2") as started:
        started.wait_for_steps(results, stopped_after + 25)
        runs = runs_in(results.parent)
        (study,) = {run.info["ppid"] for run in runs} - {run.pid for run in runs}
        for process in (psutil.Process(study), *runs):  # the study first
            process.kill()
        assert started.wait(100) == -signal.SIGKILL
        assert "seed 1: continues" in started.log.read_text()
    assert not (results / "evaluation.json").exists()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as of the processes before
    done = in_process.answer(*words[1:])
    assert done.returncode == 0, done.stderr
    assert "seed 1: continues" in done.stderr
    # To the bit what a run is that was not stopped.
    (tmp_path / "undisturbed.yaml").write_text(
        yaml.safe_dump({**SMALL, **options, "dataset_dir": str(sim_dataset), "seed": 1})
    )
    alone = tmp_path / "alone"
    config = ["--config", str(tmp_path / "undisturbed.yaml"), "--results_dir", str(alone)]
    assert subprocess.run(warm(words[0], "train", *config)).returncode == 0
    assert losses(results) == losses(alone) and len(losses(results)) == 228


NO_VALIDATION = {"trials": 1, "space": {"lr": [0.1]}}
DROPOUT = {"trials": 1, "space": {"dropout_rate": {"low": 0.1, "high": 2.0}}}


@pytest.mark.slow
def test_processes_share_the_runs_of_a_study(write, warm_trials, tmp_path):
    path = write(seeds=2)
    words = [str(BIN / "merlin-sim"), "study", str(path), "--results_dir", str(tmp_path / "out")]
    with Started(forked_study(words), tmp_path / "log") as started:
        while "starts" not in started.log.read_text():
            assert started.process.poll() is None
            time.sleep(0.1)
        here = in_process.answer(*words[1:])
        assert here.returncode == 0, here.stderr
        assert started.wait(280) == 0
    assert "seed 1: starts" in started.log.read_text() and warm_trials == ["seed 2"]
    assert "2 ended of 2" in (tmp_path / "out/report/study.md").read_text()


@pytest.mark.slow
@pytest.mark.horovod
def test_a_study_scales_over_ranks(write, warm_trials, tmp_path):
    options = {"benchmark": True, "benchmark_steps": 3, "benchmark_warmup_steps": 1}
    path = write(options=options, grid={"ranks": [2]}, measures=["throughput"])
    done = in_process.answer("study", path, "--results_dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    results = tmp_path / "out" / "trials" / "ranks-2" / "small-seed-1"
    assert json.loads((results / "run.json").read_text())["ranks"] == 2
    assert entries(results, "benchmark")[0]["throughput"] > 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"options": {"learning_rate": 1}}, "options.learning_rate: expected an option of"),
        ({"options": {"epochs": 2.5}}, "options.epochs: expected a whole number, got the number"),
        ({"options": {"amp": "yes"}}, "options.amp: expected true or false, got the text 'yes'"),
        ({"options": {"optimizer": "adamw"}}, "options.optimizer: expected one of adam, lazy_adam"),
        ({"options": {"results_dir": "x"}}, "options.results_dir: expected no option that the st"),
        ({"options": {"load_checkpoint_path": "x"}}, "runs go on from their own"),
        ({"options": {"ranks": 0}}, "options.ranks: expected a positive integer"),
        ({"grid": {"lr": [0.1, "much"]}}, "grid.lr: expected a number, got the text 'much'"),
        ({"grid": {"lr": []}}, "grid.lr: expected a list of at least one value"),
        ({"grid": {"lr": [0.1, -1]}}, "with lr -1 on small: `lr` should be positive"),
        ({"grid": {"top_k": [5]}}, "with top_k 5 on small: Unknown option: top_k"),
        ({"search": NO_VALIDATION}, "a search chooses by validation data, and small has none."),
        (
            {"search": NO_VALIDATION, "options": {"select_by": "newest"}},
            "options.select_by: expected validation or test in a search",
        ),
        ({"datasets": {"other": "nowhere"}}, "datasets.other: expected a dataset directory"),
        ({"search": DROPOUT}, "with dropout_rate 2.0 on small:"),
    ],
)
def test_what_a_study_cannot_have_is_refused_before_it_begins(write, tmp_path, content, said):
    words = ("study", write(**content), "--results_dir", tmp_path / "out")
    done = in_process.answer(*words)
    assert done.returncode == 2 and said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [path.name for path in SHIPPED])
def test_the_shipped_studies_are_ones_that_can_run(name, sim_dataset, tmp_path):
    file = read_study(EXAMPLES / name)
    assert file.title and len(file.seeds) >= 5
    for dataset in file.datasets:
        assert str(file.datasets[dataset]) == "demo/dataset"
    study = settle_study(replace(file, datasets={"demo": sim_dataset}), tmp_path)
    assert len(study.grid) >= 1 and study.with_users == {"demo"}
