"""What a server's page shows of a registry and of drift."""

from __future__ import annotations

import json

import pytest
from hollow_servable import write_hollow_servable

from merlin_sim.foundation.digest import with_own_digest
from merlin_sim.serving.deployment.drift_findings import DriftBounds, FeatureDrift
from merlin_sim.serving.deployment.drift_page import write_drift
from merlin_sim.serving.deployment.registry import Registry
from merlin_sim.serving.deployment.server_page import server_sections
from merlin_sim.training.reports.page import Figures, Text

BOUNDS = DriftBounds(0.25, 0.2, 0.1, 0.05)
FACTS = {"reference": {"path": "data/monday"}, "new": {"path": "data/tuesday"}}
STEADY = FeatureDrift("item", "ids", 100, 100, 0.01, 0.02)
MOVED = FeatureDrift("age", "numbers", 100, 100, 0.5, 0.1, reasons=["PSI 0.50 above 0.25"])


@pytest.fixture
def registry(tmp_path):
    """Three versions: one that no gate has judged, one that passed, one that did not."""
    found = Registry(tmp_path / "registry")
    for name, passed in (("a", None), ("b", True), ("c", False)):
        gate = None
        if passed is not None:
            reasons = [] if passed else ["AUC is worse"]
            judged = {"path": name, "checkpoint_sha256": f"digest of {name}"}
            document = {"passed": passed, "reasons": reasons, "challenger": judged}
            gate = tmp_path / f"{name}.json"
            gate.write_text(with_own_digest({**document, "current": {}, "dataset": {}}))
        found.add(write_hollow_servable(tmp_path / name, name), gate=gate)
    return found


def test_versions_the_last_gate_and_a_registry_that_was_changed(registry):
    assert server_sections(None, None, None) == []
    registry.promote(2)
    sections = dict(server_sections(registry.directory, None, 1))
    assert [*sections] == ["Last gate", "Versions", "Drift"]
    said, table = sections["Versions"]
    assert said.text == "Version 2 is current."
    added = registry.version(1).added[:16].replace("T", " ")
    assert [(row[0], row[1], row[5]) for row in table.rows] == [
        ("3", "", "not passed"), ("2", "current", "passed"), ("1", "canary", "none"),
    ]  # fmt: skip
    assert table.rows[2][2] == added and table.rows[2][3] == "din"
    gate, reason = sections["Last gate"]
    assert gate.text.startswith("Version 3: not passed (added 20")
    assert reason.text == "AUC is worse."
    (registry.directory / "versions/000002.json").write_text("{}")
    sections = dict(server_sections(registry.directory, None, None))
    for heading in ("Last gate", "Versions"):
        (said,) = sections[heading]
        assert "registry/versions/000002.json: expected its digest" in said.text
        assert str(registry.directory) not in said.text


@pytest.mark.slow
def test_the_newest_report_of_drift(registry, tmp_path):
    def drift_of(*given):
        return dict(server_sections(*given, None))["Drift"]

    (said,) = drift_of(registry.directory, None)
    assert said.text == "No report of drift yet, or one that is being written."
    folder = registry.directory / "drift"
    write_drift(folder, [STEADY, MOVED], BOUNDS, FACTS, {})
    said, table, figures = drift_of(registry.directory, None)
    assert said.text.startswith("Drifted: age. tuesday against monday, 20")
    assert table.rows == [["age", "numbers", "0.5000", "0.1000", "PSI 0.50 above 0.25"]]
    (image,) = figures.images.values()
    assert image[0] == (folder / "distances.png").read_bytes()
    write_drift(tmp_path / "drift", [STEADY], BOUNDS, FACTS, {})
    reported = drift_of(None, tmp_path / "drift")
    assert [type(part) for part in reported] == [Text, Figures]
    assert reported[0].text.startswith("Nothing has drifted. ")


def test_a_report_of_drift_that_is_none_is_said(tmp_path):
    write_drift(tmp_path, [STEADY], BOUNDS, FACTS, {})
    path = tmp_path / "drift.json"
    changed = json.loads(path.read_text())
    for content, expected in (
        (json.dumps(changed), "its digest"),
        (with_own_digest({**changed, "findings": 7}), "what `merlin-sim drift` wrote"),
        (" " * (5 << 20), "at most 4 MiB"),
    ):
        path.write_text(content)
        ((_, (said,)),) = server_sections(None, tmp_path, None)
        assert f"drift.json: expected {expected}" in said.text
