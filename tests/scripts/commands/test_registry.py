"""`merlin-sim registry`: versions, and which of them is current."""

from __future__ import annotations

import json

import pytest
from hollow_servable import write_hollow_servable
from in_process import answer

from merlin_sim.foundation.digest import with_own_digest


@pytest.fixture
def home(tmp_path):
    for name in ("a", "b"):
        write_hollow_servable(tmp_path / name, name)
    return tmp_path


def registry(home, what, *more):
    return answer("registry", what, home / "registry", *more)


def test_a_registry_from_its_first_version_to_the_last(home):
    (home / "run").mkdir()
    entry = {"type": "result", "test_auc": 0.8125, "test_log_loss": 0.5, "samples": 7}
    (home / "run/log.json").write_text(json.dumps(entry) + "\n")
    assert registry(home, "add", home / "a", "--run", home / "run").stdout == "version 1\n"
    assert registry(home, "add", home / "b").stdout == "version 2\n"
    found = registry(home, "promote", 1)
    assert found.stdout == "version 1 is current\n" and "no gate has judged it" in found.stderr
    registry(home, "promote", 2)
    head, first, second = registry(home, "list").stdout.splitlines()
    assert head.split()[:3] == ["Version", "Added", "Model"]
    assert first.split()[:1] == ["1"] and "0.8125" in first and second.startswith("*")
    reported = json.loads(registry(home, "list", "--json").stdout)
    assert (reported["current"], reported["were_current"]) == (2, [1, 2])
    assert reported["versions"][0]["metrics"] == {"test_auc": 0.8125, "test_log_loss": 0.5}
    assert reported["versions"][1]["checkpoint"]["dataset"] == "f00d"
    assert registry(home, "rollback").stdout == "version 1 is current, in place of 2\n"
    assert registry(home, "add", home / "b").stdout == "version 3\n"
    assert registry(home, "prune", "--keep_versions", 1).stdout == "removed: 2\n"
    assert registry(home, "prune", "--keep_versions", 1).stdout == "nothing to remove\n"


def test_a_version_has_the_metrics_of_its_own_checkpoint(home):
    write_hollow_servable(home / "best", "best", steps=20)
    (home / "run").mkdir()
    epochs = [
        {"type": "epoch", "epoch": n, "step": 20 * n, "test_auc": 0.9 - n / 10} for n in (1, 2)
    ]
    entries = [*epochs, {"type": "result", "step": 40, "test_auc": 0.7, "time_to_train": 3.0}]
    (home / "run/log.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    registry(home, "add", home / "best", "--run", home / "run")
    (version,) = json.loads(registry(home, "list", "--json").stdout)["versions"]
    assert version["metrics"] == {"test_auc": 0.8, "time_to_train": 3.0}


def test_what_is_refused_ends_with_2(home):
    gate = {"passed": False, "reasons": ["worse"], "current": {}, "dataset": {}}
    gate["challenger"] = {"checkpoint_sha256": "digest of a"}
    (home / "gate.json").write_text(with_own_digest(gate))
    registry(home, "add", home / "a", "--gate", home / "gate.json")
    found = registry(home, "promote", 1)
    assert found.returncode == 2 and "version 1 did not pass its gate" in found.stderr
    found = registry(home, "promote", 1, "--force")
    assert found.returncode == 0 and "it did not pass its gate" in found.stderr
    for arguments in (("rollback",), ("prune", "--keep_versions", 0), ("list",)):
        index = home / "nothing" if arguments == ("list",) else home / "registry"
        assert answer("registry", arguments[0], index, *arguments[1:]).returncode == 2
