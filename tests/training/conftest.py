"""Poisoned memory for the training tests: a row that nobody filled shows. And a small run."""

import functools
import shutil
from dataclasses import replace

import pytest
from grown_dataset import write_keyed_dataset
from poisoned_memory import poisoned_memory  # noqa: F401
from small_runs import small_run_of

from merlin_sim.schemas.dataset import DatasetDirectory, write_documents


@pytest.fixture
def small_run(sim_dataset, tmp_path):
    """Makes the configuration of a small DIN's run, with what is to be different."""
    return functools.partial(small_run_of, sim_dataset, tmp_path)


@pytest.fixture
def config(small_run, tmp_path):
    """Makes the configuration of a small DIN's run that saves, with what is to be different."""

    def make(**changes):
        return small_run(**{"save_checkpoint_path": tmp_path / "saved", **changes})

    return make


@pytest.fixture(scope="session")
def validated(sim_dataset, tmp_path_factory):
    """A dataset of which the second test file validates."""
    path = tmp_path_factory.mktemp("validated") / "dataset"
    shutil.copytree(sim_dataset, path)
    spec = DatasetDirectory.open(path).spec
    (test,) = spec.source_spec["test"]
    parts = {
        "test": (replace(test, files=test.files[:1]),),
        "validation": (replace(test, files=test.files[1:]),),
    }
    for document in ("feature_spec.yaml", "schema.pbtxt", "metadata.json"):
        (path / document).unlink(missing_ok=True)
    write_documents(path, replace(spec, source_spec={**spec.source_spec, **parts}))
    return path


@pytest.fixture(scope="session")
def keyed(tmp_path_factory):
    """Three days of datasets with keys: an old one, one that grew from it, and one that did not."""
    root = tmp_path_factory.mktemp("keyed")
    write_keyed_dataset(root / "old")
    write_keyed_dataset(root / "grown", grown=True)
    write_keyed_dataset(root / "other", grown=True, order=-1)
    return root
