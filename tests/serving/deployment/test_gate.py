"""Rows of another day as a model would be served them; verdicts on models of known difference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from merlin_sim.foundation.digest import require_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.foundation.progress import Silence
from merlin_sim.serving.deployment.gate import (
    ALL,
    LONG_HISTORIES,
    NEW_USERS,
    NOT_KNOWN,
    NOT_WORSE,
    TOO_FEW,
    WORSE,
    Gate,
    ScoredTwice,
    judge,
)
from merlin_sim.serving.deployment.gate_page import HEAD, rows_of, write_gate
from merlin_sim.serving.deployment.gate_rules import GateRules
from merlin_sim.serving.deployment.judged import Judged, as_served
from merlin_sim.serving.servable import ServedColumn, ServedColumns
from merlin_sim.training.evaluation.scored_rows import ScoredRows

USERS, EACH = 400, 6


def scored(challenger_noise: float, current_noise: float, only_new: bool = False) -> ScoredTwice:
    """Two models that add noise to the truth; the challenger's is that of new users alone."""
    random = np.random.default_rng(4)
    users = np.repeat(np.arange(USERS), EACH)
    truth = random.normal(0, 1.5, len(users))
    labels = random.random(len(users)) < 1 / (1 + np.exp(-truth))
    new = users < USERS // 4

    def model(noise, seed, where):
        added = np.random.default_rng(seed).normal(0, noise, len(users)) * where
        probabilities = 1 / (1 + np.exp(-(truth + added)))
        return ScoredRows(users, labels, probabilities.astype(np.float32))

    challenger = model(challenger_noise, 1, new if only_new else 1)
    current = model(current_noise, 2, 1)
    return ScoredTwice(challenger, current, {NEW_USERS: new}, True, None)


def judged(given: ScoredTwice, draws: int = 200, **rules) -> Gate:
    return judge(given, GateRules(draws=draws, **rules), Silence())


def verdicts(gate: Gate, segment: str) -> list[str]:
    return [found.verdict for found in gate.judgements if found.segment == segment]


def test_the_same_and_a_better_model_pass_and_a_worse_one_does_not():
    gate = judged(scored(0, 0))
    assert gate.passed and not gate.reasons
    assert {found.verdict for found in gate.judgements} == {NOT_WORSE}
    assert all(found.interval == (0, 0) for found in gate.judgements)
    assert judged(scored(0, 2.0)).passed
    gate = judged(scored(2.0, 0))
    assert not gate.passed
    assert verdicts(gate, ALL) == [WORSE, WORSE, WORSE]
    assert gate.reasons[0].startswith("AUC of all rows is worse by more than 0.005: -0.")


def test_what_is_not_known_passes_of_segments_alone():
    given = scored(1.0, 1.0)
    gate = judged(given)
    assert verdicts(gate, ALL)[0] == NOT_KNOWN
    assert gate.reasons[0].startswith("AUC of all rows may be worse by more than 0.005")
    wider = GateRules(0.016, 0.03, 0.05, draws=200)
    gate = judge(given, wider, Silence())
    assert verdicts(gate, NEW_USERS)[0] == NOT_KNOWN and gate.passed
    assert not judge(given, replace(wider, strict_segments=True), Silence()).passed


def test_a_segment_that_is_worse_keeps_a_better_model_out():
    given = scored(2.4, 1.5, only_new=True)
    gate = judged(given)
    assert verdicts(gate, ALL)[0] == NOT_WORSE
    assert verdicts(gate, NEW_USERS)[0] == WORSE
    assert all("new users" in reason for reason in gate.reasons) and gate.reasons
    few = judged(given, least_users=101)
    assert verdicts(few, NEW_USERS) == [TOO_FEW] * 3 and few.passed
    given.segments[LONG_HISTORIES] = np.zeros(USERS * EACH, bool)
    none = judged(given, draws=20)
    assert verdicts(none, LONG_HISTORIES) == [TOO_FEW] * 3
    assert rows_of(none)[-1] == ["", "Calibration error", "0", "0", "", "", "", "", TOO_FEW]


def test_of_few_users_nothing_is_known():
    """All rows of one user are drawn each time: the interval has no width, and says nothing."""
    given = scored(0, 2.0)
    one = [
        ScoredRows(np.zeros_like(rows.users), rows.labels, rows.scores)
        for rows in (given.challenger, given.current)
    ]
    gate = judged(ScoredTwice(*one, {}, True, None), draws=20)
    assert verdicts(gate, ALL) == [NOT_KNOWN] * 3 and not gate.passed
    assert gate.reasons[0] == "AUC of all rows: too few users to tell, 1 (`least_users` is 100)"
    assert judged(ScoredTwice(*one, {}, True, None), draws=20, least_users=1).passed


def test_what_is_written_reports_all(tmp_path):
    metadata = {"challenger": {"path": "a"}, "current": {"path": "b"}, "dataset": {"path": "c"}}
    gate = judged(scored(2.0, 0))
    page = write_gate(tmp_path / "out", gate, metadata, 50)
    document = json.loads((tmp_path / "out/gate.json").read_text())
    require_own_digest(tmp_path / "out/gate.json")
    assert document["passed"] is False and document["reasons"] == gate.reasons
    assert document["challenger"] == {"path": "a"} and document["long_from"] == 50
    assert len(document["judgements"]) == 6
    first = document["judgements"][0]
    assert first["difference"] == pytest.approx(first["challenger"] - first["current"])
    assert first["interval"][0] < first["difference"] < first["interval"][1]
    text = (tmp_path / "out/gate.md").read_text()
    assert text.startswith("# Gate: not passed") and gate.reasons[0] in text
    assert "50 interactions or more" in text and "| " + " | ".join(HEAD[1:3]) in text
    assert "Gate: not passed" in page.read_text()
    assert (tmp_path / "out/differences.png").stat().st_size > 1000


def column(name: str, largest: int | None, dtype: str = "int64") -> ServedColumn:
    return ServedColumn(name, name, np.dtype(dtype), largest)


COLUMNS = ServedColumns(
    users=(column("who", 3),),
    targets=(column("item", 9), column("kind", 4)),
    histories=(column("seen", 9), column("kinds_seen", 4)),
    intervals=column("ages", None, "float32"),
    longest=3,
    is_ragged=False,
    target_numbers=(column("price", None, "float32"),),
)


def test_ids_without_a_vector_are_unknown_and_leave_histories_and_shorter_ones_are_padded():
    given = {
        "who": np.array([3, 4, 3]),
        "item": np.array([10, 9, 9]),
        "kind": np.array([4, 5, 4]),
        "seen": np.array([[0, 1, 12, 2], [7, 8, 9, 9], [0, 0, 1, 2]]),
        "kinds_seen": np.array([[0, 1, 2, 3], [4, 5, 1, 2], [0, 0, 1, 2]]),
        "ages": np.array([[0, 5, 6, 7], [1, 2, 3, 4], [0, 0, 1, 2]], np.float32),
        "price": np.array([99.0, 100.0, 98.0], np.float32),
    }
    expected = {
        "who": [3, 0, 3],
        "item": [0, 9, 9],
        "kind": [4, 0, 4],
        "seen": [[0, 1, 2], [8, 9, 9], [0, 1, 2]],
        "kinds_seen": [[0, 1, 3], [0, 1, 2], [0, 1, 2]],
        "ages": [[0, 5, 7], [2, 3, 4], [0, 1, 2]],
        "price": [99, 100, 98],
    }
    found = as_served(given, COLUMNS)
    assert {name: values.tolist() for name, values in found.items()} == expected
    short = {name: v[2:, -2:] if v.ndim == 2 else v[2:] for name, v in given.items()}
    found = as_served(short, COLUMNS)
    assert {name: values.tolist() for name, values in found.items()} == {
        name: values[2:] for name, values in expected.items()
    }


@pytest.mark.parametrize("score", [np.nan, np.inf, -0.1, 1.5])
def test_scores_that_are_no_probabilities_judge_nothing(score):
    """Of NaN neither AUC nor log loss says anything, which is no reason to pass."""
    given = {name: np.ones((2, 3)) for name in COLUMNS.inputs}
    judged = Judged(Path("model"), COLUMNS, None, {}, lambda columns: np.float32([0.5, score]))
    with pytest.raises(MerlinSimError, match="model: expected click probabilities. Received: "):
        judged.score(given)
    scores = np.float32([0.0, 1.0])
    assert Judged(Path("model"), COLUMNS, None, {}, lambda columns: scores).score(given) is scores
