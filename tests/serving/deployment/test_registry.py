"""A registry keeps what it was given, whatever happens to the commands that change it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import killed_registry
import pytest
from hollow_servable import write_hollow_servable

from merlin_sim.foundation.digest import sha256, with_own_digest
from merlin_sim.foundation.exceptions import MerlinSimError
from merlin_sim.serving.deployment.registry import Registry, RegistryError
from merlin_sim.serving.servable import Servable, hold, read_manifest


@pytest.fixture(scope="module")
def servables(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("exports")
    for name in ("a", "b"):
        write_hollow_servable(root / name, name)
    return root


@pytest.fixture
def registry(tmp_path) -> Registry:
    return Registry(tmp_path / "registry")


def model_of(registry: Registry) -> str:
    return (registry.directory / "current/model/saved_model.pb").read_text()


def files_of(registry: Registry) -> list[str]:
    return sorted(os.listdir(registry.directory / "versions"))


def files_for(numbers) -> list[str]:
    return sorted(name for n in numbers for name in (f"{n:06d}", f"{n:06d}.json"))


def write_gate(path: Path, passed: bool, **challenger: str) -> Path:
    document = {
        "passed": passed,
        "reasons": [] if passed else ["AUC of all rows is worse"],
        "challenger": {"path": "runs/a", **challenger},
        "current": {"path": "runs/b"},
        "dataset": {"path": "next"},
    }
    path.write_text(with_own_digest(document))
    return path


def test_versions_are_added_promoted_and_rolled_back(registry, servables):
    first, second = registry.add(servables / "a"), registry.add(servables / "b")
    assert (first.number, second.number, registry.current) == (1, 2, None)
    assert first.checkpoint["name"] == "step-a" and first.model_type == "din"
    assert first.servable_sha256 == sha256(servables / "a/manifest.json")
    registry.promote(1)
    assert (registry.current, model_of(registry)) == (1, "a")
    served = Servable.open(registry.directory / "current")
    registry.promote(2)
    assert served.model.joinpath("saved_model.pb").read_text() == "a"  # whatever is promoted since
    registry.promote(2)
    assert (model_of(registry), registry.were_current()) == ("b", [1, 2])
    assert registry.rollback() == (1, 2)
    assert (model_of(registry), registry.were_current()) == ("a", [1])
    with pytest.raises(RegistryError, match="expected a version that was current before"):
        registry.rollback()
    assert [version.number for version in registry.versions()] == [1, 2]
    assert registry.versions()[0] == first


def test_old_versions_go_but_for_those_that_are_needed_or_served(registry, servables):
    for _ in range(5):
        registry.add(servables / "a")
    for number in (2, 1, 3, 1):
        registry.promote(number)
    said = []
    held = hold(registry.path_of(2))  # as a canary that need be neither new nor ever current
    assert registry.prune(1, said.append) == [4]
    assert said == ["version 2 stays: a server has it"]
    assert read_manifest(registry.path_of(2))
    os.close(held)
    assert registry.prune(1) == [2]
    with pytest.raises(MerlinSimError, match="cannot be opened"):
        hold(registry.path_of(2))
    assert [version.number for version in registry.versions()] == [1, 3, 5]
    assert registry.were_current() == [1, 3, 1]
    assert files_of(registry) == files_for([1, 3, 5])
    assert registry.prune(3) == [] and registry.rollback() == (3, 1)
    assert registry.add(servables / "b").number == 6


def test_a_gate_that_was_not_passed_keeps_a_version_from_being_current(
    registry, servables, tmp_path
):
    digest = sha256(servables / "a/manifest.json")
    failed = write_gate(tmp_path / "failed.json", False, servable_sha256=digest)
    passed = write_gate(tmp_path / "passed.json", True, checkpoint_sha256="digest of a")
    registry.add(servables / "a", gate=failed)
    registry.add(servables / "a", gate=passed)
    registry.promote(2)
    with pytest.raises(RegistryError, match="did not pass its gate.*\n  AUC of all rows is worse"):
        registry.promote(1)
    assert registry.current == 2
    registry.promote(1, force=True)
    assert registry.current == 1
    assert [version.passed for version in registry.versions()] == [False, True]


def test_what_is_not_right_adds_nothing(registry, servables, tmp_path):
    harmed = write_hollow_servable(tmp_path / "harmed", "c")
    (harmed / "model/saved_model.pb").write_text("d")
    gate = write_gate(tmp_path / "gate.json", True, checkpoint_sha256="digest of b")
    edited = tmp_path / "edited.json"
    edited.write_text(gate.read_text().replace("true", "false"))
    (tmp_path / "empty").mkdir()
    for arguments, said in (
        ({"servable": harmed}, "its sha256 is not the manifest's"),
        ({"servable": servables / "a", "gate": gate}, "expected the gate of this model"),
        ({"servable": servables / "b", "gate": edited}, "not as it was written"),
        ({"servable": servables / "a", "run": tmp_path / "empty"}, "expected a log"),
    ):
        with pytest.raises(MerlinSimError, match=said):
            registry.add(**arguments)
    assert not registry.directory.exists()


def test_what_a_registry_does_not_have_is_named(registry, servables):
    for ask in (registry.versions, registry.rollback, lambda: registry.prune(1)):
        with pytest.raises(RegistryError, match="expected a registry; `add` makes one"):
            ask()
    registry.add(servables / "a")
    with pytest.raises(RegistryError, match=r"expected one of its versions \(1\). Received: 7"):
        registry.promote(7)
    (registry.path_of(1) / "model/saved_model.pb").write_text("harmed")
    with pytest.raises(MerlinSimError, match="not as it was exported"):
        registry.promote(1)
    assert registry.current is None
    story = registry.path_of(1).with_suffix(".json")
    story.write_text(story.read_text().replace("din", "sim"))
    with pytest.raises(RegistryError, match="not as it was written"):
        registry.versions()


def test_the_link_decides_and_what_is_served_stays_when_its_story_is_lost(registry, servables):
    registry.add(servables / "a")
    registry.promote(1)
    (registry.directory / "promotions.json").write_text("nothing")
    assert registry.were_current() == [1]
    (registry.directory / "promotions.json").unlink()
    assert registry.were_current() == [1]
    registry.path_of(1).with_suffix(".json").unlink()
    registry.add(servables / "b")
    assert model_of(registry) == "a"
    os.unlink(registry.directory / "current")
    os.symlink("/elsewhere", registry.directory / "current")
    with pytest.raises(RegistryError, match="expected a link to a version. Received: /elsewhere"):
        assert registry.current


@pytest.mark.slow
def test_killed_at_any_moment_nothing_is_lost(servables, tmp_path):
    """What was done stays done; what was being done is done or not; the next command goes on."""
    (tmp_path / "servables").symlink_to(servables)
    words = [sys.executable, killed_registry.__file__, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    states = list(killed_registry.changes(Registry(tmp_path / "undisturbed"), servables))
    # What lies between two states: a version that is added and not promoted yet; one that nothing
    # goes back to any more and that is there still.
    between = {6: ([1, 2, 3], [1, 2]), 7: ([1, 2, 3], [2, 3])}
    killed = sorted(tmp_path.glob("*.done"))
    assert len(killed) > 50
    for note in killed:
        finished = max(0, note.stat().st_size - 1)
        registry = Registry(note.with_suffix(""))
        may_be = [*states[finished : finished + 2], between.get(finished)]
        assert look(registry) in may_be, note
        version = registry.add(servables / "b")
        registry.promote(version.number)
        assert model_of(registry) == "b"
        assert sorted(os.listdir(registry.directory)) == [
            ".lock", "current", "promotions.json", "versions"
        ]  # fmt: skip
        assert files_of(registry) == files_for(v.number for v in registry.versions())


def look(registry: Registry) -> tuple[list[int], list[int]]:
    """Return versions, all of them whole, and those that were current."""
    if not (registry.directory / "versions").is_dir():
        return [], []
    numbers = [version.number for version in registry.versions()]
    for number in numbers:
        read_manifest(registry.path_of(number))
    if registry.current is not None:
        assert registry.current in numbers
    return numbers, registry.were_current()


def add_thrice(registry: Registry, servable: Path) -> list[int]:
    return [registry.add(servable).number for _ in range(3)]


def test_two_processes_that_add_at_once_both_find_their_version(registry, servables):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        asked = [(registry, servables / name) for name in ("a", "b")]
        of_a, of_b = pool.starmap(add_thrice, asked, chunksize=1)
    assert sorted(of_a + of_b) == [1, 2, 3, 4, 5, 6]
    for name, found in (("a", of_a), ("b", of_b)):
        for number in found:
            assert registry.version(number).checkpoint["name"] == f"step-{name}"
