from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib import pyplot as plt

from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.training.evaluation.metrics import AUC
from merlin_sim.training.evaluation.scored_rows import ScoredRows
from merlin_sim.training.reports.figures import draw_settings
from merlin_sim.training.reports.page import Figures, Page, PageTable, Text
from merlin_sim.training.reports.report import write_report
from merlin_sim.training.reports.run_results import RunResults, read_results
from merlin_sim.training.reports.settings import RunGroup

DATASET = {"fingerprint": "abc", "fitted_on": "train"}


def write_run(path, lr=0.01, auc=0.75, extra_line=""):
    path.mkdir(parents=True)
    steps = [
        {"type": "step", "epoch": 1, "step": i, "total_loss": 1 / i, "samples/s": 100.0 + i}
        for i in [1, 2, 3, 4, 3, 4, 5]
    ]
    epoch = {"type": "epoch", "epoch": 1, "step": 5, "test_auc": auc, "train_auc": 0.8}
    result = {"type": "result", "throughput": 1234.5, "test_auc": auc, "time_to_train": 6.0}
    lines = [json.dumps(entry) for entry in [*steps, epoch, result]]
    (path / "log.json").write_text("\n".join(lines) + "\n" + extra_line)
    (path / "config.yaml").write_text(yaml.safe_dump({"lr": lr, "epochs": 1, "model_type": "<b>"}))
    (path / "run.json").write_text(json.dumps({"ranks": 2, "dataset": DATASET}))
    evaluation = {
        "auc": auc,
        "roc": [[0, 0.2, 1], [0, 0.7, 1]],
        "calibration": [[0.2, 0.1, 30], [0.7, 0.8, 10]],
        "calibration_error": 0.1,
    }
    (path / "evaluation.json").write_text(json.dumps(evaluation))
    return path


@pytest.mark.slow
def test_one_page_that_needs_nothing_else(tmp_path):
    report = write_report([write_run(tmp_path / "a", extra_line='{"type": "ste')])  # it was killed
    page = report.page
    assert page == tmp_path / "a" / "report" / "report.html"
    text = page.read_text()
    names = {path.name for path in page.parent.glob("*.png")}
    assert names == {"loss.png", "auc.png", "roc.png", "calibration.png", "throughput.png"}
    assert text.count("data:image/png;base64,") == 5
    assert not re.search(r"(src|href)='?(?!data:)(https?:|/|\.)", text)
    assert "ids fitted on rows" in text and "train" in text
    assert "0.7500" in text and "1,234" in text and "&lt;b&gt;" in text
    for path in page.parent.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    run = read_results(tmp_path / "a")
    assert [entry["step"] for entry in run.steps] == [1, 2, 3, 4, 5], "those done again count once"


def test_a_page_is_html_and_markdown(tmp_path):
    page = Page("A & B")
    page.add("First", Text("1 < 2"), PageTable(["a|b", ""], [["x\ny", "<z>"]]))
    page.add("Drawn", Figures({"curve": (b"\x89PNG", "What it shows.")}))
    assert page.write(tmp_path / "new" / "report", "study") == tmp_path / "new/report/study.html"
    text = (tmp_path / "new/report/study.html").read_text()
    assert "<title>A &amp; B</title>" in text and "<p>1 &lt; 2</p>" in text
    assert "<td>&lt;z&gt;</td>" in text and "data:image/png;base64,iVBORw==" in text
    assert (tmp_path / "new/report/curve.png").read_bytes() == b"\x89PNG"
    assert (tmp_path / "new/report/study.md").read_text() == (
        "# A & B\n\n## First\n\n1 < 2\n\n"
        "| a\\|b |  |\n| --- | --- |\n| x y | <z> |\n\n"
        "## Drawn\n\n![What it shows.](curve.png)\n"
    )
    (tmp_path / "file").write_text("")
    with pytest.raises(MerlinSimError, match="cannot be written"):
        page.write(tmp_path / "file" / "report", "study")


NO_ENTRY = "log.json, line 1: not an entry of a run's log"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"expected a log, log\.json"),
        (b"\xff\x00\n", "log.json: expected a run's log in UTF-8"),
        (b"{not json\n", NO_ENTRY),
        (b'{"type": "epoch"}\n{"type": "result"}\n', NO_ENTRY),
        (b'{"type": "step", "step": "x"}\n', NO_ENTRY),
        (b'{"type": "step", "step": 1, "total_loss": "x"}\n', NO_ENTRY),
    ],
)
def test_a_log_that_is_none_is_refused(tmp_path, content, message):
    if content is not None:
        (tmp_path / "log.json").write_bytes(content)
    with pytest.raises(MerlinSimError, match=message):
        write_report([tmp_path])
    with pytest.raises(MerlinSimError, match="there is none"):
        write_report([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("evaluation.json", {"roc": 3, "auc": 0.5}),
        ("evaluation.json", {"roc": [[0, 1], [0, 1]]}),
        ("evaluation.json", {"roc": [[0, 1], [0]], "auc": 0.5}),
        ("evaluation.json", {"calibration": [[1, 2]], "calibration_error": 0.1}),
        ("evaluation.json", {"roc": [[0, 1], [0, 1]], "auc": "x"}),
        ("run.json", {"dataset": "books"}),
    ],
)
def test_files_of_a_run_that_hold_something_else_are_refused(tmp_path, name, content):
    path = write_run(tmp_path / "a")
    (path / name).write_text(json.dumps(content))
    with pytest.raises(MerlinSimError, match=f"{name}: expected what a run writes"):
        read_results(path)


def test_what_a_run_lacks_is_left_out_and_what_is_no_number_is_refused(tmp_path):
    path = write_run(tmp_path / "a", extra_line='{"type": "result", "n": "x"}\n')
    (path / "evaluation.json").write_text(json.dumps({"auc": None, "roc": [[], []]}))
    run = read_results(path)
    assert run.evaluation["auc"] is None
    with pytest.raises(MerlinSimError, match="a: n: expected a number, found 'x'"):
        run.metric("n")


@pytest.mark.slow
def test_several_runs_side_by_side_show_what_differs(tmp_path):
    runs = [
        write_run(tmp_path / "x" / "run", lr=0.01, auc=0.7),
        write_run(tmp_path / "y" / "run", lr=0.5, auc=0.8),
    ]
    (runs[0] / "evaluation.json").unlink()  # a run that was killed has none
    report = write_report(runs, tmp_path / "out")
    text = report.page.read_text()
    assert "0.7000" in text and "0.8000" in text
    differs = text[text.index("What differs") :]
    assert "lr" in differs and "0.5" in differs and "epochs" not in differs
    assert str(tmp_path / "x" / "run") in text  # one name for both says nothing
    (said,) = report.sentences
    assert said.endswith(
        ": +0.1000, whether that is noise is not known from single runs without scores"
    )


@pytest.mark.slow
def test_settings_are_compared_over_seeds_and_test_users(tmp_path):
    runs = []
    for lr, signal in ((0.01, 1.0), (0.02, 1.001), (0.5, 0.2)):
        for seed in (1, 2):
            scored = scored_rows(seed, signal)
            counts = AUC()
            counts.update_state(scored.labels.astype(np.float32), scored.scores)
            run = write_run(tmp_path / f"{lr}-{seed}", lr=lr, auc=counts.exact_result())
            scored.write(run / "test_scores.parquet")
            runs.append(run)
    report = write_report(runs, tmp_path / "out")
    near, far = report.sentences
    assert near.startswith("Test AUC of lr 0.02: ") and "noise: 95%" in near
    assert far.startswith("Test AUC of lr 0.5: -0.") and "worse: 95%" in far
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert re.search(r"^\| lr 0\.01 \| 2 \| 0\.7\d+ \| 0\.0\d+ ", markdown, re.MULTILINE)
    assert "![Each run by its setting; the line is the mean.](spread.png)" in markdown
    for name in ("spread", "cost", "loss"):
        assert (tmp_path / "out" / f"{name}.png").is_file()
    (runs[0] / "test_scores.parquet").unlink()
    again = write_report([*runs[:2], *runs[4:]], tmp_path / "out")
    assert "worse: 95%" in again.sentences[0]  # by seeds alone
    assert "kept no scores" in again.page.read_text()


def scored_rows(seed: int, signal: float) -> ScoredRows:
    """Scores that share most of what they are: the same users and rows, a little of the seed."""
    shared, own = np.random.default_rng(0), np.random.default_rng([seed, int(1000 * signal)])
    labels = np.arange(3000) % 2 == 0
    logits = signal * labels + shared.normal(size=3000) + 0.05 * own.normal(size=3000)
    scores = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return ScoredRows(np.arange(3000) // 6, labels, scores)


def setting(name, aucs, **values):
    runs = [
        RunResults(name, Path(name), [], [], {"test_auc": auc, "time_to_train": 9.0}, {}, {}, {})
        for auc in aucs
    ]
    return RunGroup(name, values, runs)


def test_what_there_is_to_show_is_drawn():
    three = [setting(f"t{n}", [0.7 + n / 100], lr=10**n, amp=n > 1) for n in range(3)]
    figures = draw_settings(three, "test_auc")
    assert set(figures) == {"spread", "cost", "parallel"}
    lines = figures["parallel"].axes[0].lines
    drawn = [line.get_ydata() for line in lines if len(line.get_ydata()) == 3]
    assert [list(line)[-1] for line in drawn] == pytest.approx([0, 0.5, 1])  # the best on top
    assert [list(line)[0] for line in drawn] == pytest.approx([0, 0.5, 1])  # by the logarithm
    assert [list(line)[1] for line in drawn] == [0, 0, 1]
    assert set(draw_settings(three[:1], "test_auc")) == {"cost"}
    assert draw_settings(three, "test_gauc") == {}
    plt.close("all")
