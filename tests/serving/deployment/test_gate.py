"""Verdicts on models whose difference is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from merlin_sim.foundation.digest import require_own_digest
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


def test_the_same_model_passes():
    gate = judged(scored(0, 0))
    assert gate.passed and not gate.reasons
    assert {found.verdict for found in gate.judgements} == {NOT_WORSE}
    assert all(found.interval == (0, 0) for found in gate.judgements)


def test_a_better_model_passes_and_the_same_way_round_it_does_not():
    assert judged(scored(0, 2.0)).passed
    gate = judged(scored(2.0, 0))
    assert not gate.passed
    assert verdicts(gate, ALL) == [WORSE, WORSE, WORSE]
    assert gate.reasons[0].startswith("AUC of all rows is worse by more than 0.005: -0.")


def test_what_is_not_known_passes_of_segments_alone():
    gate = judged(scored(1.0, 1.0))
    assert verdicts(gate, ALL)[0] == NOT_KNOWN
    assert gate.reasons[0].startswith("AUC of all rows may be worse by more than 0.005")
    wider = GateRules(0.016, 0.03, 0.05, draws=200)
    gate = judge(scored(1.0, 1.0), wider, Silence())
    assert verdicts(gate, NEW_USERS)[0] == NOT_KNOWN and gate.passed
    strict = replace(wider, strict_segments=True)
    assert not judge(scored(1.0, 1.0), strict, Silence()).passed


def test_a_segment_that_is_worse_keeps_a_better_model_out():
    gate = judged(scored(2.4, 1.5, only_new=True))
    assert verdicts(gate, ALL)[0] == NOT_WORSE
    assert verdicts(gate, NEW_USERS)[0] == WORSE
    assert all("new users" in reason for reason in gate.reasons) and gate.reasons
    few = judged(scored(2.4, 1.5, only_new=True), least_users=101)
    assert verdicts(few, NEW_USERS) == [TOO_FEW] * 3 and few.passed


def test_a_segment_without_rows_is_reported():
    given = scored(0, 0)
    given.segments[LONG_HISTORIES] = np.zeros(USERS * EACH, bool)
    gate = judged(given, draws=20)
    assert verdicts(gate, LONG_HISTORIES) == [TOO_FEW] * 3 and gate.passed
    assert rows_of(gate)[-1] == ["", "Calibration error", "0", "0", "", "", "", "", TOO_FEW]


def test_what_is_written_reports_all(tmp_path):
    given = scored(2.0, 0)
    facts = {"challenger": {"path": "a"}, "current": {"path": "b"}, "dataset": {"path": "c"}}
    gate = judged(given)
    page = write_gate(tmp_path / "out", gate, facts, 50)
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
