"""A dataset directory in the published layout, adopted."""

from __future__ import annotations

import shutil

import published_layout
import pytest

from merlin_sim.schemas.adopt import adopt


@pytest.fixture(scope="session")
def adopted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("adopted") / "data"
    published_layout.write(directory)
    adopt(directory, 1)
    return directory


@pytest.fixture
def directory(adopted, tmp_path):
    return shutil.copytree(adopted, tmp_path / "data")
