"""The command `transcode`, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from merlin_sim.schemas.dataset import DatasetDirectory


@pytest.fixture
def transcode(run_cli):
    def run(source: Path, output: Path, *options) -> DatasetDirectory | None:
        result = run_cli("data", "transcode", "--input", source, "--output", output, *options)
        if result.exception:
            raise result.exception
        return None if "--to" in options else DatasetDirectory.open(output)

    return run
