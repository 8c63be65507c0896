"""The tests run wherever the checkout lies, whatever its folder is called."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]


def test_the_folder_may_have_any_name(tmp_path):
    checkout = tmp_path / "main"
    (checkout / "tests/support").mkdir(parents=True)
    for name in ("pyproject.toml", "__init__.py"):
        shutil.copy(ROOT / name, checkout)
    (checkout / "tests/test_one.py").write_text("def test_one():\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
