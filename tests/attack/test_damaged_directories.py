"""Servables, fitted workflows and checkpoints that are damaged are refused, or are as before."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from merlin_sim.parallel.checkpoints.checkpoint_store import CheckpointStore
from merlin_sim.serving.encoder import open_encoder
from merlin_sim.serving.servable import Servable
from merlin_sim.workflows.criteo.click_graph import keys_operator, load_clicks
from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

from .damage import FILE_DAMAGES, files_of
from .judged import InFolder, answer, share

pytestmark = pytest.mark.slow


def read_servable(directory: Path) -> Any:
    servable = Servable.open(directory)
    encoder = open_encoder(servable)
    event: dict[str, Any] = {column.name: "u1" for column in encoder.columns.users}
    event |= {"history": ["i1", "i2", "i5"], "candidates": ["i3", "i4", "none"]}
    if servable.takes_rows:
        keyed = {column.name: column.largest_id for column in encoder.columns.targets}
        event = {name: 1.5 if last is None else "01234567" for name, last in keyed.items()}
    return encoder.columns, encoder.encode(encoder.parse(event))


def read_fitted(directory: Path) -> Any:
    fitted = FittedWorkflow.load(directory)
    keys = {name: fitted.vocabularies.keys(name).tolist() for name in fitted.domains}
    return fitted.columns, fitted.rules, keys, fitted.sizes


def read_fitted_clicks(directory: Path) -> Any:
    workflow, rules = load_clicks(directory)
    op = keys_operator(workflow)
    return rules, {name: op.keys(name).to_pylist() for name in op.categories}


def read_checkpoint(directory: Path) -> Any:
    found = CheckpointStore(directory).load()
    return {**found.metadata}, {name: array.tolist() for name, array in found.arrays.items()}


class Damaged(InFolder):
    """A copy of a directory that is damaged again and again, and now and then made good."""

    def __init__(self, source: Path, parts: tuple[str, ...], read: Any) -> None:
        super().__init__()
        self.source, self.parts, self.read = source, parts, read
        self.directory = self.parent / "copy"
        self.wanted = repr(read(source))

    @initialize()
    def make_good(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        for path in files_of(self.source):
            name = path.relative_to(self.source)
            if not self.parts or name.parts[0] in self.parts:
                (self.directory / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, self.directory / name)
        assert repr(self.read(self.directory)) == self.wanted

    @rule(damage=FILE_DAMAGES)
    def damage(self, damage):
        damage.make(self.directory)

    @invariant()
    def it_is_refused_or_as_before(self):
        found = answer(self.read, self.directory, names=(self.directory,))
        if found.refusal is None:
            assert repr(found.result) == self.wanted
            for path in files_of(self.directory):
                good = self.source / path.relative_to(self.directory)
                assert not good.exists() or good.read_bytes() == path.read_bytes(), path


@pytest.mark.parametrize(
    ("name", "parts", "read"),
    [
        ("servable", (), read_servable),
        ("click servable", (), read_servable),
        ("dataset", ("workflow.json", "categories"), read_fitted),
        ("clicks", ("workflow.json", "workflow"), read_fitted_clicks),
        ("saved", (), read_checkpoint),
    ],
)
def test_a_damaged_directory_is_refused_or_as_before(good, name, parts, read):
    settings = share(12, suite=5, stateful_step_count=4)
    run_state_machine_as_test(lambda: Damaged(good / name, parts, read), settings=settings)
