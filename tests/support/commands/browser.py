"""A real browser without a window: Debian's chromium."""

from __future__ import annotations

import shutil
import subprocess
import tempfile

import pytest


def browse(url: str, *options: str) -> str:
    """Load a page, run its JavaScript, wait for its requests; gives what the page became.

    The time of the page is virtual: it stands still while a request is under way, however slow.
    """
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("no chromium (Debian's package of that name)")
    with tempfile.TemporaryDirectory() as home:
        words = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-extensions"]
        words += ["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"]
        words += [f"--user-data-dir={home}", "--virtual-time-budget=5000", *options]
        found = subprocess.run(
            [*words, "--dump-dom", url], capture_output=True, text=True, timeout=240
        )
    assert found.returncode == 0, found.stderr
    return found.stdout
