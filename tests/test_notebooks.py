"""The notebooks run from top to bottom, and are kept without outputs."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path

import nbformat
import pytest
from in_process import run
from IPython.core.inputtransformer2 import TransformerManager

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


class Prompt:
    """What a line that begins with `!` is sent to: its command runs in this process."""

    def __init__(self, names):
        self.names = names

    def system(self, line):
        program, *words = shlex.split(line.format(**self.names))
        assert program == "merlin-sim"
        print(run(*words))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__notebook__"}
    names["get_ipython"] = lambda: Prompt(names)
    with warnings.catch_warnings():
        for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
            if cell.cell_type == "code":
                source = TransformerManager().transform_cell(cell.source)
                exec(compile(source, f"{path.name}, cell {number}", "exec"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    cells = nbformat.read(path, as_version=4).cells
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
