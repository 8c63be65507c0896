"""What a person hears who uses the package from Python: nothing that is not about their work."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from merlin_sim.foundation.process_wide import QuietImports, quiet_merlin

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
AS_BEFORE = """
import logging, os, warnings
before = list(warnings.filters)
{code}
import merlin.models.tf
added = [entry for entry in warnings.filters if entry not in before and entry[0] == "ignore"]
assert all(message or module for _, message, _, module, _ in added), added
assert logging.getLogger("tensorflow").level == logging.NOTSET
assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
"""
NOISY = """
import logging, os, warnings
warnings.warn("noise of the start")
logging.getLogger("tensorflow").warning("noise of the logger")
level = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
def use():
    warnings.warn("of use")
"""


@pytest.mark.slow
def test_a_page_of_the_docs_says_nothing_foreign_and_leaves_nothing_turned_off(tmp_path):
    (code,) = BLOCK.findall((ROOT / "docs/training.md").read_text())
    kept = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", AS_BEFORE.format(code=code)],
        cwd=tmp_path,
        env={**kept, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def noisy(tmp_path, monkeypatch):
    """Import a package of Merlin's kind, as a user does."""
    (tmp_path / "noisy").mkdir()
    (tmp_path / "noisy/__init__.py").write_text(NOISY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(QuietImports, "packages", ("noisy",))
    monkeypatch.setattr(sys, "warnoptions", [])
    monkeypatch.setattr(logging.getLogger("tensorflow"), "level", logging.NOTSET)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    yield lambda: importlib.import_module("noisy")
    sys.modules.pop("noisy", None)


def test_a_start_is_quiet_and_what_comes_after_is_not(noisy, caplog, recwarn):
    filters = list(warnings.filters)
    module = noisy()
    assert not recwarn and not caplog.records
    assert module.level == "2" and "TF_CPP_MIN_LOG_LEVEL" not in os.environ
    assert warnings.filters == filters
    assert logging.getLogger("tensorflow").level == logging.NOTSET
    assert type(module.__loader__).__name__ == type(module.__spec__.loader).__name__
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    with pytest.warns(UserWarning, match="of use"):
        module.use()


def test_what_is_only_looked_for_is_found_whole(noisy):
    spec = importlib.util.find_spec("noisy")
    assert spec.loader.is_package("noisy")
    assert "noise of the start" in spec.loader.get_source("noisy")


def test_whoever_else_python_asks_for_modules_is_asked_too(noisy, monkeypatch):
    asked = []

    class Finder:
        def find_spec(self, name, path=None, target=None):
            asked.append(name)

    place = next(i for i, finder in enumerate(sys.meta_path) if isinstance(finder, QuietImports))
    monkeypatch.setattr(
        sys, "meta_path", [*sys.meta_path[: place + 1], Finder(), *sys.meta_path[place + 1 :]]
    )
    assert noisy().level == "2"
    assert asked[0] == "noisy"


def test_who_asks_for_warnings_hears_them(noisy, monkeypatch):
    monkeypatch.setattr(sys, "warnoptions", ["default"])
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with pytest.warns(UserWarning, match="noise of the start"):
        module = noisy()
    assert module.level == os.environ["TF_CPP_MIN_LOG_LEVEL"] == "0"


def test_in_use_merlin_alone_is_quiet():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quiet_merlin():
            warnings.warn_explicit("its", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
            warnings.warn("ours", stacklevel=1)
        warnings.warn_explicit("later", UserWarning, "dataset.py", 1, module="merlin.io.dataset")
    assert [str(warning.message) for warning in heard] == ["ours", "later"]
